"""Samples in, summaries out. All figures keep the unit of the samples; arithmetic is in floats.

Nothing here knows what was timed. The command line's stopping rule (`is_precise`) lives here too, so that
"tight enough" while measuring and "noisy" in the report can not differ.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

CONFIDENCE = 0.95
MIN_COUNTED = 3
"""Fewer samples give no interval, and never satisfy a wanted precision."""
MIN_OTHERS = 3
"""Samples needed beside the first before it can be said to stand apart."""
APART_SHARE = 0.02
"""A first pass nearer than this share to the others' median never stands apart: too small to matter."""
MIN_P95 = 20
"""Below this many samples a 95th percentile is the maximum under another name."""
OUTLIER_SCORE = 3.5

_MAD_TO_SIGMA = 1.482602
"""Standard deviation of a normal distribution over its median absolute deviation."""
_MEAN_AD_TO_SIGMA = 1.253314
"""Standard deviation of a normal distribution over its mean absolute deviation: sqrt(pi / 2)."""

_T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t, 97.5th percentile, 1 to 30 degrees of freedom (any statistical table)."""
_Z_975 = 1.959964


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a handful of samples says, in the samples' own unit."""

    n: int
    median: float
    ci_low: float | None
    """Lower end of the 95 % interval of the median; None below three samples."""
    ci_high: float | None
    mean: float
    stddev: float | None
    """Of the sample (n - 1); None for a single one."""
    min: float
    max: float
    outliers: tuple[float, ...]
    """Samples far off by their modified z-score; they stay in every figure above."""


def student_t(degrees: int) -> float:
    """Two-sided 95 % quantile of Student's t for `degrees` >= 1.

    Above 30 degrees: the first two terms of the Cornish-Fisher expansion (Abramowitz & Stegun 26.7.5), right
    to 0.001.
    """
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z = _Z_975
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def median_ranks(n: int) -> tuple[int, int] | None:
    """Ranks (from 1) of the two ordered samples that bound the median with at least 95 %; None where none do
    (n < 6).

    The number of samples below the median is binomial(n, 1/2) whatever the distribution, so [x(k), x(n+1-k)]
    covers it with 1 - 2 P(B < k) (David & Nagaraja, Order Statistics, 3rd ed., section 7.1).
    """
    below = 0.0
    rank = 0
    for k in range(n // 2):
        below += math.comb(n, k) / 2**n
        if 1 - 2 * below < CONFIDENCE:
            break
        rank = k + 1
    return (rank, n + 1 - rank) if rank else None


def _interval(
    ordered: Sequence[float], mean: float, stddev: float | None
) -> tuple[float | None, float | None]:
    """95 % interval of the median of `ordered` samples.

    From six on it is free of any assumption about the distribution (`median_ranks`). For three to five no
    such interval exists: Student's t interval of the mean stands in (Student, Biometrika 6, 1908). It assumes
    samples about normal, where mean and median are the same; being wide (at least 1.24 standard deviations
    each way, and mean and median never differ by more than one) it always holds the sample median. A
    duration's lower end is cut at zero.
    """
    n = len(ordered)
    if n < MIN_COUNTED or stddev is None:
        return None, None
    ranks = median_ranks(n)
    if ranks:
        return ordered[ranks[0] - 1], ordered[ranks[1] - 1]
    half = student_t(n - 1) * stddev / math.sqrt(n)
    return max(0.0, mean - half), mean + half


def summarize(samples: Sequence[float]) -> Summary:
    """Summary of at least one sample. Raises ValueError for none: an empty phase is an absent one, not a
    zero."""
    if not samples:
        raise ValueError("no samples to summarize")
    ordered = sorted(float(sample) for sample in samples)
    mean = statistics.fmean(ordered)
    stddev = statistics.stdev(ordered) if len(ordered) > 1 else None
    low, high = _interval(ordered, mean, stddev)
    return Summary(
        n=len(ordered),
        median=statistics.median(ordered),
        ci_low=low,
        ci_high=high,
        mean=mean,
        stddev=stddev,
        min=ordered[0],
        max=ordered[-1],
        outliers=outliers(ordered),
    )


def robust_sigma(samples: Sequence[float]) -> float:
    """Standard deviation estimated from the median absolute deviation; from the mean one where that is
    zero."""
    centre = statistics.median(samples)
    deviations = [abs(sample - centre) for sample in samples]
    mad = statistics.median(deviations)
    return mad * _MAD_TO_SIGMA if mad > 0 else statistics.fmean(deviations) * _MEAN_AD_TO_SIGMA


def outliers(samples: Sequence[float]) -> tuple[float, ...]:
    """Samples whose modified z-score exceeds 3.5 (Iglewicz & Hoaglin, How to Detect and Handle Outliers,
    1993)."""
    if len(samples) < MIN_COUNTED:
        return ()
    sigma = robust_sigma(samples)
    centre = statistics.median(samples)
    return tuple(sample for sample in samples if abs(sample - centre) > OUTLIER_SCORE * sigma > 0)


def stands_apart(first: float, others: Sequence[float]) -> bool:
    """Whether a first pass is too unlike the `others` to count with them.

    True where it lies more than 3.5 robust standard deviations and more than 2 % from their median. With
    fewer than three others their spread is unknown: the first can not be shown to stand apart, and counts.
    """
    if len(others) < MIN_OTHERS:
        return False
    centre = statistics.median(others)
    distance = abs(first - centre)
    return distance > OUTLIER_SCORE * robust_sigma(others) and distance > APART_SHARE * abs(centre)


def counted(samples: Sequence[tuple[int, float]]) -> tuple[float, ...]:
    """The samples that count, of pairs (pass index, value): all but first passes (index 0) that stand
    apart."""
    others = [value for index, value in samples if index > 0]
    return tuple(value for index, value in samples if index > 0 or not stands_apart(value, others))


def relative_half_width(summary: Summary) -> float | None:
    """The wider half of the interval as a share of the median; None without an interval or with a median of
    zero."""
    if summary.ci_low is None or summary.ci_high is None or summary.median <= 0:
        return None
    return max(summary.ci_high - summary.median, summary.median - summary.ci_low) / summary.median


def is_precise(samples: Sequence[tuple[int, float]], precision: float) -> bool:
    """Whether the median of the counted samples is known to `precision` (a share), from at least three of
    them."""
    values = counted(samples)
    if len(values) < MIN_COUNTED:
        return False
    half_width = relative_half_width(summarize(values))
    return half_width is not None and half_width <= precision


def is_difference_precise(pairs: Sequence[tuple[float, float]], precision: float, of_first: float) -> bool:
    """Whether the mean difference of paired samples is known to `precision`, a share of it, or to `of_first`,
    a share of the first ones' mean: from at least three pairs, by Student's interval."""
    if len(pairs) < MIN_COUNTED:
        return False
    differences = [first - second for first, second in pairs]
    half = student_t(len(pairs) - 1) * statistics.stdev(differences) / math.sqrt(len(pairs))
    enough = of_first * abs(statistics.fmean(first for first, _ in pairs))
    return half <= max(precision * abs(statistics.fmean(differences)), enough)


def percentile_95(samples: Sequence[float]) -> float | None:
    """The 95th percentile by nearest rank: the ceil(0.95 n)-th smallest. None below 20 samples."""
    if len(samples) < MIN_P95:
        return None
    return float(sorted(samples)[math.ceil(0.95 * len(samples)) - 1])
