"""Several devices for a model that one could hold: they take turns, and each hand-over costs."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules import network
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
    n_gpus, remote = evidence.n_gpus, evidence.remote_devices
    inputs = evidence.known(
        "n_gpus",
        "remote_devices",
        "model_bytes",
        "gpu_memory_bytes",
        "gpu_utilization",
        "decode_tok_s",
        "network_step_s",
    )
    if n_gpus is None and remote is None:
        return Abstained(missing=("n_gpus",))
    n_devices = (n_gpus or 0) + (remote or 0)
    if n_devices < 2 and not remote:
        return Cleared(reason="one device at most is in use", inputs=inputs)
    if remote:
        return _over_network(evidence, remote, inputs)
    if evidence.model_bytes is None or evidence.gpu_memory_bytes is None:
        return Abstained(missing=evidence.missing("model_bytes", "gpu_memory_bytes"))
    each = evidence.gpu_memory_bytes / (n_gpus or 1)
    if evidence.model_bytes > _FITS * each:
        reason = f"{size(evidence.model_bytes)} do not fit on one device of {size(each)}"
        return Cleared(reason=reason, inputs=inputs)
    seen = _slower_than_one(evidence, n_devices)
    if not seen:
        return Cleared(reason="the devices together are not slower than one", inputs=inputs)
    return Finding(
        verdict="unknown",
        confidence=0.6,
        reason=f"the model fits on one device, yet is spread over {n_devices}, and {seen}",
        inputs=inputs,
        advice="keep the model on one device (llama.cpp: --split-mode none)",
    )


def _over_network(evidence: Evidence, remote: int, inputs: dict[str, object]) -> Outcome:
    """Each token crosses the network once or more for each device beyond it."""
    step, expected = evidence.decode_step_s, device_step_s(evidence)
    if step is None:
        return Abstained(missing=("decode_tok_s",))
    if expected is not None and step <= _SLOW * expected:
        return Cleared(reason="a token takes no longer than on one device", inputs=inputs)
    if evidence.network_share is not None and not network.weighs(evidence):
        return Cleared(reason=network.cost_clause(evidence), inputs=inputs)
    cost = f", and {network.cost_clause(evidence)}" if network.weighs(evidence) else ""
    return Finding(
        verdict="unknown",
        confidence=0.5,
        reason=f"each token of {duration(step)} crosses the network to {remote} remote"
        f" {'device' if remote == 1 else 'devices'}{cost}",
        inputs=inputs,
        advice="give remote devices only what no local one has room for, over the fastest link there is",
    )


def _slower_than_one(evidence: Evidence, n_devices: int) -> str | None:
    busy, step, expected = evidence.gpu_utilization, evidence.decode_step_s, device_step_s(evidence)
    if busy is not None and busy < _FAR_UNDER / n_devices:
        return f"each is busy {percent(busy)} of the time"
    if step is not None and expected is not None and step > _SLOW * expected:
        return f"a token takes {duration(step)}"
    return None
