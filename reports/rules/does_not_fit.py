"""More weights than device memory: the rest must be in system memory, whatever the setting says."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.rules.physics import device_step_s
from reports.units import size

_BESIDE_WEIGHTS = 0.03
"""Of device memory, what context, compute buffers and the driver take at the very least."""


def judge(evidence: Evidence) -> Outcome:
    """The model's size against the memory of all devices together."""
    needed, memory = evidence.model_bytes, evidence.gpu_memory_bytes
    inputs = evidence.known("model_bytes", "gpu_memory_bytes", "n_gpus", "unified_memory", "decode_tok_s")
    if evidence.has_gpu is False or evidence.shares_memory:
        return Cleared(reason="there is no separate device memory", inputs=inputs)
    if evidence.remote_devices:
        return Cleared(reason="devices elsewhere hold a part", inputs=evidence.known("remote_devices"))
    if evidence.fully_on_gpu:
        return Cleared(reason="the engine placed every layer on devices", inputs=inputs)
    if needed is None or memory is None or evidence.has_gpu is None:
        return Abstained(missing=evidence.missing("model_bytes", "gpu_memory_bytes", "gpu_present"))
    room = (1 - _BESIDE_WEIGHTS) * memory
    if needed <= room:
        return Cleared(reason=f"{size(needed)} of weights fit in {size(memory)}", inputs=inputs)
    step, expected = evidence.decode_step_s, device_step_s(evidence)
    is_slow = step is not None and expected is not None and step > expected
    return Finding(
        verdict="offload-bound",
        confidence=0.9 if is_slow or needed > memory else 0.7,
        reason=f"{size(needed)} of weights do not fit in {size(memory)} of device memory",
        inputs=inputs,
        margin=needed / room - 1,
    )
