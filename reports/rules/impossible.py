"""A rate that no memory could serve is an error of measurement, not a record."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.rules.physics import ceiling_share
from reports.units import percent, token_rate

_TOLERANCE = 1.15
"""Above a measured ceiling by more than this is no noise."""
_ROUGH_TOLERANCE = 1.5
"""The same where bytes or bandwidth were worked out or come from a data sheet."""
_LEAST_STEP_S = 100e-6
"""One decode step of even the smallest model starts over a hundred operations; 10,000 tok/s is a count of
something else (speculative runs book accepted tokens so)."""


def judge(evidence: Evidence) -> Outcome:
    """Compare decode with what the memory allows. Speculative decoding may pass the ceiling honestly."""
    step = evidence.decode_step_s
    inputs = evidence.known("decode_tok_s", "decode_s", "n_output", "speculative", "bytes_per_token")
    if step is None:
        return Abstained(missing=("decode_tok_s",))
    if step < _LEAST_STEP_S:
        return _finding(f"decode at {token_rate(1 / step)} is faster than operations can be started", inputs)
    share = ceiling_share(evidence)
    # Several devices may read at the same time when tensors are split across them.
    tolerance = _ROUGH_TOLERANCE if evidence.decode_ceiling_s is None else _TOLERANCE
    allowed = tolerance * (evidence.n_gpus or 1)
    if share is not None and share > allowed and not evidence.speculative:
        inputs |= evidence.known("gpu_bandwidth_bytes_s", "memory_bandwidth_bytes_s", "decode_ceiling_s")
        return _finding(f"decode would run at {percent(share)} of what the memory can deliver", inputs)
    return Cleared(reason="no rate is above what the hardware can do", inputs=inputs)


def _finding(reason: str, inputs: dict[str, object]) -> Finding:
    return Finding(
        verdict="unknown",
        confidence=0.6,
        reason=reason,
        inputs=inputs,
        advice="measure again: count only tokens that were really generated, and check the model's size",
    )
