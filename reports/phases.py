"""The phase model: what a prompt and an answer of any length cost, fitted on the raw samples of one group.

    prefill_s(n) = a + b n + c n^2          n: prompt tokens; c: attention looks back over all earlier tokens
    decode_s_per_token(d) = alpha + beta d  d: depth, tokens already in the cache

Fitting: least squares on relative residuals (timing noise grows with the time itself) with Huber weights
(Huber, Annals of Mathematical Statistics 35, 1964; k = 1.345) against disturbed passes, under non-negative
coefficients, found by trying every subset of terms (at most seven; the exact solution of a small non-negative
problem: Lawson & Hanson, Solving Least Squares Problems, chapter 23). Intervals: 95 % prediction intervals of
linear regression (Seber & Lee, Linear Regression Analysis, 2nd ed., section 5.3), from the residuals, so that
what the form does not catch widens them too.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

from probes.records import GroupResult
from reports import measured, stats

_HUBER_K = 1.345
_ROUNDS = 30
_SETTLED = 1e-9


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A predicted duration in seconds with its 95 % prediction interval."""

    value_s: float
    low_s: float
    high_s: float

    def plus(self, other: Estimate) -> Estimate:
        """Sum of two independent estimates: half-widths add in quadrature, each side on its own."""
        value = self.value_s + other.value_s
        below = math.hypot(self.value_s - self.low_s, other.value_s - other.low_s)
        above = math.hypot(self.high_s - self.value_s, other.high_s - other.value_s)
        return Estimate(value_s=value, low_s=max(0.0, value - below), high_s=value + above)

    def times(self, factor: float) -> Estimate:
        """The estimate of `factor` (>= 0) such durations, the error shared by all of them."""
        return Estimate(value_s=self.value_s * factor, low_s=self.low_s * factor, high_s=self.high_s * factor)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A polynomial of one length, all coefficients non-negative."""

    coefficients: tuple[float, ...]
    """Seconds, seconds per token, seconds per token squared."""
    covariance: tuple[tuple[float, ...], ...]
    """Of the coefficients, per unit of squared relative deviation."""
    sigma: float
    """Relative standard deviation of one sample around the curve."""
    degrees: int
    """Samples minus terms in use."""
    largest_tokens: float
    """The longest that was measured; beyond it a prediction extrapolates."""

    def value(self, tokens: float) -> float:
        """Seconds at this length."""
        return sum(c * tokens**power for power, c in enumerate(self.coefficients))

    def predict(self, tokens: float) -> Estimate:
        """Seconds at this length with the interval in which one more measurement would fall."""
        value = self.value(tokens)
        powers = [tokens**power for power in range(len(self.coefficients))]
        of_curve = sum(
            powers[i] * powers[j] * self.covariance[i][j]
            for i in range(len(powers))
            for j in range(len(powers))
        )
        half = stats.student_t(self.degrees) * self.sigma * math.sqrt(value**2 + max(of_curve, 0.0))
        return Estimate(value_s=value, low_s=max(0.0, value - half), high_s=value + half)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PhaseModel:
    """What prefill and decode cost at any length. A fit is None with a reason where the samples do not carry
    it."""

    prefill: Fit | None
    prefill_reason: str | None
    decode: Fit | None
    decode_reason: str | None

    def prefill_s(self, prompt_tokens: int) -> Estimate | None:
        """The wait for a prompt of this length; None without a fit."""
        return self.prefill.predict(prompt_tokens) if self.prefill else None

    def decode_s_per_token(self, depth_tokens: float) -> Estimate | None:
        """One decode step at this depth; None without a fit."""
        return self.decode.predict(depth_tokens) if self.decode else None

    def decode_s(self, prompt_tokens: int, output_tokens: int) -> Estimate | None:
        """All decode steps of an answer: the first token comes from the prompt pass, so n tokens take n - 1
        steps.

        The per-token cost is linear in depth, hence its mean over the steps is its value at the mean depth.
        """
        steps = max(output_tokens - 1, 0)
        step = self.decode_s_per_token(prompt_tokens + max(steps - 1, 0) / 2)
        return step.times(steps) if step else None

    def wait_s(self, prompt_tokens: int, output_tokens: int) -> Estimate | None:
        """Prefill and decode of a whole request; None where either has no fit."""
        answer = self.decode_s(prompt_tokens, output_tokens)
        if prompt_tokens == 0:
            return answer
        prompt = self.prefill_s(prompt_tokens)
        return prompt.plus(answer) if prompt and answer else None

    def crossover_tokens(self, prompt_tokens: int) -> int | None:
        """The smallest answer, in tokens, whose decode takes at least as long as the prompt's prefill.

        Steps m with alpha m + beta (prompt m + m (m - 1) / 2) >= prefill, solved for m; None without fits or
        where decode costs nothing.
        """
        if not (self.prefill and self.decode):
            return None
        alpha, beta = self.decode.coefficients
        wait = self.prefill.value(prompt_tokens)
        linear = alpha + beta * (prompt_tokens - 0.5)
        if linear <= 0:
            return None
        # The stable root of beta/2 m^2 + linear m - wait = 0; it holds for beta = 0 too.
        steps = 2 * wait / (linear + math.sqrt(linear**2 + 2 * beta * wait))
        return math.ceil(steps - _SETTLED) + 1


def fit_phases(group: GroupResult) -> PhaseModel:
    """Fits of both phases on the counted samples of the cells that were measured."""
    prefills: list[tuple[float, float]] = []
    decodes: list[tuple[float, float]] = []
    for cell in measured.measured_cells(group):
        prefills += [(float(cell.prompt_tokens), s) for s in stats.counted(measured.prefill_samples(cell))]
        depth = measured.depth_tokens(cell)
        decodes += [(depth, s) for s in stats.counted(measured.decode_samples(cell))]
    prefill, prefill_reason = _fit(prefills, most_terms=3, what="prompt lengths")
    decode, decode_reason = _fit(decodes, most_terms=2, what="depths")
    return PhaseModel(
        prefill=prefill, prefill_reason=prefill_reason, decode=decode, decode_reason=decode_reason
    )


def _fit(
    points: Sequence[tuple[float, float]], *, most_terms: int, what: str
) -> tuple[Fit | None, str | None]:
    """The fit on (tokens, seconds), or why there is none. Three lengths carry a quadratic, two a line."""
    usable = [(x, y) for x, y in points if y > 0]
    lengths = len({x for x, _ in usable})
    if lengths < 2:
        return None, f"too few {what} were measured ({lengths} of at least 2)"
    terms = min(lengths, most_terms)
    if len(usable) <= terms:
        return None, f"too few passes were measured ({len(usable)} samples for {terms} coefficients)"
    fit = _robust_fit(usable, terms)
    # Padded, so that callers need not ask how many coefficients there are.
    return _padded(fit, most_terms), None


def _padded(fit: Fit, terms: int) -> Fit:
    missing = terms - len(fit.coefficients)
    rows = tuple(row + (0.0,) * missing for row in fit.covariance) + ((0.0,) * terms,) * missing
    return dataclasses.replace(fit, coefficients=fit.coefficients + (0.0,) * missing, covariance=rows)


def _robust_fit(points: Sequence[tuple[float, float]], terms: int) -> Fit:
    """Iteratively reweighted non-negative least squares on relative residuals."""
    import numpy as np

    x = np.array([point[0] for point in points])
    y = np.array([point[1] for point in points])
    scale = max(float(x.max()), 1.0)
    # Lengths are scaled to at most 1, which keeps the normal equations well conditioned.
    design = np.vander(x / scale, terms, increasing=True) / y[:, None]
    weights = np.ones(len(y))
    solution = np.zeros(terms)
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        updated = np.array(_non_negative(design * root[:, None], root))
        settled = bool(np.allclose(updated, solution, rtol=_SETTLED, atol=0.0))
        solution = updated
        residuals = 1.0 - design @ solution
        spread = stats.robust_sigma(residuals.tolist())
        if settled or spread < _SETTLED:
            break
        weights = np.minimum(1.0, _HUBER_K * spread / np.maximum(np.abs(residuals), 1e-300))
    residuals = 1.0 - design @ solution
    active = [i for i in range(terms) if solution[i] > 0]
    degrees = max(len(y) - len(active), 1)
    sigma = math.sqrt(float(np.sum(weights * residuals**2)) / degrees)
    kept = design[:, active] * np.sqrt(weights)[:, None]
    covariance = np.zeros((terms, terms))
    covariance[np.ix_(active, active)] = np.linalg.pinv(kept.T @ kept)
    powers = np.array([scale**-power for power in range(terms)])
    return Fit(
        coefficients=tuple((solution * powers).tolist()),
        covariance=tuple(tuple(row) for row in (covariance * np.outer(powers, powers)).tolist()),
        sigma=sigma,
        degrees=degrees,
        largest_tokens=float(x.max()),
    )


def _non_negative(design: object, target: object) -> list[float]:
    """The least-squares solution with no negative coefficient, by trying every subset of columns."""
    import numpy as np

    matrix, wanted = np.asarray(design, dtype=float), np.asarray(target, dtype=float)
    terms = matrix.shape[1]
    best, best_error = [0.0] * terms, math.inf
    for size in range(1, terms + 1):
        for columns in itertools.combinations(range(terms), size):
            picked = matrix[:, columns]
            part = np.linalg.lstsq(picked, wanted, rcond=None)[0]
            error = float(np.sum((wanted - picked @ part) ** 2))
            if (part >= 0).all() and error < best_error:
                best, best_error = [0.0] * terms, error
                for column, value in zip(columns, part.tolist(), strict=True):
                    best[column] = value
    return best
