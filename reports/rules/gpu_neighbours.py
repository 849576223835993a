"""Other work keeps the GPU busy: a game, a desktop's effects, another model."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.units import percent

_BUSY = 0.15
"""Utilization before the run from which on others take a share worth naming; a desktop at rest stays below a
tenth."""


def judge(evidence: Evidence) -> Outcome:
    """How busy the GPU was before the model was on it."""
    busy = evidence.gpu_foreign_utilization
    inputs = evidence.known("gpu_foreign_utilization", "gpu_foreign_processes", "layers_on_gpu", "gpu_name")
    if evidence.has_gpu is False or evidence.layers_on_gpu == 0:
        return Cleared(reason="the GPU has no part in it", inputs=inputs)
    if busy is None:
        return Abstained(missing=("gpu_foreign_utilization",))
    if busy < _BUSY:
        return Cleared(reason=f"the GPU was busy {percent(busy)} of the time before the run", inputs=inputs)
    others = evidence.gpu_foreign_processes
    who = f" ({others} other process{'' if others == 1 else 'es'} compute on it)" if others else ""
    return Finding(
        verdict="contended",
        confidence=0.7,
        reason=f"other work kept the GPU busy {percent(busy)} of the time before the run{who}",
        inputs=inputs,
        saves_share=busy,
        margin=busy / _BUSY - 1,
    )
