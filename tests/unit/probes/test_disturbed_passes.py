"""Passes are judged by the parts of intervals that fall into them."""

from __future__ import annotations

from collections.abc import Sequence

import sample_runs as sample

from probes.disturbed_passes import DisturbedPasses
from probes.records import Disturbance

S = 10**9


class Judged:
    """Remembers what it was shown, in seconds, and says so."""

    def __init__(self) -> None:
        self.shown: list[list[tuple[float, float]]] = []

    def __call__(self, intervals: Sequence[Disturbance]) -> tuple[str, ...]:
        self.shown.append([(one.started_ns / S, one.duration_ns / S) for one in intervals])
        return ("seen",) if intervals else ()


def second(start: float, length: float = 1.0) -> Disturbance:
    return sample.quiet(started_ns=round(start * S), duration_ns=round(length * S))


def test_a_long_pass_gets_its_parts_of_all_intervals() -> None:
    judge = Judged()
    passes = DisturbedPasses(judge)
    assert list(passes.take(second(0))) == []
    assert list(passes.take(second(1))) == []
    passes.ended(0, round(0.75 * S), round(2.25 * S))
    assert passes.is_waiting
    assert list(passes.take(second(2))) == [(0, ("seen",))]
    assert judge.shown == [[(0.75, 0.25), (1.0, 1.0), (2.0, 0.25)]]
    assert not passes.is_waiting


def test_short_passes_wait_for_the_interval_that_covers_them() -> None:
    judge = Judged()
    passes = DisturbedPasses(judge)
    passes.ended(0, round(0.25 * S), round(0.5 * S))
    passes.ended(1, round(0.5 * S), round(0.75 * S))
    passes.ended(2, round(0.75 * S), round(1.25 * S))
    assert list(passes.take(second(0))) == [(0, ("seen",)), (1, ("seen",))]
    assert judge.shown == [[(0.25, 0.25)], [(0.5, 0.25)]]
    assert passes.is_waiting
    assert [number for number, _ in passes.take(second(1))] == [2]


def test_a_pass_that_nothing_covers_is_not_disturbed() -> None:
    passes = DisturbedPasses(Judged())
    passes.ended(0, 0, S)
    assert list(passes.take(second(5))) == [(0, ())]


def test_what_is_given_up_is_not_judged() -> None:
    passes = DisturbedPasses(Judged())
    passes.ended(0, 0, S // 2)
    passes.forget()
    assert list(passes.take(second(0))) == []
