"""Clocks held down and GPUs shared with others during a run, in words: what a reader must know of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from probes.records import GroupResult, Run
from reports import units
from reports.gpu_evidence import gpu_evidence
from reports.text import clean

LOW_CLOCK = 0.6
"""Of the highest clock: all cores together reach 70 to 90 % of the single-core boost."""
SHARED_GPU = 0.1
_GHZ = 1e9


def hardware_notices(run: Run, group: GroupResult) -> Iterator[tuple[str, str]]:
    """Stable code and text of each."""
    yield from _cpu_clock(run)
    found = gpu_evidence(run, group)
    if found.get("throttled"):
        reasons = ", ".join(clean(reason, limit=40) for reason in found.get("throttle_reasons") or ())
        text = f"The GPU's clock was held down most of the time ({reasons}): cool it, or raise its limit"
        yield "gpu-throttled", f"{text}, and repeat."
    busy = found.get("gpu_foreign_utilization")
    if busy is not None and busy > SHARED_GPU:
        text = f"The GPU was busy {units.percent(busy)} of the time before the run: close what else uses it"
        yield "gpu-shared", f"{text} and repeat."


def _cpu_clock(run: Run) -> Iterator[tuple[str, str]]:
    samples = [
        (d.cpu_clock_hz, d.cpu_clock_max_hz)
        for d in run.disturbances
        if d.phase != "load" and d.cpu_clock_hz and d.cpu_clock_max_hz
    ]
    if not samples:
        return
    clock = statistics.median(now for now, _ in samples)
    share = statistics.median(now / highest for now, highest in samples)
    if share < LOW_CLOCK:
        text = f"The CPU ran at {clock / _GHZ:.2f} GHz, {units.percent(share)} of its highest clock"
        yield "cpu-clock-low", f"{text}: see to cooling, mains power and the power plan, and repeat."
