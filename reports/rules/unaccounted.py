"""Time that no phase explains."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.units import duration, percent
from reports.waits import waits_of

_SHARE = 0.4


def judge(evidence: Evidence) -> Outcome:
    """Wall minus phases, as a share of the wait."""
    waits = waits_of(evidence)
    if waits.unaccounted_s is None:
        return Abstained(missing=evidence.missing("total_s", "prefill_s", "decode_s") or ("total_s",))
    inputs = evidence.known("total_s", "load_s", "prefill_s", "decode_s", "sampling_s", "tokenize_s")
    share = waits.share("unaccounted") or 0.0
    if share < _SHARE:
        return Cleared(reason=f"{percent(share)} of the wait is outside the phases", inputs=inputs)
    return Finding(
        verdict="unknown",
        confidence=0.7,
        reason=f"{duration(waits.unaccounted_s)} of the wait, {percent(share)}, lie outside load, prompt and"
        " answer",
        inputs=inputs,
        margin=share / _SHARE - 1,
        advice="look at what runs around the engine: a queue, the client, templates, work between tokens",
    )
