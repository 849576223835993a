"""A mapped file that is read from disk inside the first evaluation: the load hides in the prompt's time."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules import impossible
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.rules.physics import DISK_BYTES_S
from reports.units import duration, size
from reports.waits import waits_of

_SLOWER = 3.0
"""Times that a prompt token may cost a generated one. Evaluated together they cost less; a mixture of experts
reads more experts for them together, never more than each alone."""
_SLOWEST_DISK = 20e6
"""Bytes a second: a memory card, or a network drive."""


def judge(evidence: Evidence) -> Outcome:
    """Prompt tokens dearer than generated ones, by a time in which a disk reads the file."""
    prefill, decode, evaluated = evidence.prefill_token_s, evidence.decode_step_s, evidence.n_evaluated
    inputs = evidence.known(
        "n_prompt", "prefill_s", "prefill_tok_s", "decode_tok_s", "model_bytes", "load_mode"
    )
    if prefill is None or decode is None or not evaluated:
        return Abstained(missing=evidence.missing("n_prompt", "prefill_s", "decode_tok_s"))
    if isinstance(impossible.judge(evidence), Finding):
        return Cleared(reason="the generated tokens' time can not be true", inputs=inputs)
    if prefill < _SLOWER * decode:
        return Cleared(reason="prompt tokens are not dearer than generated ones", inputs=inputs)
    extra_s = (prefill - decode) * evaluated
    answer_s = waits_of(evidence).decode_s or 0.0
    if extra_s < answer_s:
        return Cleared(
            reason=f"the first evaluation lost {duration(extra_s)}, less than the answer", inputs=inputs
        )
    rate = evidence.model_bytes / extra_s if evidence.model_bytes else None
    if rate is not None and not _SLOWEST_DISK <= rate <= DISK_BYTES_S:
        return Cleared(reason=f"{size(rate)}/s is no disk's speed", inputs=inputs)
    read = f": a disk reads the file so, at {size(rate)}/s" if rate else ""
    return Finding(
        verdict="load-bound",
        confidence=0.76 if rate is not None and evidence.load_mode != "none" else 0.5,
        reason=f"prompt tokens cost {prefill / decode:.0f} times what generated ones do,"
        f" {duration(extra_s)} in all{read}",
        inputs=inputs,
        margin=prefill / (_SLOWER * decode) - 1,
    )
