"""The load is what one waits for."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.units import duration, percent, size
from reports.waits import Waits, waits_of

USUAL_OUTPUT_TOKENS = 256
"""Answer that a load is weighed against where only a rate is known."""
_WORTH_S = 2.0
"""A load alone, with nothing to weigh it against, is a complaint from here on."""
_HALF = 0.5


def judge(evidence: Evidence) -> Outcome:
    """The load against everything else, as far as it is known."""
    waits = waits_of(evidence)
    inputs = evidence.known(
        "load_s", "start", "prefill_s", "decode_s", "decode_tok_s", "total_s", "repeat_load_s"
    )
    if waits.load_s is None:
        return Abstained(missing=("load_s",))
    others = waits.total_s - waits.load_s
    weighed = waits.prefill_s is not None and waits.decode_s is not None
    if not weighed and waits.decode_s is None and evidence.decode_tok_s:
        others += USUAL_OUTPUT_TOKENS / evidence.decode_tok_s
    if waits.load_s <= 0 or waits.load_s <= others:
        share = waits.load_s / (waits.load_s + others) if others else 0.0
        return Cleared(reason=f"loading is {percent(share)} of the wait", inputs=inputs)
    if not others and waits.load_s < _WORTH_S:
        return Abstained(missing=evidence.missing("prefill_s", "decode_s"))
    share = waits.load_s / (waits.load_s + others)
    return Finding(
        verdict="load-bound",
        confidence=_confidence(waits, share, weighed=weighed),
        reason=_reason(evidence, waits.load_s, share, others),
        inputs=inputs | evidence.known("model_bytes", "disk_read_bytes", "file_cached_fraction", "load_mode"),
        saves_share=share,
        margin=share / _HALF - 1,
    )


def _confidence(waits: Waits, share: float, *, weighed: bool) -> float:
    """Sure where both phases were timed and the load outweighs them clearly."""
    if weighed:
        return min(0.95, 0.6 + (share - _HALF))
    return 0.78 if share > 0.8 and waits.load_s is not None else 0.6


def _reason(evidence: Evidence, load_s: float, share: float, others: float) -> str:
    text = f"loading takes {duration(load_s)}"
    if others:
        text += f", {percent(share)} of the wait"
    if evidence.model_bytes and load_s > 0:
        text += f" ({size(evidence.model_bytes / load_s)}/s)"
    if evidence.repeat_load_s is not None and evidence.repeat_load_s > load_s / 2:
        text += ", and again each time"
    return text
