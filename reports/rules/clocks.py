"""A clock held down by power, heat or firmware."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.rules.physics import ceiling_share
from reports.text import clean
from reports.units import percent

_LOW = 0.6
"""Of the highest clock. All-core and sustained clocks are 70 to 90 % of the single-core boost that is stated
as the highest."""
_CRAWL_HZ = 0.9e9
"""No core of a PC or server runs under load at less, whatever its highest clock: idle states are 0.4 to 0.8
GHz."""
_AT_CEILING = 0.6
_GHZ = 1e9


def judge(evidence: Evidence) -> Outcome:
    """The CPU's clock where the CPU works, the GPU's where the GPU does, and the driver's own word."""
    inputs = evidence.known(
        "cpu_clock_hz",
        "cpu_clock_max_hz",
        "gpu_clock_hz",
        "gpu_clock_max_hz",
        "throttled",
        "throttle_reasons",
    )
    if evidence.cpu_clock_hz is None and evidence.gpu_clock_hz is None and evidence.throttled is None:
        return Abstained(missing=("cpu_clock_hz", "gpu_clock_hz", "throttled"))
    share = ceiling_share(evidence)
    if share is not None and share >= _AT_CEILING:
        return Cleared(
            reason=f"decode reaches {percent(share)} of the memory's bandwidth all the same", inputs=inputs
        )
    for finding in (_cpu(evidence, inputs), _gpu(evidence, inputs), _reported(evidence, inputs)):
        if finding:
            return finding
    return Cleared(reason="clocks are where they belong under load", inputs=inputs)


def _cpu(evidence: Evidence, inputs: dict[str, object]) -> Finding | None:
    clock, highest = evidence.cpu_clock_hz, evidence.cpu_clock_max_hz
    if not clock or evidence.host_works is False:
        return None
    if highest and clock < _LOW * highest:
        return _finding("CPU", clock, highest, 0.85 if evidence.host_works else 0.7, inputs)
    if clock < _CRAWL_HZ and not highest:
        return _finding("CPU", clock, None, 0.75, inputs)
    return None


def _gpu(evidence: Evidence, inputs: dict[str, object]) -> Finding | None:
    """A GPU that waits for the CPU lowers its clock by itself, so a low one counts only where it works."""
    clock, highest = evidence.gpu_clock_hz, evidence.gpu_clock_max_hz
    if not clock or not highest or clock >= _LOW * highest or evidence.host_works:
        return None
    return _finding("GPU", clock, highest, 0.75, inputs)


def _reported(evidence: Evidence, inputs: dict[str, object]) -> Finding | None:
    if not evidence.throttled:
        return None
    named = ", ".join(clean(reason, limit=40) for reason in evidence.throttle_reasons or ())
    return Finding(
        verdict="contended",
        confidence=0.72,
        reason=f"the driver reports that power or heat holds the clock down{f' ({named})' if named else ''}",
        inputs=inputs,
    )


def _finding(
    what: str, clock: float, highest: float | None, confidence: float, inputs: dict[str, object]
) -> Finding:
    of = f" of {highest / _GHZ:.2f} GHz" if highest else ""
    ratio = clock / highest if highest else clock / _CRAWL_HZ
    return Finding(
        verdict="contended",
        confidence=confidence,
        reason=f"the {what} runs at {clock / _GHZ:.2f} GHz{of} under load",
        inputs=inputs,
        saves_share=1 - ratio,
        margin=1 - ratio / (_LOW if highest else 1.0),
    )
