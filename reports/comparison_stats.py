"""Whether two sets of timings differ: on logarithms, so that a difference is a ratio.

One cell alone is Welch's t test. Five repetitions tell little about their own noise, though, and with many
cells corrected for, a real change would be missed; so each cell's variance is steadied by that of the other
cells of its phase in the same file:

- the others weigh at most as much as the cell itself (both are pooled by degrees of freedom);
- the pooled variance never falls below the cell's own: a cell noisier than its neighbours is not made to look
  quiet.

Holm's step-down correction (Scandinavian Journal of Statistics 6, 1979) then holds the false alarms of a
whole comparison. `tests/unit/reports/test_comparison_rates.py` shows both rates by simulation, with
noise that is normal, skewed, heavy-tailed, shared between cells and unlike from cell to cell.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Sequence
from typing import Any

from reports import stats
from reports.comparable import ComparableCell

FALSE_ALARMS = 0.05
"""Most that a whole comparison may raise."""
ALPHA = 0.045
"""Level of the corrected test: a little less, since leaving out a first pass that stands apart makes the rest
look quieter than it is, and noise unlike from cell to cell makes the pooled part wrong."""
POWER = 0.95
"""With which the smallest change that is named would have been found."""
MIN_BOOTSTRAPPED = 5
"""Samples on both sides for a bootstrap: resamples of fewer medians are too alike to span an interval."""
_RESAMPLES = 4000
_SEED = 20240229
_LEAST_SPREAD = 5e-4
"""Relative noise below which no timing is believed: a few equal samples are luck, or a coarse clock."""
_NODES = 48
"""Of the quadrature: ten digits from one degree of freedom to some hundreds."""
_SETTLED = 1e-9
_MAX_STEPS = 100


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One file's samples of one cell, as logarithms of seconds."""

    mean: float
    variance: float
    """Of the samples (n - 1)."""
    n: int
    degrees: float
    """Behind the variance."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """New minus base, as a logarithm, with its standard error."""

    value: float
    error: float
    degrees: float
    """Welch and Satterthwaite's."""

    @property
    def p_value(self) -> float:
        """Two-sided, of this cell alone."""
        return student_tail(abs(self.value) / self.error, self.degrees)

    def interval(self) -> tuple[float, float]:
        """95 % interval of the ratio new / base."""
        half = student_quantile(1 - stats.CONFIDENCE, self.degrees) * self.error
        return math.exp(self.value - half), math.exp(self.value + half)

    def detectable(self, tests: int) -> float:
        """The change, as a share, that would have been found with `POWER` among so many tests."""
        needed = student_quantile(ALPHA / tests, self.degrees)
        needed += student_quantile(2 * (1 - POWER), self.degrees)
        return math.expm1(min(needed * self.error, 50.0))


def side(cell: ComparableCell) -> Side | None:
    """The cell's samples, or what its summary says of them; None where their spread is not known."""
    if cell.samples_s:
        if len(cell.samples_s) < 2:
            return None
        import numpy as np

        logs = np.log(cell.samples_s)
        variance, n, mean = float(logs.var(ddof=1)), len(logs), float(logs.mean())
    else:
        summary = cell.summary
        if summary is None or summary.stddev_s is None or summary.n is None or summary.n < 2:
            return None
        # Of a lognormal sample: sigma^2 = log(1 + (stddev / mean)^2).
        variance = math.log1p((summary.stddev_s / summary.median_s) ** 2)
        n, mean = summary.n, math.log(summary.median_s)
    return Side(mean=mean, variance=max(variance, _LEAST_SPREAD**2), n=n, degrees=n - 1)


def steadied(sides: Sequence[Side], phases: Sequence[str]) -> tuple[Side, ...]:
    """One file's sides, each variance steadied by the others of its phase."""
    squares: dict[str, float] = {}
    degrees: dict[str, float] = {}
    for one, phase in zip(sides, phases, strict=True):
        squares[phase] = squares.get(phase, 0.0) + one.variance * one.degrees
        degrees[phase] = degrees.get(phase, 0.0) + one.degrees
    return tuple(
        _steadied(one, squares[phase], degrees[phase]) for one, phase in zip(sides, phases, strict=True)
    )


def _steadied(one: Side, squares: float, degrees: float) -> Side:
    """`squares` and `degrees` are sums over the whole phase, the cell itself among them."""
    own = one.variance * one.degrees
    others = degrees - one.degrees
    if not others:
        return one
    weight = min(one.degrees, others)
    together = one.degrees + weight
    pooled = (own + max(squares - own, 0.0) / others * weight) / together
    return dataclasses.replace(one, variance=max(pooled, one.variance), degrees=together)


def difference(base: Side, new: Side) -> Difference:
    """Welch's comparison of two means (Biometrika 34, 1947)."""
    parts = base.variance / base.n, new.variance / new.n
    total = sum(parts)
    degrees = total**2 / (parts[0] ** 2 / base.degrees + parts[1] ** 2 / new.degrees)
    return Difference(value=new.mean - base.mean, error=math.sqrt(total), degrees=degrees)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """P values corrected for their number, in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected = [0.0] * len(p_values)
    running = 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(order) - rank) * p_values[i]))
        corrected[i] = running
    return tuple(corrected)


@functools.cache
def _quadrature() -> tuple[Any, Any]:
    import numpy as np

    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights


def _density_scale(degrees: float) -> float:
    """Of Student's t, without the square root of the degrees."""
    return math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(math.pi)


def student_tail(t: float, degrees: float) -> float:
    """Two-sided tail of Student's t, for any degrees of freedom > 0.

    With t = sqrt(v) tan u the density becomes a constant times cos(u)^(v - 1), which Gauss-Legendre
    integrates.
    """
    import numpy as np

    nodes, weights = _quadrature()
    start, end = math.atan(t / math.sqrt(degrees)), math.pi / 2
    half = (end - start) / 2
    # Near the end the cosine is written as the sine of the rest, which keeps its digits.
    area = half * float((weights * np.sin(half * (1 - nodes)) ** (degrees - 1)).sum())
    return min(1.0, 2 * _density_scale(degrees) * area)


def student_quantile(alpha: float, degrees: float) -> float:
    """The t whose two-sided tail is `alpha`.

    Newton's steps on the logarithm of the tail, which is concave: they climb from the normal quantile and
    never overshoot.
    """
    t = statistics.NormalDist().inv_cdf(1 - alpha / 2)
    scale = _density_scale(degrees) / math.sqrt(degrees)
    for _ in range(_MAX_STEPS):
        tail = student_tail(t, degrees)
        density = scale * (1 + t * t / degrees) ** (-(degrees + 1) / 2)
        step = math.log(tail / alpha) * tail / (2 * density)
        t += step
        if step < _SETTLED * t:
            break
    return t


def bootstrap_interval(base: Sequence[float], new: Sequence[float]) -> tuple[float, float]:
    """95 % percentile interval of the ratio of medians new / base (Efron & Tibshirani, An Introduction to the
    Bootstrap, 1993, chapter 13). The same samples give the same interval."""
    import numpy as np

    generator = np.random.default_rng(_SEED)

    def medians(samples: Sequence[float]) -> object:
        values = np.asarray(samples, dtype=float)
        return np.median(values[generator.integers(0, len(values), (_RESAMPLES, len(values)))], axis=1)

    tails = (1 - stats.CONFIDENCE) / 2
    ratios = np.quantile(np.asarray(medians(new)) / np.asarray(medians(base)), [tails, 1 - tails])
    return float(ratios[0]), float(ratios[1])


def repetitions_needed(base: Side, new: Side, share: float, tests: int) -> int:
    """Repetitions in each file with which a change of `share` would be found with `POWER` among so many
    tests, by the normal approximation n = (v1 + v2) (z1 + z2)^2 / log(1 + share)^2."""
    normal = statistics.NormalDist()
    z = normal.inv_cdf(1 - ALPHA / tests / 2) + normal.inv_cdf(POWER)
    return max(2, math.ceil((base.variance + new.variance) * (z / math.log1p(share)) ** 2))
