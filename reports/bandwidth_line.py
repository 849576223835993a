"""Seconds a token against bytes read a token: the line that memory draws, and who does not keep to it.

    seconds_per_token = a + bytes_per_token / bandwidth

`a` is what does not grow with the weights: the cache, attention, the cost of starting kernels. The line is
that of the largest set of points that lie on one together (a consensus over all lines through two points:
Fischler & Bolles, Communications of the ACM 24, 1981), so that a slow kernel does not bend it. It is fitted
by plain least squares on relative residuals, neither coefficient negative; intervals are those of linear
regression (Seber & Lee, Linear Regression Analysis, 2nd ed., section 3.4).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

from reports import stats
from reports.regression import fit_terms

OFF_SHARE = 0.10
"""A point further from the line than this share, and than its own noise, is off it."""
MOST_NOISE = 0.25
"""A time that is known less exactly tells nothing about its kernels."""
LEAST_ON_LINE = 3
"""Through two points there is always a line: it says nothing about them."""
LEAST_SPREAD = 1.2
"""The largest over the smallest number of bytes: below it, a slope is noise."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One measured point."""

    n_bytes: int
    seconds: float
    noise: float
    """Half-width of the interval as a share of `seconds`."""

    @property
    def tolerance(self) -> float:
        """The share by which it may differ from the line and be on it."""
        return max(OFF_SHARE, self.noise)


def is_sure(noise: float | None) -> bool:
    """Whether a time with this relative half-width may be judged; None: below three passes it has none."""
    return noise is not None and noise <= MOST_NOISE


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Constant and slope with their 95 % intervals; None where too few points carry one."""

    constant_s: float
    constant_low_s: float | None
    constant_high_s: float | None
    s_per_byte: float
    bandwidth_low_bytes_s: float | None
    bandwidth_high_bytes_s: float | None
    """None also where the interval has no upper end."""
    on: tuple[int, ...]
    """Indices of the points that the line is fitted on."""

    @property
    def bandwidth_bytes_s(self) -> float:
        """Weight bytes read per second, beside the constant."""
        return 1 / self.s_per_byte

    def seconds(self, n_bytes: float) -> float:
        """What a token takes by the line."""
        return self.constant_s + n_bytes * self.s_per_byte

    def excess(self, reading: Reading) -> float:
        """By which share a point takes longer than the line says; negative: less long."""
        return reading.seconds / self.seconds(reading.n_bytes) - 1

    def is_off(self, reading: Reading) -> bool:
        """Whether a point keeps away from the line by more than noise."""
        return abs(self.excess(reading)) > reading.tolerance


def find_line(readings: Sequence[Reading]) -> tuple[Line | None, str | None]:
    """The line, or why there is none to be seen. The readings are sure ones."""
    sizes = [reading.n_bytes for reading in readings]
    if len(set(sizes)) < 2:
        return None, "one amount of bytes alone was measured"
    if max(sizes) < LEAST_SPREAD * min(sizes):
        return None, "their bytes differ too little"
    best: Line | None = None
    best_rank = (0, -math.inf)
    for pair in itertools.combinations(range(len(readings)), 2):
        line = _settled(readings, pair)
        if line is None:
            continue
        rank = (len(line.on), -sum(line.excess(readings[i]) ** 2 for i in line.on))
        if rank > best_rank:
            best, best_rank = line, rank
    if best is None:
        return None, "a token does not take longer where it reads more"
    if len(readings) >= LEAST_ON_LINE and len(best.on) < max(LEAST_ON_LINE, len(readings) // 2 + 1):
        return None, "most of them lie on no common line"
    return best, None


def _settled(readings: Sequence[Reading], pair: tuple[int, ...]) -> Line | None:
    """The line through two points, fitted anew on all that lie on it until these stay the same."""
    on = pair
    for _ in range(len(readings) + 1):
        line = _fit(readings, on)
        if line is None:
            return None
        found = tuple(i for i, reading in enumerate(readings) if not line.is_off(reading))
        if found == line.on:
            return line
        if len(found) < 2:
            return None
        on = found
    return None


def _fit(readings: Sequence[Reading], on: tuple[int, ...]) -> Line | None:
    """The line on these points; None where bytes cost nothing."""
    terms = fit_terms([(1.0, readings[i].n_bytes) for i in on], [readings[i].seconds for i in on], rounds=1)
    constant_s, s_per_byte = terms.coefficients
    if s_per_byte <= 0:
        return None
    line = Line(
        constant_s=constant_s,
        constant_low_s=None,
        constant_high_s=None,
        s_per_byte=s_per_byte,
        bandwidth_low_bytes_s=None,
        bandwidth_high_bytes_s=None,
        on=on,
    )
    if len(on) < LEAST_ON_LINE:
        return line
    scale = stats.student_t(terms.degrees) * terms.sigma
    half_s, half_s_per_byte = (scale * math.sqrt(terms.covariance[i][i]) for i in range(2))
    least = s_per_byte - half_s_per_byte
    return dataclasses.replace(
        line,
        constant_low_s=max(0.0, constant_s - half_s),
        constant_high_s=constant_s + half_s,
        bandwidth_low_bytes_s=1 / (s_per_byte + half_s_per_byte),
        bandwidth_high_bytes_s=1 / least if least > 0 else None,
    )
