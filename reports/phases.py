"""The phase model: what a prompt and an answer of any length cost, fitted on the raw samples of one group.

    prefill_s(n) = a + b n + c n^2          n: prompt tokens; c: attention looks back over all earlier tokens
    decode_s_per_token(d) = alpha + beta d  d: depth, tokens already in the cache; alpha may be another one
                                            below 256 tokens

Fitted by `reports.regression`. Intervals: 95 % prediction intervals of linear regression (Seber & Lee, Linear
Regression Analysis, 2nd ed., section 5.3), from the residuals, so that what the form does not catch widens
them too.

Why decode may differ below 256 tokens: the engine looks at its cache in blocks of 256 cells
(`llama_kv_cache::get_n_kv`), and its CPU attention takes another way for one block than for more
(`ggml_compute_forward_flash_attn_ext`, the way that splits the cache between threads). Measured on 2 threads:
13 ms at depths of 128 and 192, 20 ms at 256. Whether it does is chosen by the data.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from probes.records import GroupResult
from reports import measured, stats
from reports.regression import fit_terms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SETTLED = 1e-9
_SHALLOW_TOKENS = 256
"""One block of the engine's cache."""
_CLEARLY_BETTER = 0.95
"""Shallow depths are a case of their own where that leaves at most this share of the scatter."""
_MOST_STEPS = 1 << 40


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
    shallow_decode: Fit | None = None
    """Decode below 256 tokens of depth; None: as at any depth."""

    def prefill_s(self, prompt_tokens: int) -> Estimate | None:
        """The wait for a prompt of this length; None without a fit."""
        return self.prefill.predict(prompt_tokens) if self.prefill else None

    def decode_s_per_token(self, depth_tokens: float) -> Estimate | None:
        """One decode step at this depth; None without a fit."""
        fit = self.decode
        if self.shallow_decode is not None and depth_tokens < _SHALLOW_TOKENS:
            fit = self.shallow_decode
        return fit.predict(depth_tokens) if fit else None

    def decode_s(self, prompt_tokens: int, output_tokens: int) -> Estimate | None:
        """All decode steps of an answer: the first token comes from the prompt pass, so n tokens take n - 1
        steps.

        The per-token cost is linear in depth, hence its mean over steps is its value at their mean depth.
        """
        if self.decode is None:
            return None
        steps = max(output_tokens - 1, 0)
        shallow = self._shallow_steps(prompt_tokens, steps)
        deep = _steps_s(self.decode, prompt_tokens + shallow, steps - shallow)
        if self.shallow_decode is None or not shallow:
            return deep
        return _steps_s(self.shallow_decode, prompt_tokens, shallow).plus(deep)

    def _shallow_steps(self, prompt_tokens: int, steps: int) -> int:
        if self.shallow_decode is None:
            return 0
        return min(steps, max(0, _SHALLOW_TOKENS - prompt_tokens))

    def wait_s(self, prompt_tokens: int, output_tokens: int) -> Estimate | None:
        """Prefill and decode of a whole request; None where either has no fit."""
        answer = self.decode_s(prompt_tokens, output_tokens)
        if prompt_tokens == 0:
            return answer
        prompt = self.prefill_s(prompt_tokens)
        return prompt.plus(answer) if prompt and answer else None

    def crossover_tokens(self, prompt_tokens: int) -> int | None:
        """The smallest answer, in tokens, whose decode takes at least as long as the prompt's prefill; None
        without fits or where decode costs nothing."""
        if not (self.prefill and self.decode) or not any(self.decode.coefficients):
            return None
        wait = self.prefill.value(prompt_tokens) * (1 - _SETTLED)

        def decode_s(steps: int) -> float:
            answer = self.decode_s(prompt_tokens, steps + 1)
            return answer.value_s if answer else 0.0

        steps = bisect.bisect_left(range(_MOST_STEPS), wait, key=decode_s)
        return steps + 1 if steps < _MOST_STEPS else None


def _steps_s(fit: Fit, first_depth: int, steps: int) -> Estimate:
    """Seconds of this many decode steps, the first one at `first_depth`."""
    return fit.predict(first_depth + max(steps - 1, 0) / 2).times(steps)


def fit_phases(group: GroupResult) -> PhaseModel:
    """Fits of both phases on the counted samples of the cells that were measured."""
    cells = measured.measured_cells(group)
    prefills = [
        (float(cell.prompt_tokens), s)
        for cell in cells
        for s in stats.counted(measured.prefill_samples(cell))
    ]
    decodes = [
        (measured.depth_tokens(cell), s)
        for cell in cells
        for s in stats.counted(measured.decode_samples(cell))
    ]
    return fit_samples(prefills, decodes)


def fit_samples(
    prefills: Sequence[tuple[float, float]], decodes: Sequence[tuple[float, float]]
) -> PhaseModel:
    """Fits of both phases on single samples: (prompt tokens, seconds) from an empty cache, and (mean depth of
    the steps, mean seconds a step)."""
    prefill, prefill_reason = _fit(prefills, most_terms=3, what="prompt lengths")
    decode, decode_reason = _fit(decodes, most_terms=2, what="depths")
    by_depth = None if decode is None else _fit_by_depth(decodes, decode)
    return PhaseModel(
        prefill=prefill,
        prefill_reason=prefill_reason,
        decode=decode if by_depth is None else by_depth[1],
        decode_reason=decode_reason,
        shallow_decode=None if by_depth is None else by_depth[0],
    )


def _fit_by_depth(points: Sequence[tuple[float, float]], plain: Fit) -> tuple[Fit, Fit] | None:
    """Fits below and from 256 tokens, with one slope, where they catch clearly more than one fit of all.

    It takes a shallow depth and two deep ones: of the three costs, each is then seen.
    """
    usable = [(x, y) for x, y in points if y > 0]
    deep = {x for x, _ in usable if x >= _SHALLOW_TOKENS}
    if len(deep) < 2 or len(deep) == len({x for x, _ in usable}) or len(usable) <= 3:
        return None
    both = _robust_fit(usable, _depth_columns)
    if both.sigma >= _CLEARLY_BETTER * plain.sigma:
        return None
    return _picked(both, (2, 1)), _picked(both, (0, 1))


def _picked(fit: Fit, terms: Sequence[int]) -> Fit:
    """The fit with these of its terms alone."""
    return dataclasses.replace(
        fit,
        coefficients=tuple(fit.coefficients[i] for i in terms),
        covariance=tuple(tuple(fit.covariance[i][j] for j in terms) for i in terms),
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
    fit = _robust_fit(usable, lambda lengths: _powers(lengths, terms))
    # Padded, so that callers need not ask how many coefficients there are.
    return _padded(fit, most_terms), None


def _padded(fit: Fit, terms: int) -> Fit:
    missing = terms - len(fit.coefficients)
    rows = tuple(row + (0.0,) * missing for row in fit.covariance) + ((0.0,) * terms,) * missing
    return dataclasses.replace(fit, coefficients=fit.coefficients + (0.0,) * missing, covariance=rows)


def _powers(lengths: NDArray[np.float64], terms: int) -> NDArray[np.float64]:
    import numpy as np

    return np.vander(lengths, terms, increasing=True)


def _depth_columns(depths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of the three terms: a constant of deep steps, the depth, a constant of shallow steps."""
    import numpy as np

    shallow = depths < _SHALLOW_TOKENS
    return np.column_stack([~shallow, depths, shallow])


def _robust_fit(
    points: Sequence[tuple[float, float]], columns: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> Fit:
    """The fit of (tokens, seconds); `columns` gives the value of each term at each length: shape (points,
    terms)."""
    import numpy as np

    x = np.array([point[0] for point in points])
    found = fit_terms(columns(x), [point[1] for point in points])
    return Fit(
        coefficients=found.coefficients,
        covariance=found.covariance,
        sigma=found.sigma,
        degrees=found.degrees,
        largest_tokens=float(x.max()),
    )
