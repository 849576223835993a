"""Which passes ran while the machine was busy with something else.

Disturbances are known by intervals of about a second, passes may be longer or shorter: a pass is judged
once intervals cover it, by the parts of them that fall into it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from probes.records import Disturbance

Judge = Callable[[Sequence[Disturbance]], tuple[str, ...]]
"""From what happened during a pass to codes of what disturbed it."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Pass:
    number: int
    began_ns: int
    ended_ns: int


class DisturbedPasses:
    """Passes and intervals come in by time, judgements go out."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._intervals: list[Disturbance] = []
        self._waiting: list[_Pass] = []

    @property
    def is_waiting(self) -> bool:
        """Whether a pass has ended that no interval covers yet."""
        return bool(self._waiting)

    def ended(self, number: int, began_ns: int, ended_ns: int) -> None:
        """A pass is over; times on the clock of the intervals."""
        self._waiting.append(_Pass(number, began_ns, ended_ns))

    def take(self, interval: Disturbance) -> Iterator[tuple[int, tuple[str, ...]]]:
        """The numbers of the passes that can be judged now, with what disturbed them."""
        self._intervals.append(interval)
        known_ns = interval.started_ns + interval.duration_ns
        ready = [one for one in self._waiting if one.ended_ns <= known_ns]
        self._waiting = [one for one in self._waiting if one.ended_ns > known_ns]
        for one in ready:
            yield one.number, self._judge(_within(self._intervals, one.began_ns, one.ended_ns))

    def forget(self) -> None:
        """The samples have been given up."""
        self._intervals, self._waiting = [], []


def _within(intervals: Sequence[Disturbance], began_ns: int, ended_ns: int) -> list[Disturbance]:
    """The parts of the intervals that fall between two moments; counts stay those of the whole interval."""
    parts = []
    for one in intervals:
        start_ns = max(began_ns, one.started_ns)
        end_ns = min(ended_ns, one.started_ns + one.duration_ns)
        if end_ns > start_ns:
            parts.append(dataclasses.replace(one, started_ns=start_ns, duration_ns=end_ns - start_ns))
    return parts
