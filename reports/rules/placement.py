"""Layers in system memory though a device is there: read from the engine's placement, not from the
setting."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.units import percent, size

WORTH = 0.1
"""Share of the wait that another placement must save: rates measured on their own and those of a whole model
differ by as much."""
_ON_DEVICE = 0.75
"""Of the bytes a token reads (of all weights, in a mixture of experts), what the device must hold to call
a model resident. With all layers placed the host still keeps the embedding table, of which a token reads a
row."""


def judge(evidence: Evidence) -> Outcome:
    """Placed layers against layers + 1, then weight bytes by device."""
    names = ("layers_on_gpu", "layers_total", "weights_on_cpu_bytes", "weights_on_gpu_bytes")
    inputs = evidence.known(*names, "n_gpu_layers_requested", "bytes_per_token", "unified_memory")
    if evidence.has_gpu is False and not evidence.remote_devices:
        return Cleared(reason="there is no GPU", inputs=evidence.known("gpu_present"))
    placed, total = evidence.layers_on_gpu, evidence.layers_total
    saved = evidence.fitting_layers_save
    if saved is not None and saved < WORTH:
        return Cleared(
            reason=f"by the measured rates of host and device, {_more(evidence)} would save"
            f" {percent(max(saved, 0.0))} of the wait",
            inputs=inputs | evidence.known("fitting_layers", "fitting_layers_step_s"),
        )
    if placed == 0 and not evidence.remote_devices:
        return Cleared(reason="nothing is on a device, which is another question", inputs=inputs)
    if placed is not None and total is not None and placed < total:
        return Finding(
            verdict="offload-bound",
            confidence=0.8 if evidence.shares_memory else 0.92,
            reason=f"{total - placed} of {total} layers are computed by the CPU"
            f"{_asked(evidence)}{_bytes(evidence)}{_time(evidence)}",
            inputs=inputs | evidence.known("host_layers_share"),
            margin=(total - placed) / total,
            saves_share=saved,
        )
    on_device, on_host = evidence.weights_on_gpu_bytes, evidence.weights_on_cpu_bytes
    needed = evidence.model_bytes if evidence.is_moe else evidence.read_bytes
    if needed is None and on_device is not None and on_host is not None:
        needed = on_device + on_host
    if on_device is None or needed is None:
        if placed is not None and total is not None:
            return Cleared(reason=f"all {total} layers are on devices", inputs=inputs)
        return Abstained(missing=evidence.missing(*names))
    if on_device == 0 or on_device >= _ON_DEVICE * needed:
        return Cleared(
            reason=f"devices hold {percent(min(1.0, on_device / needed))} of the weights", inputs=inputs
        )
    return Finding(
        verdict="offload-bound",
        confidence=0.85,
        reason=f"devices hold {size(on_device)} of the {size(needed)} of weights{_bytes(evidence)}",
        inputs=inputs,
        margin=1 - on_device / (_ON_DEVICE * needed),
    )


def _more(evidence: Evidence) -> str:
    fitting, total = evidence.fitting_layers, evidence.layers_total
    return "all layers on the device" if fitting == total else f"the {fitting} layers that fit there"


def _asked(evidence: Evidence) -> str:
    """Says so where the setting promised more than was placed."""
    asked, placed = evidence.n_gpu_layers_requested, evidence.layers_on_gpu
    if asked is None or placed is None or 0 <= asked <= placed:
        return ""
    return f" though {'all' if asked < 0 else asked} were asked onto the device"


def _time(evidence: Evidence) -> str:
    share = evidence.host_layers_share
    return "" if share is None else f", and take {percent(share)} of the time of each token"


def _bytes(evidence: Evidence) -> str:
    return (
        f", {size(evidence.weights_on_cpu_bytes)} in system memory" if evidence.weights_on_cpu_bytes else ""
    )
