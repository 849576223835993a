"""Experts of a mixture in system memory: layers count as placed, their largest tensors are not."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome


def judge(evidence: Evidence) -> Outcome:
    """The placement by tensor name, where a device is there."""
    if evidence.is_moe is False:
        return Cleared(reason="the model has no experts", inputs=evidence.known("architecture_is_moe"))
    if evidence.experts_on_cpu is None:
        return Abstained(missing=("experts_on_cpu",))
    inputs = evidence.known("experts_on_cpu", "n_experts", "n_experts_used", "n_ubatch", "gpu_present")
    if not evidence.experts_on_cpu:
        return Cleared(reason="the experts are not held back on the CPU", inputs=inputs)
    if evidence.has_gpu is not True:
        return Cleared(reason="no GPU is known that could hold them", inputs=inputs)
    return Finding(
        verdict="offload-bound",
        confidence=0.9,
        reason="the experts lie in system memory; decode reads them at its speed, and a prompt moves them to"
        " the device once for each micro-batch",
        inputs=inputs,
    )
