"""Costs that add up, found from times: the sum over terms of coefficient * value, no coefficient negative.

Least squares on relative residuals (timing noise grows with the time itself) with Huber weights (Huber,
Annals of Mathematical Statistics 35, 1964; k = 1.345) against disturbed passes, under non-negative
coefficients, found by trying every subset of terms (the exact solution of a small non-negative problem:
Lawson & Hanson, Solving Least Squares Problems, chapter 23).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reports import stats

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

_HUBER_K = 1.345
_ROUNDS = 30
_SETTLED = 1e-9


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The costs that were found."""

    coefficients: tuple[float, ...]
    """Seconds for each unit of each term's values; 0: the term is not in use."""
    covariance: tuple[tuple[float, ...], ...]
    """Of the coefficients, per unit of squared relative deviation."""
    sigma: float
    """Relative standard deviation of one time around the sum."""
    degrees: int
    """Times minus terms in use, at least 1."""


def fit_terms(values: ArrayLike, seconds: Sequence[float], *, rounds: int = _ROUNDS) -> Terms:
    """Costs from `values`, shape (times, terms), a handful of terms at the most, and as many times, all above
    0.

    `rounds` of reweighting: 1 for plain least squares, for a few times that are known to be in order.
    """
    import numpy as np

    table, times = np.asarray(values, dtype=float), np.asarray(seconds, dtype=float)
    # Columns are scaled to at most 1, which keeps the normal equations well conditioned.
    largest = np.abs(table).max(axis=0)
    scale = np.where(largest > 0, largest, 1.0)
    design = table / scale / times[:, None]
    solution, weights = _reweighted(design, rounds)
    residuals = 1.0 - design @ solution
    terms = len(solution)
    active = [i for i in range(terms) if solution[i] > 0]
    degrees = max(len(times) - len(active), 1)
    kept = design[:, active] * np.sqrt(weights)[:, None]
    covariance = np.zeros((terms, terms))
    covariance[np.ix_(active, active)] = np.linalg.pinv(kept.T @ kept)
    return Terms(
        coefficients=tuple((solution / scale).tolist()),
        covariance=tuple(tuple(row) for row in (covariance / scale / scale[:, None]).tolist()),
        sigma=math.sqrt(float(np.sum(weights * residuals**2)) / degrees),
        degrees=degrees,
    )


def _reweighted(design: NDArray[np.float64], rounds: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Solution and weights of `design @ solution = 1`, reweighted until both stand still."""
    import numpy as np

    weights = np.ones(len(design))
    solution = np.zeros(design.shape[1])
    for left in reversed(range(rounds)):
        root = np.sqrt(weights)
        updated = np.array(_non_negative(design * root[:, None], root))
        settled = bool(np.allclose(updated, solution, rtol=_SETTLED, atol=0.0))
        solution = updated
        residuals = 1.0 - design @ solution
        spread = stats.robust_sigma(residuals.tolist())
        if not left or settled or spread < _SETTLED:
            break
        weights = np.minimum(1.0, _HUBER_K * spread / np.maximum(np.abs(residuals), 1e-300))
    return solution, weights


def _non_negative(design: NDArray[np.float64], target: NDArray[np.float64]) -> list[float]:
    """The least-squares solution with no negative coefficient, by trying every subset of columns."""
    import numpy as np

    terms = design.shape[1]
    best, best_error = [0.0] * terms, math.inf
    for size in range(1, terms + 1):
        for columns in itertools.combinations(range(terms), size):
            picked = design[:, columns]
            part = np.linalg.lstsq(picked, target, rcond=None)[0]
            error = float(np.sum((target - picked @ part) ** 2))
            if (part >= 0).all() and error < best_error:
                best, best_error = [0.0] * terms, error
                for column, value in zip(columns, part.tolist(), strict=True):
                    best[column] = value
    return best
