"""Figures in other languages' writing, sizes, and durations as Go prints them."""

from __future__ import annotations

import math
import re

import pytest

from reports.logs.numbers import NUMBER, count, go_duration_s, number, size_bytes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("32.12", 32.12),
        ("32,12", 32.12),
        ("1,234.5", 1234.5),
        ("1.234,5", 1234.5),
        ("1\u202f234,5", 1234.5),
        ("1'234.5", 1234.5),
        ("1,234", 1234),
        ("0,123", 0.123),
        ("1.234.567", 1_234_567),
        ("12345.67", 12345.67),
        ("-3.5", -3.5),
    ],
)
def test_a_number_in_any_writing(text: str, value: float) -> None:
    match = re.fullmatch(NUMBER, text)
    assert match is not None
    assert number(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["nan", "-nan(ind)", "inf", "-inf"])
def test_what_c_prints_for_no_number_is_no_finite_number(text: str) -> None:
    assert re.fullmatch(NUMBER, text)
    assert not math.isfinite(number(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [("1294", 1294), ("1,294", 1294), ("1.294", 1294), ("12.5", None), ("-4", None), ("x", None)],
)
def test_a_count_has_no_fraction(text: str, value: int | None) -> None:
    assert count(text) == value


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4.732s", 4.732),
        ("391ms", 0.391),
        ("1m2.5s", 62.5),
        ("1h0m3s", 3603),
        ("850µs", 850e-6),  # U+00B5
        ("850μs", 850e-6),  # U+03BC
        ("850Âµs", 850e-6),  # UTF-8 shown as Latin-1
        ("12ns", 12e-9),
        ("0s", 0.0),
        ("soon", None),
        ("5", None),
    ],
)
def test_a_duration_as_go_prints_it(text: str, seconds: float | None) -> None:
    assert go_duration_s(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("11.0 GiB", 11 * 2**30),
        ("4.7 GB", 4_700_000_000),
        ("92.10 MiB (5.74 BPW)", 96_573_850),
        ("none", None),
    ],
)
def test_a_size(text: str, n_bytes: int | None) -> None:
    assert size_bytes(text) == n_bytes
