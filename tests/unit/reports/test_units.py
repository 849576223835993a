"""Quantities become text in one place; a missing one is a word."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reports import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.234, "1.23 s"),
        (0.0451, "45.1 ms"),
        (0.00085, "850 µs"),
        (3e-9, "3.00 ns"),
        (0.99949, "999 ms"),
        (0.9996, "1.00 s"),
        (0.0, "0 s"),
        (61.0, "61.0 s"),
        (750.0, "12.5 min"),
        (None, "unknown"),
        (math.nan, "unknown"),
        (math.inf, "unknown"),
        (-1.0, "unknown"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        # The wider half: 6.10 - 6.06 = 0.04 below, 0.02 above.
        ((6.10, 6.06, 6.12), "6.10 ± 0.04 s"),
        ((0.290, 0.289, 0.2914), "290 ± 1 ms"),
        ((0.0041, 0.0041, 0.004101), "4.10 ± <0.01 ms"),
        ((6.10, None, None), "6.10 s"),
        ((None, 1.0, 2.0), "unknown"),
        ((750.0, 735.0, 756.0), "12.5 ± 0.2 min"),
    ],
)
def test_duration_interval(figures: tuple[float | None, float | None, float | None], text: str) -> None:
    assert units.duration_interval(*figures) == text


def test_duration_range_keeps_one_unit() -> None:
    assert units.duration_range(1.02, 0.98, 1.2) == "1.02 (0.98–1.20) s"
    assert units.duration_range(math.nan, 0.98, 1.2) == "unknown"


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (97_655_194, "93.1 MiB"),
        (2**32, "4.00 GiB"),
        (None, "unknown"),
        (-5, "unknown"),
    ],
)
def test_size(n_bytes: int | None, text: str) -> None:
    assert units.size(n_bytes) == text


def test_a_rate_over_no_time_is_unknown() -> None:
    assert units.size_rate(100.0, 0.0) == "unknown"
    # 2 GiB in 4 s are 512 MiB a second.
    assert units.size_rate(2 * 2**30, 4.0) == "512 MiB/s"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.7654, "77 %"), (0.03, "3.0 %"), (0.0, "0 %"), (0.0004, "<0.1 %"), (1.0, "100 %"), (None, "unknown")],
)
def test_percent(share: float | None, text: str) -> None:
    assert units.percent(share) == text


def test_token_rates() -> None:
    assert units.token_rate(335.9) == "336 tok/s"
    assert units.token_rate(14.23) == "14.2 tok/s"
    assert units.token_rate(None) == "unknown"


@pytest.mark.parametrize(
    ("tokens", "text"),
    [(0, "0"), (512, "512"), (1024, "1k"), (2048, "2k"), (131072, "128k"), (1500, "1.5k"), (3000, "3k")],
)
def test_tick(tokens: int, text: str) -> None:
    assert units.tick(tokens) == text


def test_counts() -> None:
    assert units.count(2048) == "2,048"
    assert units.short_count(134_515_008) == "135 M"
    assert units.short_count(7_241_732_096) == "7.24 B"
    assert units.short_count(None) == "unknown"


@given(st.floats(min_value=1e-9, max_value=1e6))
def test_a_printed_duration_reads_back_to_within_half_a_percent(seconds: float) -> None:
    number, unit = units.duration(seconds).split()
    scale = {"min": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(seconds, rel=0.006)


@example(-0.0)
@given(st.floats(allow_nan=True, allow_infinity=True))
def test_no_value_prints_nan_inf_or_a_minus_sign(value: float) -> None:
    printed = (units.duration(value), units.size(value), units.rate(value), units.percent(value))
    assert not any(re.search(r"nan|inf|-", text) for text in printed)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.102, "+10.2 %"),
        (-0.031, "-3.1 %"),
        (0.0, "0.0 %"),
        (-0.0004, "0.0 %"),
        (2.5, "+250 %"),
        (12.345, "+1,234 %"),
        (None, "unknown"),
        (float("nan"), "unknown"),
    ],
)
def test_changes_carry_their_sign(share: float | None, text: str) -> None:
    assert units.change(share) == text
