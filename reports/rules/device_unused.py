"""A GPU is there and nothing is on it: a build without it, a missing setting, a container without the
device."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.units import percent

_IDLE = 0.1
"""Utilization below which a GPU does no part of the work worth naming: a desktop's drawing reaches this."""
_WAITING = 0.4
"""Utilization, times the devices that take turns, below which a GPU mostly waits for the CPU: decode on the
device alone keeps it busy nine tenths of the time."""


def judge(evidence: Evidence) -> Outcome:
    """The engine's own placement, its backend, then how busy the GPU was."""
    names = ("gpu_present", "backend", "layers_on_gpu", "n_gpu_layers_requested", "gpu_utilization")
    inputs = evidence.known(*names, "build_lacks_device", "gpu_name", "weights_on_gpu_bytes")
    if evidence.has_gpu is None:
        return Abstained(missing=("gpu_present",))
    if not evidence.has_gpu:
        return Cleared(reason="there is no GPU", inputs=inputs)
    reason, confidence = _nothing_on_it(evidence)
    if reason:
        return Finding(verdict="offload-bound", confidence=confidence, reason=reason, inputs=inputs)
    if evidence.layers_on_gpu or evidence.weights_on_gpu_bytes:
        return Cleared(reason="the engine placed weights on a device", inputs=inputs)
    if evidence.gpu_utilization is None:
        return Abstained(missing=evidence.missing("layers_on_gpu", "gpu_utilization"))
    return Cleared(reason=f"the GPU was busy {percent(evidence.gpu_utilization)} of the time", inputs=inputs)


def _nothing_on_it(evidence: Evidence) -> tuple[str, float]:
    """Why nothing runs on the GPU and how sure that is; no words where something does."""
    if evidence.build_lacks_device:
        return "the installed engine does not see the machine's GPU", 0.92
    if evidence.layers_on_gpu == 0:
        return "a GPU is there and no layer is on it", 0.92
    if evidence.layers_on_gpu is None and evidence.uses_gpu_backend is False:
        return "a GPU is there and the engine computes on the CPU", 0.7 if evidence.shares_memory else 0.85
    if evidence.layers_on_gpu is None and evidence.n_gpu_layers_requested == 0:
        return "a GPU is there and no layer was asked onto it", 0.85
    busy = evidence.gpu_utilization
    if busy is None or evidence.decode_step_s is None:
        return "", 0.0
    if busy < _IDLE and (evidence.n_gpus or 1) == 1 and not evidence.fully_on_gpu:
        return f"the GPU was busy {percent(busy)} of the time while tokens were made", 0.8
    if busy < _WAITING / (evidence.n_gpus or 1) and not evidence.fully_on_gpu:
        return f"the GPU was busy only {percent(busy)} of the time while tokens were made", 0.62
    return "", 0.0
