"""What a rule is: a pure function of evidence that finds something, clears it, or abstains."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal

from reports.evidence import Evidence

Verdict = Literal[
    "offload-bound",
    "prompt-bound",
    "generation-bound",
    "load-bound",
    "contended",
    "balanced",
    "unknown",
]
"""What one waits for. `unknown` with a finding stands for a cause outside the classes, which is named."""

Stage = Literal["times", "contention", "residency", "load", "beside", "shares", "ceiling"]
"""The order of tests. Shares of the wait come late, since they alone misname every offloaded run."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The rule fired."""

    verdict: Verdict
    """The class it speaks for."""
    confidence: float
    """0 to 1: how often such evidence means this. Above 0.8 only for what was observed directly."""
    reason: str
    """What was seen, as a clause that completes "...: ", with its figures."""
    inputs: Mapping[str, object]
    """The facts it rests on, by name."""
    saves_share: float | None = None
    """Estimate, at the least, of the share of prefill and decode that relieving this would save."""
    margin: float | None = None
    """Distance from the rule's threshold, as a share of the threshold."""
    advice: str | None = None
    """Where to look, when that does not follow from the class."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """The facts were there and say no."""

    reason: str
    inputs: Mapping[str, object]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Abstained:
    """The rule can not tell without these facts."""

    missing: tuple[str, ...]


Outcome = Finding | Cleared | Abstained


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One test with its stable code."""

    code: str
    """Kebab-case; documented and never renamed."""
    stage: Stage
    question: str
    """What it asks, for a person who reads why."""
    judge: Callable[[Evidence], Outcome]
