"""The container's CPU quota stops the group again and again."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.units import percent

_THROTTLED = 0.1
"""Share of the quota's periods in which the group was stopped. Each time all threads wait for the next
period, so a tenth of the periods is the least that costs a tenth of the time."""


def judge(evidence: Evidence) -> Outcome:
    """Throttled periods, where the CPU does the work."""
    throttled = evidence.cpu_throttled_fraction
    if throttled is None:
        return Abstained(missing=("cpu_throttled_fraction",))
    inputs = evidence.known(
        "cpu_throttled_fraction", "threads", "usable_cpus", "layers_on_gpu", "layers_total"
    )
    if throttled < _THROTTLED:
        return Cleared(
            reason=f"the quota stopped the run in {percent(throttled)} of its periods", inputs=inputs
        )
    if evidence.host_works is False:
        return Cleared(reason="the device does the work, the CPU's quota hardly matters", inputs=inputs)
    return Finding(
        verdict="contended",
        confidence=0.92 if evidence.host_works else 0.75,
        reason=f"the CPU quota stopped the run in {percent(throttled)} of its periods",
        inputs=inputs,
        saves_share=throttled,
        margin=throttled / _THROTTLED - 1,
    )
