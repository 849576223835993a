"""The driver moved part of the device's memory into system memory without a word."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.units import percent, size

_SPILLED_BYTES = 512 * 2**20
"""Drivers lend a few hundred MiB of system memory for buffers at any time."""
_SPILLED_SHARE = 0.03
_BUSY = 0.6
_MEMORY_IDLE = 0.1
"""Decode on the device keeps its memory busy more than half of the time; a device that is busy with idle
memory waits for the bus."""


def judge(evidence: Evidence) -> Outcome:
    """Shared memory in use, else a busy device whose memory rests. Used device memory tells nothing: it is
    full in both cases."""
    names = ("gpu_shared_memory_bytes", "gpu_utilization", "gpu_memory_utilization")
    inputs = evidence.known(*names, "model_bytes", "gpu_memory_bytes", "gpu_memory_used_bytes")
    if evidence.shares_memory or evidence.has_gpu is False:
        return Cleared(reason="there is no device memory to spill from", inputs=inputs)
    spilled = evidence.gpu_shared_memory_bytes
    busy, memory_busy = evidence.gpu_utilization, evidence.gpu_memory_utilization
    if spilled is None and (busy is None or memory_busy is None):
        return Abstained(missing=evidence.missing(*names))
    limit = max(_SPILLED_BYTES, _SPILLED_SHARE * (evidence.model_bytes or 0))
    if spilled is not None and spilled > limit:
        return Finding(
            verdict="offload-bound",
            confidence=0.9,
            reason=f"{size(spilled)} of device memory have spilled into system memory",
            inputs=inputs,
            margin=spilled / limit - 1,
        )
    expected = _expected_memory_share(evidence)
    if expected is not None and expected < 2 * _MEMORY_IDLE:
        return Cleared(reason="such a model hardly keeps the device's memory busy", inputs=inputs)
    if busy is not None and memory_busy is not None and busy >= _BUSY and memory_busy < _MEMORY_IDLE:
        return Finding(
            verdict="offload-bound",
            confidence=0.72,
            reason=f"the GPU is busy {percent(busy)} of the time and its memory {percent(memory_busy)}:"
            " it waits for data from elsewhere",
            inputs=inputs,
        )
    return Cleared(reason="nothing to speak of lies in shared memory", inputs=inputs)


def _expected_memory_share(evidence: Evidence) -> float | None:
    """Share of a step that reading the weights takes on the device itself; None without its ceiling."""
    reading_s, step_s = evidence.weights_read_s, evidence.decode_step_s
    return None if reading_s is None or step_s is None else reading_s / step_s
