"""What a remedy is, and the situation that it would change."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

from probes.records import Settings, Workload
from reports.evidence import Evidence
from reports.phases import Estimate
from reports.request_costs import Costs
from reports.rules.placement import WORTH
from reports.waits import Waits

Tool = Literal["llmphase", "llama.cpp", "ollama", "lm-studio"]

HEALTHY = 0.75
"""Share of their ceilings that healthy phases reach: the middle of 0.61 to 0.96."""
USUAL_OUTPUT_TOKENS = 256
"""Answer that is reckoned with where only rates are known."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A change that can be tried on the spot: new values of `Settings` and `Workload` fields."""

    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    workload: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    quantization: str | None = None
    """The model in this quantization, made for the trial: its speed is true, its answers are not."""

    def apply(self, settings: Settings, workload: Workload) -> tuple[Settings, Workload]:
        """Both with the change made."""
        return (
            dataclasses.replace(settings, **self.settings),
            dataclasses.replace(workload, **self.workload),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change with what it would save. Without a predicted wait its effect is not known and has to be
    tried."""

    code: str
    """Stable, kebab-case."""
    title: str
    """What to do, an imperative clause."""
    predicted_wait_s: float | None
    low_s: float | None
    """Interval of the predicted wait."""
    high_s: float | None
    saved_s: float | None
    saved_share: float | None
    """Of the present wait, 0 to 1."""
    at_most_s: float | None
    """Where the effect is not known: all that it could save."""
    basis: str
    """What the figure rests on, or why there is none."""
    how: Mapping[Tool, str]
    cost: str
    """What one gives up."""
    try_with: Trial | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The request as it is now."""

    evidence: Evidence
    waits: Waits
    costs: Costs
    n_prompt: int
    n_cached: int
    n_output: int

    @property
    def total_s(self) -> float:
        """The whole wait, as far as it is known."""
        return self.waits.total_s

    @property
    def n_evaluated(self) -> int:
        """Prompt tokens that are not cached."""
        return self.n_prompt - self.n_cached

    @property
    def least_decode_s(self) -> float | None:
        """All decode steps at the device's best; None without ceilings."""
        ceiling = self.evidence.decode_ceiling_s
        return None if ceiling is None else ceiling * max(self.n_output - 1, 0)

    def prefill_with(self, prompt_tokens: int, cached_tokens: int) -> Estimate | None:
        """Another prompt's prefill, in proportion to the one that was measured."""
        now, then = (
            self.costs.prefill(self.n_prompt, self.n_cached),
            self.costs.prefill(prompt_tokens, cached_tokens),
        )
        return scaled(then, now, self.waits.prefill_s)

    def decode_with(self, prompt_tokens: int, output_tokens: int) -> Estimate | None:
        """Another answer's decode, in proportion to the one that was measured."""
        now, then = (
            self.costs.decode(self.n_prompt, self.n_output),
            self.costs.decode(prompt_tokens, output_tokens),
        )
        return scaled(then, now, self.waits.decode_s)

    def wait(self, **parts: Estimate | None) -> Estimate | None:
        """The wait with these parts exchanged; None where a new or an old part is unknown.

        Intervals add: one cause moves both phases the same way, so their errors do not cancel.
        """
        value = low = high = self.total_s
        for name, new in parts.items():
            old = self.waits.parts.get(name)
            if new is None or old is None:
                return None
            value += new.value_s - old
            low += new.low_s - old
            high += new.high_s - old
        return Estimate(value_s=value, low_s=low, high_s=high)


def between(value: float, low: float, high: float) -> Estimate:
    """A duration with limits, which are put in order around it."""
    return Estimate(value_s=value, low_s=min(low, value), high_s=max(high, value))


def placed(evidence: Evidence, then_s: float, now_s: float, least_now_s: float | None) -> Estimate:
    """A phase with its layers elsewhere: `then_s` instead of `now_s`.

    Where the parts of the split model were timed, that is what was seen of both memories. Else it is in
    proportion to the roofs of both placements, and `least_now_s` is the roof of now: healthy runs in one
    memory reach three quarters of their roof. What a run takes beyond that now is in part the cost of working
    in two memories in turns, which goes, and in part the machine's, which stays; one run does not tell which:
    the geometric mean of both, between them.
    """
    beyond = now_s / least_now_s if least_now_s and not evidence.layers_timed else 0.0
    if beyond <= 1 / HEALTHY:
        return between(then_s, then_s * (1 - WORTH), then_s * (1 + WORTH))
    healthy_s = then_s / HEALTHY / beyond
    return between(math.sqrt(then_s * healthy_s), healthy_s, then_s)


def scaled(then: Estimate | None, now: Estimate | None, measured_s: float | None) -> Estimate | None:
    """`then` in proportion to what was measured where `now` was predicted."""
    if then is None or now is None or measured_s is None or now.value_s <= 0:
        return None
    return then.times(measured_s / now.value_s)


def computed(
    situation: Situation,
    wait: Estimate | None,
    *,
    code: str,
    title: str,
    basis: str,
    how: Mapping[Tool, str],
    cost: str,
    try_with: Trial | None = None,
) -> Remedy | None:
    """A remedy with its figure; None where there is none to give."""
    total = situation.total_s
    if wait is None or total <= 0:
        return None
    saved = total - wait.value_s
    return Remedy(
        code=code,
        title=title,
        predicted_wait_s=max(0.0, wait.value_s),
        low_s=max(0.0, wait.low_s),
        high_s=max(0.0, wait.high_s),
        saved_s=saved,
        saved_share=saved / total,
        at_most_s=None,
        basis=basis,
        how=how,
        cost=cost,
        try_with=try_with,
    )


def untold(
    *,
    code: str,
    title: str,
    at_most_s: float | None,
    basis: str,
    how: Mapping[Tool, str],
    cost: str,
    try_with: Trial | None,
) -> Remedy:
    """A remedy whose effect only a trial can tell."""
    return Remedy(
        code=code,
        title=title,
        predicted_wait_s=None,
        low_s=None,
        high_s=None,
        saved_s=None,
        saved_share=None,
        at_most_s=at_most_s,
        basis=basis,
        how=how,
        cost=cost,
        try_with=try_with,
    )
