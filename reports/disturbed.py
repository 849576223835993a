"""What counts as a disturbance of a measurement: one set of thresholds for single passes and whole runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from probes.records import CellResult, CellSample, Disturbance
from reports import stats

FOREIGN_CPUS = 0.1
"""CPUs' worth of time used by others, on average, from which on it is a disturbance."""
STOLEN_SHARE = 0.01
THROTTLED_SHARE = 0.01
SWAPPED_BYTES = 2**20


def mean(intervals: Sequence[Disturbance], value: Callable[[Disturbance], float | None]) -> float | None:
    """Mean weighed by duration, over the intervals of which the value is known; None without one."""
    known = [(one.duration_ns, found) for one in intervals if (found := value(one)) is not None]
    total = sum(duration for duration, _ in known)
    return sum(duration * found for duration, found in known) / total if total else None


def disturbing(intervals: Sequence[Disturbance]) -> tuple[str, ...]:
    """Codes of what disturbed during these intervals, named as the notices of a run are; what is not known is
    no disturbance."""
    found = {
        "foreign-cpu": (mean(intervals, lambda one: one.foreign_cpus) or 0.0) > FOREIGN_CPUS,
        "steal": (mean(intervals, lambda one: one.steal_fraction) or 0.0) > STOLEN_SHARE,
        "throttled": (mean(intervals, lambda one: one.throttled_fraction) or 0.0) > THROTTLED_SHARE,
        "swap-in": sum(one.swap_in_bytes or 0 for one in intervals) >= SWAPPED_BYTES,
    }
    return tuple(code for code, is_met in found.items() if is_met)


def quiet_samples(cell: CellResult) -> tuple[CellSample, ...]:
    """The samples of passes that nothing is known to have disturbed."""
    return tuple(sample for sample in cell.samples if not sample.disturbed)


def counted_samples(cell: CellResult) -> tuple[CellSample, ...]:
    """The samples that figures are made of: the quiet ones where those give an interval, else all."""
    quiet = quiet_samples(cell)
    return quiet if len(quiet) >= stats.MIN_COUNTED else cell.samples
