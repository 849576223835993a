"""What a diagnosis says about evidence that was not measured here: a log's requests, or a facts file."""

from __future__ import annotations

import dataclasses

from reports.evidence import Evidence
from reports.notices import Notice
from reports.parts import Table
from reports.rules import Verdict


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """One request of a log, diagnosed."""

    number: int
    """From 1, in the log's order."""
    source: str
    """The parser's name."""
    label: str
    """What the log calls it; may be empty."""
    line: int
    """Where its figures end."""
    verdict: Verdict
    confidence: float
    wait_s: float
    """As far as it is known."""
    evidence: Evidence
    notes: tuple[str, ...]
    """What was put right or left out."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """Where the evidence comes from, and what stood beside it."""

    source: str
    """The parser's name, or `facts`."""
    number: int | None
    """Of the request that is diagnosed; None for facts."""
    n_requests: int
    """In the whole log, those not kept included."""
    requests: tuple[LoggedRequest, ...]
    table: Table | None
    """None for a single request."""
    trend: tuple[str, ...]
    """What changes from request to request, as sentences."""
    notices: tuple[Notice, ...]
