"""What GPUs did during a run, as facts of `Evidence`: of those that hold weights, while the phases ran."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from probes.records import Disturbance, GpuState, GroupResult, Run
from reports.local_gpus import pair_gpus

_OTHER_PHASES = ("load", "beside")
"""In these the GPU rests for reasons of its own."""
_WORKING = 0.1
"""Utilization from which on a GPU's clock is that of work; an idle one lowers it by itself."""
_BREAKS = frozenset({"hardware", "hardware-thermal", "thermal", "power-brake", "reliability"})
_CAPPED = 0.7
"""Of the highest clock: any large GPU meets its power limit in long matrix products and gives a tenth to a
fifth of its clock for it, which is how it was made."""
_MOSTLY = 0.5
"""Share of the samples in which a clock must be held down for the run to have been."""


def gpu_evidence(run: Run, group: GroupResult) -> dict[str, Any]:
    """Facts about the GPUs that the group's weights are on; empty where no driver tells or none is used.

    Clocks are medians of the GPU furthest below its highest clock, utilization a mean over samples and GPUs,
    used memory the peak of all together; shared memory is what it grew by beyond the buffers that the engine
    placed there itself.
    """
    used = _used_gpus(run, group)
    samples = [
        tuple(state for state in sample.gpus if state.index in used)
        for sample in run.disturbances
        if sample.phase not in _OTHER_PHASES
    ]
    states = [state for sample in samples for state in sample]
    before = [state for state in run.machine.gpu_states if state.index in used]
    facts = {
        "gpu_foreign_utilization": _mean(state.utilization for state in before),
        "gpu_foreign_processes": max(_sums(samples, "foreign_processes"), default=None),
    }
    if not states:
        return facts
    working = [state for state in states if state.utilization is None or state.utilization >= _WORKING]
    return (
        facts
        | _clocks(working)
        | _held_down(working)
        | {
            "gpu_utilization": _mean(state.utilization for state in states),
            "gpu_memory_utilization": _memory_utilization(run, states),
            "gpu_memory_used_bytes": max(_sums(samples, "memory_used_bytes"), default=None),
            "gpu_shared_memory_bytes": _spilled(group, run.disturbances, before, used),
        }
    )


def _used_gpus(run: Run, group: GroupResult) -> frozenset[int]:
    if group.resolved is None or run.engine is None:
        return frozenset()
    holding = {place.buffer for place in group.resolved.placements if place.model_bytes}
    pairs = pair_gpus(run.engine.devices, run.machine.gpus)
    return frozenset(
        gpu.index for name, gpu in pairs.items() if any(_is_of(buffer, name) for buffer in holding)
    )


def _is_of(buffer: str, device: str) -> bool:
    """`CUDA0`, or a layout of it such as `CUDA0_Split`; not `CUDA10`."""
    rest = buffer.removeprefix(device)
    return rest != buffer and not rest[:1].isdigit() and not rest.endswith("Host")


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _sums(samples: Sequence[tuple[GpuState, ...]], field: str) -> list[int]:
    """Of each sample all GPUs together; a sample in which one of them is silent is left out."""
    rows = [[getattr(state, field) for state in sample] for sample in samples if sample]
    return [sum(row) for row in rows if None not in row]


def _clocks(working: Sequence[GpuState]) -> dict[str, Any]:
    found = []
    for index in {state.index for state in working}:
        own = [state for state in working if state.index == index]
        clocks = [state.clock_hz for state in own if state.clock_hz]
        highest = max((state.clock_max_hz or 0.0 for state in own), default=0.0)
        if clocks:
            clock = statistics.median(clocks)
            found.append((clock / highest if highest else 1.0, clock, highest or None))
    if not found:
        return {}
    _, clock, highest_hz = min(found, key=lambda row: row[0])
    return {"gpu_clock_hz": clock, "gpu_clock_max_hz": highest_hz}


def _held_down(working: Sequence[GpuState]) -> dict[str, Any]:
    told = [state for state in working if state.throttle_reasons is not None]
    if not told:
        return {}
    reasons = [_reasons(state) for state in told]
    throttled = sum(map(bool, reasons)) >= _MOSTLY * len(told)
    named = sorted({reason for row in reasons for reason in row})
    return {"throttled": throttled, "throttle_reasons": tuple(named) if throttled else None}


def _reasons(state: GpuState) -> list[str]:
    """Those that count."""
    low = bool(state.clock_hz and state.clock_max_hz and state.clock_hz < _CAPPED * state.clock_max_hz)
    return [
        reason
        for reason in state.throttle_reasons or ()
        if reason in _BREAKS or (reason == "power-cap" and low)
    ]


def _memory_utilization(run: Run, states: Sequence[GpuState]) -> float | None:
    """Only beside ceilings, which tell whether this model can keep the memory busy at all: a small one on a
    large GPU can not."""
    return _mean(state.memory_utilization for state in states) if run.ceilings else None


def _spilled(
    group: GroupResult, samples: Sequence[Disturbance], before: Sequence[GpuState], used: frozenset[int]
) -> int | None:
    earlier = _sums([tuple(before)], "shared_memory_bytes")
    peaks = _sums(
        [tuple(state for state in sample.gpus if state.index in used) for sample in samples],
        "shared_memory_bytes",
    )
    if not earlier or not peaks or group.resolved is None:
        return None
    placed = sum(
        place.model_bytes + place.kv_bytes + place.compute_bytes + place.output_bytes
        for place in group.resolved.placements
        if place.buffer.endswith("Host")
    )
    return max(0, max(peaks) - earlier[0] - placed)
