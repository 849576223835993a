"""Memory smaller than the working set: weights come from disk again for each token."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.rules.physics import DISK_BYTES_S, host_rate_bytes_s
from reports.units import percent, size

_USABLE_SHARE = 0.9
"""Of system memory; the rest holds the system itself, the KV cache and compute buffers."""
_SHARED_USABLE = 0.67
"""The same where the GPU shares the memory: Metal grants it two thirds by default (three quarters of large
memories), and the system swaps beyond."""
_SURE_SHARE = 1.0
_HALF = 0.5
"""A mapped file that does not fit by this much keeps nothing useful in memory between two tokens."""


def judge(evidence: Evidence) -> Outcome:
    """Weights that must lie in system memory against its size, and whether decode is as slow as a disk."""
    needed, memory, rate = evidence.host_weights_bytes, evidence.memory_bytes, host_rate_bytes_s(evidence)
    if needed is None or not memory:
        names = ("model_bytes", "memory_bytes", "weights_on_cpu_bytes", "gpu_memory_bytes")
        return Abstained(missing=evidence.missing(*names) or ("memory_bytes",))
    share = needed / memory
    inputs = evidence.known(
        "model_bytes",
        "weights_on_cpu_bytes",
        "memory_bytes",
        "decode_tok_s",
        "load_mode",
        "disk_read_bytes_s",
    )
    usable = _SHARED_USABLE if evidence.has_gpu and evidence.shares_memory else _USABLE_SHARE
    if share < usable:
        return Cleared(reason=f"weights take {percent(share)} of system memory", inputs=inputs)
    if rate is not None and rate > DISK_BYTES_S:
        return Cleared(reason=f"decode reads {size(rate)}/s, faster than a disk", inputs=inputs)
    if rate is None and share < _SURE_SHARE:
        return Abstained(missing=("decode_tok_s",))
    return Finding(
        verdict="contended",
        confidence=_confidence(share, rate, evidence.disk_read_bytes_s),
        reason=f"{size(needed)} of weights have to fit in {size(memory)} of system memory, so they are read"
        " from disk again while tokens are made",
        inputs=inputs,
        saves_share=_HALF,
        margin=share / usable - 1,
    )


def _confidence(share: float, rate: float | None, disk_rate: float | None) -> float:
    if disk_rate:
        return 0.92
    if rate is None:
        return 0.6
    return 0.85 if share >= _SURE_SHARE else 0.7
