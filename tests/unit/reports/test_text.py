"""Untrusted text loses what could steer a terminal, a table or a spreadsheet."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from reports import text


def test_clean_drops_escapes_bells_and_direction_marks_and_joins_lines() -> None:
    assert text.clean("a\x1b[31m\x07b\u202ec\n\td") == "a[31mbc d"


def test_clean_cuts_with_a_sign() -> None:
    assert text.clean("x" * 20, limit=5) == "xxxx…"


def test_a_formula_gets_an_apostrophe() -> None:
    assert text.csv_safe("=1+1") == "'=1+1"
    assert text.csv_safe("\t=1") == "'=1"
    assert text.csv_safe("\x1b-1") == "'-1"
    assert text.csv_safe("plain - text") == "plain - text"


@given(st.text())
def test_csv_text_never_starts_a_formula_nor_holds_a_control(raw: str) -> None:
    safe = text.csv_safe(raw)
    assert not safe.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert not any(unicodedata.category(ch) in ("Cc", "Cf") for ch in safe)


def test_markdown_has_no_markup_left() -> None:
    assert text.markdown_safe("a|b <img> [x](y) `c`") == r"a\|b \<img\> \[x\](y) \`c\`"


def test_our_signs_have_an_ascii_spelling() -> None:
    assert text.to_ascii("850 µs ± 3–4 ≈ é …\n│") == "850 us +/- 3-4 ~ e ...\n|"


@given(st.text())
def test_to_ascii_is_ascii(raw: str) -> None:
    assert text.to_ascii(raw).isascii()
