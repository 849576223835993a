"""Decode far slower than device memory explains: what it reads must lie elsewhere."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.rules.physics import device_step_s, whole_memory_step_s
from reports.units import duration, percent

_SLOW = 3.0
"""Times the longest step that device memory explains. System memory is 5 to 20 times slower than a card's, so
a few per cent of the weights there make this difference."""
_VERY_SLOW = 8.0
_SLOW_WITHOUT_SIZE = 1 / 0.3
"""The same against reading all of the device's memory, which no model that fits in it needs."""
_ANY_CARD_STEP_S = 0.1
"""No discrete card takes longer to read all its memory: 24 ms (24 GB at 1008 GB/s) to 40 ms (80 GB at
2039)."""
_LIKELY_CARDS = 4
"""Cards that a machine is granted where their number is not known; they take turns."""


def judge(evidence: Evidence) -> Outcome:
    """The measured step against bytes over bandwidth, else against all of device memory over bandwidth, else
    against what the slowest discrete card needs."""
    step = evidence.decode_step_s
    names = ("decode_tok_s", "bytes_per_token", "gpu_bandwidth_bytes_s", "gpu_memory_bytes", "n_gpus")
    inputs = evidence.known(*names, "decode_s", "n_output", "unified_memory", "backend")
    if evidence.has_gpu is False:
        return Cleared(reason="there is no GPU", inputs=inputs)
    if evidence.remote_devices:
        return Cleared(reason="a network stands between the devices", inputs=evidence.known("remote_devices"))
    if step is None or evidence.has_gpu is None:
        return Abstained(missing=evidence.missing("decode_tok_s", "gpu_present"))
    expected = device_step_s(evidence)
    if expected is not None:
        return _against(
            step, expected, _SLOW, "reading its weights in device memory would take", inputs, evidence
        )
    whole = whole_memory_step_s(evidence)
    if whole is not None:
        text = "reading all of the device's memory would take"
        return _against(step, whole, _SLOW_WITHOUT_SIZE, text, inputs, evidence)
    if evidence.shares_memory or (evidence.unified_memory is None and not evidence.uses_gpu_backend):
        return Abstained(missing=evidence.missing(*names))
    limit = _ANY_CARD_STEP_S * (evidence.n_gpus or _LIKELY_CARDS)
    return _against(step, limit, 1.0, "reading all memory of a few slow cards would take", inputs, evidence)


def _against(
    step: float, expected: float, factor: float, text: str, inputs: dict[str, object], evidence: Evidence
) -> Outcome:
    if step <= factor * expected:
        return Cleared(reason=f"a token takes {duration(step)}, {text} {duration(expected)}", inputs=inputs)
    confidence = 0.76 if step > _VERY_SLOW * expected else 0.66
    if evidence.fully_on_gpu:
        # All is placed: the driver, or a slow second device, then holds what is read so slowly.
        confidence -= 0.06
    reached = ""
    if evidence.read_bytes and evidence.gpu_bandwidth_bytes_s:
        share = evidence.read_bytes / step / evidence.gpu_bandwidth_bytes_s
        reached = f" ({percent(share)} of the GPU's bandwidth)"
    return Finding(
        verdict="offload-bound",
        confidence=confidence,
        reason=f"a token takes {duration(step)}{reached}, where {text} {duration(expected)}",
        inputs=inputs,
        margin=step / (factor * expected) - 1,
    )
