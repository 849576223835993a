"""The crossover by hand, and a map that fits, says what its signs mean and has the request on its side."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simple_phases import SIMPLE, fit

from reports.evidence import Evidence
from reports.phase_diagram import PhaseMap, calibrated, draw, phase_map
from reports.phases import PhaseModel
from reports.waits import waits_of


def around(
    prompt: int, output: int, *, cached: int = 0, model: PhaseModel | None = SIMPLE, **facts: float
) -> PhaseMap:
    evidence = Evidence(n_prompt=prompt, n_prompt_cached=cached, n_output=output, **facts)  # type: ignore[arg-type]
    made = phase_map(evidence, calibrated(evidence, model, waits_of(evidence)))
    assert made
    return made


def test_the_crossover_is_the_answer_that_takes_as_long_as_the_prompt() -> None:
    # 100 tokens take 1 s, as 10 steps do; n tokens are n - 1 steps.
    assert around(100, 5).crossover_tokens(100) == 11
    # 105 tokens take 1.05 s: the 11th step is needed.
    assert around(100, 5).crossover_tokens(105) == 12


def test_a_cached_prefix_costs_nothing() -> None:
    # 10 tokens behind 90 cached ones take 0.1 s: one step.
    assert around(100, 5, cached=90).crossover_tokens(10) == 2


def test_the_map_goes_through_the_request_as_it_was_measured() -> None:
    # Measured 2 s where the fit says 1 s, and 0.8 s for 4 steps where it says 0.4 s: 200 ms a step.
    assert around(100, 5, prefill_s=2.0).crossover_tokens(100) == 21
    assert around(100, 5, prefill_s=2.0, decode_s=0.8).crossover_tokens(100) == 11


def test_a_deeper_cache_makes_the_answer_dearer() -> None:
    model = PhaseModel(prefill=fit(0, 0.01, 0), prefill_reason=None, decode=fit(0, 0.001), decode_reason=None)
    # At depth 100 a step takes 0.1 s, each further one 1 ms more: 1 s is reached with the 10th (1.045 s).
    assert around(100, 5, model=model).crossover_tokens(100) == 11


def test_without_a_prompt_any_answer_outweighs_it() -> None:
    assert around(0, 5).crossover_tokens(0) == 1


def test_rates_of_another_tool_carry_a_map_too() -> None:
    made = around(100, 11, model=None, prefill_tok_s=100.0, decode_tok_s=10.0)
    assert made.crossover_tokens(100) == 11
    assert made.measured_tokens is None
    assert "From one rate a phase" in (draw(made, width=80, unicode=True) or "")


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(),
        Evidence(n_prompt=100, prefill_s=1.0, n_output=5),
        Evidence(n_prompt=100, n_output=5, decode_s=1.0),
        Evidence(n_prompt=100, prefill_s=1.0, decode_tok_s=5.0),
    ],
)
def test_what_is_not_known_has_no_map(evidence: Evidence) -> None:
    assert phase_map(evidence, calibrated(evidence, None, waits_of(evidence))) is None


def cells(text: str, side: str) -> list[str]:
    """The rows of the map, the longest answers first."""
    found = (re.match(rf" *\w*{re.escape(side)}(.*)", line) for line in text.splitlines())
    return [row[1] for row in found if row]


@pytest.mark.parametrize(
    ("unicode", "decode", "crossover", "prefill", "side"), [(True, *"·━▒┤"), (False, *".=#|")]
)
def test_from_long_answers_down_decode_then_the_crossover_then_prefill(
    unicode: bool, decode: str, crossover: str, prefill: str, side: str
) -> None:
    text = draw(around(2048, 4), width=80, unicode=unicode)
    assert text
    rows = cells(text, side)
    # Octaves from 2, one below the request's 4, to 2,048.
    assert len(rows) == 11
    order = f"{decode}{crossover}{prefill}"
    for column in zip(*rows, strict=True):
        places = [order.index(sign) for sign in column if sign in order]
        assert places == sorted(places)
        assert places.count(1) <= 1
    assert sum(row.count(crossover) for row in rows) > 60


def test_the_line_lies_where_it_was_computed() -> None:
    text = draw(around(2048, 4), width=80, unicode=True)
    assert text
    lines = text.splitlines()
    ruler = lines[next(i for i, line in enumerate(lines) if "└" in line) + 1]
    at_1k = ruler.index("1k")
    # 1,024 tokens take 10.24 s: 103 steps, 104 tokens, nearest to 128.
    (row,) = [line for line in lines if line[at_1k : at_1k + 1] == "━" and "crossover" not in line]
    assert row.startswith("128┤")


def test_the_request_is_marked_on_its_side_of_the_line() -> None:
    for output, neighbour in ((4, "▒"), (2000, "·")):
        text = draw(around(2048, output), width=80, unicode=True)
        assert text
        (row,) = [row for row in cells(text, "┤") if "X" in row]
        place = row.index("X")
        assert row[place - 2 : place + 3] == f"{neighbour} X {neighbour}"
        assert f"X this request: 2,048 and {output:,} tokens" in text


def test_the_cached_prefix_is_named() -> None:
    text = draw(around(2048, 4, cached=2000), width=80, unicode=True)
    assert text
    assert "prompt [tokens] behind 2,000 cached ones" in text
    assert "X this request: 48 and 4 tokens" in text


def test_where_it_extrapolates_is_said() -> None:
    assert "Beyond 2,048 tokens it extrapolates." in (draw(around(100, 4), width=60, unicode=True) or "")


def test_a_narrow_page_has_no_map() -> None:
    assert draw(around(100, 4), width=39, unicode=True) is None


@settings(deadline=None, max_examples=40)
@given(
    prompt=st.integers(0, 10**7),
    output=st.integers(1, 10**7),
    width=st.integers(40, 200),
    unicode=st.booleans(),
)
def test_any_request_fits_the_page(prompt: int, output: int, width: int, unicode: bool) -> None:
    text = draw(around(prompt, output), width=width, unicode=unicode)
    assert text
    assert max(map(len, text.splitlines())) <= width
    assert sum(row.count("X") for row in cells(text, "┤" if unicode else "|")) == 1
    assert unicode or text.isascii()
