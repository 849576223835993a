"""Statistics of few samples, with sums done by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports import stats

SAMPLES = st.lists(st.floats(min_value=1e-6, max_value=1e6), min_size=1, max_size=40)


def test_summary_of_five() -> None:
    # 1 2 3 4 10: mean 20/5 = 4; squares 9+4+1+0+36 = 50, / 4 = 12.5, root 3.5355.
    # Interval by Student's t: 2.776 * 3.5355 / sqrt(5) = 4.389; 4 - 4.389 is cut at zero.
    summary = stats.summarize([3, 1, 2, 10, 4])
    assert (summary.n, summary.median, summary.mean, summary.min, summary.max) == (5, 3, 4, 1, 10)
    assert summary.stddev == pytest.approx(3.5355, abs=1e-4)
    assert summary.ci_low == 0
    assert summary.ci_high == pytest.approx(8.389, abs=1e-3)


def test_two_samples_have_no_interval() -> None:
    summary = stats.summarize([1.0, 3.0])
    assert (summary.median, summary.ci_low, summary.ci_high) == (2.0, None, None)
    # Deviations -1 and 1: (1 + 1) / 1 = 2, root 1.4142.
    assert summary.stddev == pytest.approx(math.sqrt(2))


def test_one_sample_has_no_deviation() -> None:
    assert stats.summarize([5]).stddev is None


def test_no_samples_are_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        stats.summarize([])


def test_nanoseconds_of_long_passes_do_not_overflow() -> None:
    # Ten and thirty minutes: deviations of 6e11 ns, whose squares exceed 64 bits.
    ten, thirty = 600 * 10**9, 1800 * 10**9
    assert stats.summarize([ten, thirty]).stddev == pytest.approx(1200e9 / math.sqrt(2))


@pytest.mark.parametrize(
    ("n", "ranks"),
    [
        # 1 - 2/2^5 = 0.9375 is too little; 1 - 2/2^6 = 0.969.
        (5, None),
        (6, (1, 6)),
        # Dropping one more on each side of 8: 1 - 2 (1 + 8)/256 = 0.930; of 9: 1 - 2 (1 + 9)/512 = 0.961.
        (8, (1, 8)),
        (9, (2, 8)),
        # Published tables: 20 samples, ranks 6 and 15 (95.9 %).
        (20, (6, 15)),
    ],
)
def test_median_ranks(n: int, ranks: tuple[int, int] | None) -> None:
    assert stats.median_ranks(n) == ranks


def test_six_samples_give_an_interval_free_of_assumptions() -> None:
    summary = stats.summarize([1, 2, 3, 4, 5, 100])
    assert (summary.ci_low, summary.ci_high) == (1, 100)


@given(SAMPLES)
def test_the_interval_holds_the_median_and_everything_is_finite(samples: list[float]) -> None:
    summary = stats.summarize(samples)
    assert summary.min <= summary.median <= summary.max
    if summary.ci_low is not None and summary.ci_high is not None:
        slack = 1e-9 * summary.max
        assert 0 <= summary.ci_low <= summary.median + slack
        assert summary.median - slack <= summary.ci_high < math.inf
    assert (summary.ci_low is None) == (len(samples) < 3)


@given(SAMPLES, st.floats(min_value=0.001, max_value=1000))
def test_a_summary_scales_with_its_samples(samples: list[float], factor: float) -> None:
    one, other = stats.summarize(samples), stats.summarize([s * factor for s in samples])
    assert other.median == pytest.approx(one.median * factor)
    assert other.mean == pytest.approx(one.mean * factor)


def test_student_t_joins_table_and_series() -> None:
    # Tables: 2.042 for 30, 2.021 for 40, 1.980 for 120 degrees.
    assert stats.student_t(1) == 12.706
    assert stats.student_t(40) == pytest.approx(2.021, abs=1e-3)
    assert stats.student_t(120) == pytest.approx(1.980, abs=1e-3)


def test_outliers_by_modified_z_score() -> None:
    # Median 10; deviations 1 0 0 1 40: median 1, sigma 1.4826; 40 / 1.4826 = 27 > 3.5.
    assert stats.outliers([9, 10, 10, 11, 50]) == (50,)
    # Most deviations zero: sigma from the mean one, 6/7 * 1.2533 = 1.074; 6 / 1.074 = 5.6 > 3.5.
    assert stats.outliers([10, 10, 10, 10, 10, 10, 16]) == (16,)
    assert stats.outliers([5, 5, 5, 5]) == ()
    assert stats.outliers([1, 100]) == ()


@pytest.mark.parametrize(
    ("first", "others", "apart"),
    [
        # Median 100, deviations 1 0 1: sigma 1.48, so 106 lies 4 sigma and 6 % off.
        (106, [99, 100, 101], True),
        (94, [99, 100, 101], True),
        # 3.4 sigma: 105 / 1.48.
        (105, [99, 100, 101], False),
        # Far in sigmas, yet within 2 %: too small to matter.
        (101.5, [100, 100.01, 99.99], False),
        # The others' spread is unknown.
        (500, [100, 101], False),
    ],
)
def test_when_a_first_pass_stands_apart(first: float, others: list[float], apart: bool) -> None:
    assert stats.stands_apart(first, others) is apart


def test_a_first_pass_counts_only_where_it_does_not_stand_apart() -> None:
    assert stats.counted([(0, 200.0), (1, 100.0), (2, 101.0), (3, 99.0)]) == (100.0, 101.0, 99.0)
    assert stats.counted([(0, 101.0), (1, 100.0), (2, 101.0), (3, 99.0)]) == (101.0, 100.0, 101.0, 99.0)
    assert stats.counted([(0, 200.0)]) == (200.0,)


def test_precision_needs_three_counted_samples() -> None:
    assert not stats.is_precise([(0, 100.0), (1, 100.0)], 0.5)
    # Mean 100, deviation 1: 4.303 / sqrt(3) = 2.48 % of the median.
    tight = [(1, 99.0), (2, 100.0), (3, 101.0)]
    assert stats.is_precise(tight, 0.025)
    assert not stats.is_precise(tight, 0.024)
    # A first pass that stands apart must neither loosen nor fill up the count.
    assert stats.is_precise([(0, 150.0), *tight], 0.025)


@pytest.mark.parametrize(
    ("pairs", "precise"),
    [
        ([(10.0, 8.0), (11.0, 9.0)], False),  # two tell nothing
        ([(10.0, 8.0), (11.0, 9.0), (20.0, 18.0)], True),  # what meets both is in no difference
        # differences of 1.9, 2.0, 2.1: 4.303 * 0.1 / sqrt(3) = 0.248 either way, 12 % of 2
        ([(10.0, 8.1), (10.0, 8.0), (10.0, 7.9)], False),
        ([(100.0, 98.1), (100.0, 98.0), (100.0, 97.9)], True),  # 0.25 % of the first
        ([(10.0, 8.05), (10.0, 8.0), (10.0, 7.95)], True),
    ],
)
def test_a_difference_is_precise_as_a_share_of_itself_or_of_the_first(
    pairs: list[tuple[float, float]], precise: bool
) -> None:
    assert stats.is_difference_precise(pairs, 0.1, 0.01) is precise


def test_relative_half_width_is_unknown_without_interval_or_median() -> None:
    assert stats.relative_half_width(stats.summarize([1.0, 2.0])) is None
    assert stats.relative_half_width(stats.summarize([0.0, 0.0, 0.0])) is None


def test_p95_by_nearest_rank() -> None:
    # ceil(0.95 * 20) = 19: the 19th of 1..20; of 100 the 95th.
    assert stats.percentile_95(list(range(1, 21))) == 19
    assert stats.percentile_95(list(range(100, 0, -1))) == 95
    assert stats.percentile_95(list(range(19))) is None
