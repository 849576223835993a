"""Several devices for a model that one could hold: they take turns, and each hand-over costs."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.rules.physics import device_step_s
from reports.units import duration, percent, size

_FITS = 0.85
"""Of one device's memory, what weights may take beside the cache."""
_SLOW = 1.5
"""Times the step that one device would need at half of its bandwidth."""
_FAR_UNDER = 0.6
"""n devices that take turns are each busy 1/n of the time; well below that they wait for one another."""


def judge(evidence: Evidence) -> Outcome:
    """Size against one device, then how long a step takes or how idle the devices are."""
    n_gpus, model = evidence.n_gpus, evidence.model_bytes
    inputs = evidence.known(
        "n_gpus", "remote_devices", "model_bytes", "gpu_memory_bytes", "gpu_utilization", "decode_tok_s"
    )
    n_devices = (n_gpus or 0) + (evidence.remote_devices or 0)
    if n_gpus is None and evidence.remote_devices is None:
        return Abstained(missing=("n_gpus",))
    if n_devices < 2:
        return Cleared(reason="one device at most is in use", inputs=inputs)
    if model is None or evidence.gpu_memory_bytes is None:
        return Abstained(missing=evidence.missing("model_bytes", "gpu_memory_bytes"))
    each = evidence.gpu_memory_bytes / (n_gpus or 1)
    if model > _FITS * each:
        return Cleared(reason=f"{size(model)} do not fit on one device of {size(each)}", inputs=inputs)
    busy, step, expected = evidence.gpu_utilization, evidence.decode_step_s, device_step_s(evidence)
    is_idle = busy is not None and busy < _FAR_UNDER / n_devices
    is_slow = step is not None and expected is not None and step > _SLOW * expected
    if not (is_idle or is_slow):
        return Cleared(reason="the devices together are not slower than one", inputs=inputs)
    what = f"each is busy {percent(busy)} of the time" if is_idle else f"a token takes {duration(step)}"
    return Finding(
        verdict="unknown",
        confidence=0.6,
        reason=f"the model fits on one device, yet is spread over {n_devices}, and {what}",
        inputs=inputs,
        advice="keep the model on one device (llama.cpp: --split-mode none)",
    )
