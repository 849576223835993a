"""Other processes, or other guests of the same host, take CPU that the run needs."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.text import clean
from reports.units import percent

_LOST = 0.15
"""Share of the wanted CPUs that others must take before they, and not the model, are the answer. Background
work of an idle desktop is a few per cent of a CPU."""


def judge(evidence: Evidence) -> Outcome:
    """CPUs that are left, against threads; stolen time counts as taken from each of them."""
    foreign, steal = evidence.foreign_cpu, evidence.steal_fraction
    if foreign is None and steal is None:
        return Abstained(missing=("foreign_cpu", "steal_fraction"))
    inputs = evidence.known(
        "foreign_cpu",
        "steal_fraction",
        "threads",
        "usable_cpus",
        "logical_cpus",
        "layers_on_gpu",
        "layers_total",
    )
    if evidence.host_works is False:
        return Cleared(reason="the device does the work, other processes hardly matter", inputs=inputs)
    taken = _taken(evidence)
    if taken is None:
        return Abstained(missing=evidence.missing("threads", "logical_cpus", "usable_cpus"))
    lost = 1 - (1 - taken) * (1 - (steal or 0.0))
    if lost < _LOST:
        return Cleared(reason=f"others took {percent(lost)} of the CPUs it wanted", inputs=inputs)
    return Finding(
        verdict="contended",
        confidence=0.8 if evidence.host_works else 0.6,
        reason=_reason(evidence, lost, taken),
        inputs=inputs,
        saves_share=lost,
        margin=lost / _LOST - 1,
    )


def _taken(evidence: Evidence) -> float | None:
    """Share of the wanted CPUs that other processes held. None where it is unknown how many there are."""
    if not evidence.foreign_cpu:
        return 0.0
    cpus = evidence.logical_cpus or evidence.usable_cpus
    wanted = min(evidence.threads or cpus or 0, evidence.usable_cpus or cpus or 0)
    if not cpus or not wanted:
        return None
    return max(0.0, min(1.0, (wanted - (cpus - evidence.foreign_cpu)) / wanted))


def _reason(evidence: Evidence, lost: float, taken: float) -> str:
    if taken <= 0:
        return f"the hypervisor gave {percent(evidence.steal_fraction)} of the CPU time to other guests"
    named = [f"{clean(n.name, limit=40)} {n.cpus:.1f} CPUs" for n in evidence.neighbours[:3]]
    who = f" ({', '.join(named)})" if named else ""
    return f"other processes{who} take {percent(lost)} of the CPU that it wants"
