"""Paging as it was counted: swap, disk reads or major faults while the prompt and the answer ran."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.units import count, percent, size

_SWAP_SHARE = 0.02
"""Swap-in of this share of the model is more than the odd page that wakes up."""
_SWAP_BYTES = 64 * 2**20
_READ_AGAIN = 1.5
"""Times the file that disk reads may come to: one load reads it once, and read-ahead may add some."""
_TOKEN_SHARE = 0.1
"""Of the bytes a token reads, what may come from disk: at a twentieth of the memory's speed this share
already costs more than all the rest."""
_LEAST_FAULTS = 1000
"""Any program meets some hundred when it starts."""
_FAULTS_PER_TOKEN = 100
"""Each reads 4 KiB at the least and waits some 100 us for the drive: 10 ms a token."""


def judge(evidence: Evidence) -> Outcome:
    """Look at each counter that is known; one is enough."""
    names = ("swap_in_bytes", "disk_read_bytes", "disk_read_bytes_s", "major_faults")
    inputs = evidence.known(*names, "model_bytes", "bytes_per_token", "n_output", "decode_tok_s")
    if len(evidence.missing(*names)) == len(names):
        return Abstained(missing=names)
    for check in (_swapped, _read_again, _read_per_token, _faults):
        reason = check(evidence)
        if reason:
            return Finding(
                verdict="contended", confidence=0.85, reason=reason, inputs=inputs, saves_share=0.5
            )
    return Cleared(reason="next to nothing was read from disk or swap while computing", inputs=inputs)


def _swapped(evidence: Evidence) -> str | None:
    swapped = evidence.swap_in_bytes or 0
    if swapped < max(_SWAP_BYTES, _SWAP_SHARE * (evidence.model_bytes or 0)):
        return None
    return f"{size(swapped)} came back from swap during the run"


def _read_again(evidence: Evidence) -> str | None:
    read, model = evidence.disk_read_bytes, evidence.model_bytes
    if read is None or model is None or read < _READ_AGAIN * model:
        return None
    return f"{size(read)} were read from disk for a model of {size(model)}"


def _read_per_token(evidence: Evidence) -> str | None:
    """A steady stream from disk while tokens come, against what a token reads."""
    rate, step, needed = evidence.disk_read_bytes_s, evidence.decode_step_s, evidence.host_read_bytes
    if rate is None or step is None or not needed or rate * step < _TOKEN_SHARE * needed:
        return None
    share = percent(min(1.0, rate * step / needed))
    return f"each token waits for {size(rate * step)} from disk, {share} of what it reads"


def _faults(evidence: Evidence) -> str | None:
    faults, tokens = evidence.major_faults, evidence.n_output
    if faults is None or not tokens or faults < max(_LEAST_FAULTS, _FAULTS_PER_TOKEN * tokens):
        return None
    return f"{count(faults)} major page faults for {count(tokens)} tokens: memory is too small"
