"""Where a series of measurements changed its level, and whether that is more than noise.

Two questions. At a place known beforehand (the engine was updated): the rank-sum test, exact for few values
(Wilcoxon, Biometrics Bulletin 1, 1945; Mann & Whitney, Annals of Mathematical Statistics 18, 1947). At a
place that the data name: Pettitt's test (Applied Statistics 28, 1979), and then both sides again. Both take
ranks alone, so a single wild run makes no drift.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence

MIN_CHANGE = 0.03
"""Smaller changes are not named, however certain: runs on one machine differ so much from day to day."""
KNOWN_PLACE_P = 0.05
FOUND_PLACE_P = 0.01
"""Stricter, for it is asked at every place and again on both sides."""
KNOWN_FROM, FOUND_FROM = 8, 16
"""Values needed before either test can be sure: with fewer, not even a perfect step has so small a p."""
_WINDOW = 10
"""Values on each side of a known place that are compared."""
_LEAST = 3
"""Values that a level needs."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A change of level."""

    position: int
    """Index of the first value of the new level."""
    before: float
    """Median of the level before."""
    after: float

    @property
    def change(self) -> float:
        """After over before, minus one."""
        return self.after / self.before - 1


def find_shifts(values: Sequence[float], places: Sequence[int] = ()) -> tuple[Shift, ...]:
    """Changes of level in `values` (above zero, in order of time), in order.

    `places`: indices at which something is known to have changed.
    """
    positions = set(_found(values, 0, len(values)))
    for place in places:
        if not any(abs(place - other) < _LEAST for other in positions):
            low = max((other for other in positions if other <= place), default=0)
            high = min((other for other in positions if other > place), default=len(values))
            before, after = (
                values[max(low, place - _WINDOW) : place],
                values[place : min(high, place + _WINDOW)],
            )
            if min(len(before), len(after)) >= _LEAST and rank_sum_p(before, after) <= KNOWN_PLACE_P:
                positions.add(place)
    return _large_enough(values, _at_places(positions, places))


def _at_places(positions: set[int], places: Sequence[int]) -> list[int]:
    """A found position next to a known place is that place: one odd run moves it by one or two."""
    return sorted({min((p for p in places if abs(p - at) < _LEAST), default=at) for at in positions})


def _large_enough(values: Sequence[float], positions: Sequence[int]) -> tuple[Shift, ...]:
    """The shifts that are worth a word; levels that do not differ enough are taken together."""
    kept = list(positions)
    while kept:
        edges = [0, *kept, len(values)]
        levels = [statistics.median(values[a:b]) for a, b in itertools.pairwise(edges)]
        shifts = [
            Shift(position=at, before=before, after=after)
            for at, (before, after) in zip(kept, itertools.pairwise(levels), strict=True)
        ]
        small = [shift for shift in shifts if abs(shift.change) < MIN_CHANGE]
        if not small:
            return tuple(shifts)
        kept.remove(min(small, key=lambda shift: abs(shift.change)).position)
    return ()


def _found(values: Sequence[float], start: int, end: int) -> list[int]:
    """Positions of the changes between `start` and `end`."""
    part = values[start:end]
    if len(part) < 2 * _LEAST:
        return []
    size, largest = pettitt(part)
    if _pettitt_p(largest, len(part)) > FOUND_PLACE_P:
        return []
    at = start + size
    return [*_found(values, start, at), at, *_found(values, at, end)]


def pettitt(values: Sequence[float]) -> tuple[int, float]:
    """The size of the first part for which |U| is largest, and that |U|; both parts have at least three
    values.

    U_t = 2 (r_1 + ... + r_t) - t (n + 1), with the ranks r of all values.
    """
    n = len(values)
    sums = itertools.accumulate(_ranks(values))
    u = [abs(2 * total - t * (n + 1)) for t, total in enumerate(sums, start=1)]
    best = max(range(_LEAST, n - _LEAST + 1), key=lambda t: u[t - 1])
    return best, u[best - 1]


def _pettitt_p(largest: float, n: int) -> float:
    return min(1.0, 2 * math.exp(-6 * largest**2 / (n**3 + n**2)))


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    begin = 0
    for _, tied in itertools.groupby(order, key=values.__getitem__):
        members = list(tied)
        for index in members:
            ranks[index] = begin + (len(members) + 1) / 2
        begin += len(members)
    return ranks


def rank_sum_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p: how often a random split of all values is at least as one-sided as this one.

    Exact, over all splits; equal values count with their mean rank. For up to about twenty values.
    """
    ranks = [round(2 * rank) for rank in _ranks([*first, *second])]  # doubled: whole numbers
    n, total = len(first), sum(ranks)
    ways: list[dict[int, int]] = [{0: 1}, *({} for _ in range(n))]
    for rank in ranks:
        for size in range(n, 0, -1):
            for reached, count in ways[size - 1].items():
                ways[size][reached + rank] = ways[size].get(reached + rank, 0) + count
    centre = n * total / len(ranks)
    distance = abs(sum(ranks[:n]) - centre)
    extreme = sum(count for reached, count in ways[n].items() if abs(reached - centre) >= distance - 1e-9)
    return extreme / math.comb(len(ranks), n)
