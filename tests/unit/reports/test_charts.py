"""Charts fit, keep proportions and say their units; both plotext generations draw the same figures."""

from __future__ import annotations

import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports import charts
from reports.charts import Point, Share

POINTS = (Point(tokens=128, value=0.29), Point(tokens=512, value=1.22), Point(tokens=2048, value=5.98))


def wait(**seconds: float) -> list[Share]:
    return [Share(name=name, seconds=value) for name, value in seconds.items()]


def test_ttft_chart_has_title_unit_ticks_and_every_point() -> None:
    text = charts.ttft_chart(POINTS, width=80, unicode=True)
    assert text
    lines = text.splitlines()
    assert lines[0] == "Time to first token [s]"
    assert lines[-1].strip() == "prompt length [tokens]"
    assert lines[-2].split() == ["128", "512", "2k"]
    assert text.count("●") == 3
    assert max(map(len, lines)) <= 80


def test_short_times_are_drawn_in_milliseconds() -> None:
    points = [Point(tokens=1, value=0.004), Point(tokens=8, value=0.02)]
    text = charts.ttft_chart(points, width=80, unicode=True)
    assert text
    assert text.startswith("Time to first token [ms]")
    assert "20┤" in text


def test_predicted_points_have_a_sign_of_their_own() -> None:
    points = (*POINTS, Point(tokens=4096, value=14.9, predicted=True))
    text = charts.ttft_chart(points, width=80, unicode=False)
    assert text
    assert text.splitlines()[0] == "Time to first token [s]  ? predicted"
    assert text.isascii()
    assert text.count("?") == 2


@pytest.mark.parametrize("points", [(), POINTS[:1], (POINTS[0], POINTS[0])])
def test_one_length_is_no_chart(points: tuple[Point, ...]) -> None:
    assert charts.decode_chart(points, width=80, unicode=True) is None


def test_a_decode_chart_starts_at_zero() -> None:
    points = [Point(tokens=0, value=151.0), Point(tokens=2048, value=127.0)]
    text = charts.decode_chart(points, width=80, unicode=True)
    assert text
    assert "\n  0┤" in text
    assert "\n200┤" in text
    assert text.splitlines()[-2].split() == ["0", "2k"]


def test_a_chart_does_not_carry_over_into_the_next() -> None:
    first = charts.ttft_chart(POINTS, width=80, unicode=True)
    charts.decode_chart([Point(tokens=1, value=9.0), Point(tokens=7, value=8.0)], width=60, unicode=False)
    assert charts.ttft_chart(POINTS, width=80, unicode=True) == first


def test_plotext_5_is_drawn_through_its_module_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: dict[str, tuple[object, ...]] = {}
    old = types.ModuleType("plotext")
    names = [
        "clear_figure",
        "theme",
        "limit_size",
        "plot_size",
        "xlabel",
        "plot",
        "scatter",
        "xlim",
        "xticks",
        "ylim",
        "yticks",
    ]
    for name in names:
        setattr(old, name, lambda *args, _name=name, **_: calls.__setitem__(_name, args))
    old.build = lambda: "\x1b[0mcanvas"
    old.uncolorize = lambda text: text.replace("\x1b[0m", "")
    monkeypatch.setitem(__import__("sys").modules, "plotext", old)
    text = charts.ttft_chart(POINTS, width=70, unicode=True)
    assert text == "Time to first token [s]\ncanvas"
    assert set(calls) == set(names)
    assert calls["plot_size"] == (70, charts.HEIGHT)
    assert calls["scatter"] == ([128.0, 512.0, 2048.0], [0.29, 1.22, 5.98])
    assert calls["xticks"] == ([128.0, 512.0, 2048.0], ["128", "512", "2k"])
    # 5.98 / 4 = 1.495, next round step 2.
    assert calls["yticks"] == ([0.0, 2.0, 4.0, 6.0], ["0", "2", "4", "6"])


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_ticks_are_few_start_at_zero_and_cover_the_top(top: float) -> None:
    ticks = charts.nice_ticks(top)
    assert ticks[0] == 0
    assert 2 <= len(ticks) <= 6
    assert ticks[-1] >= top * (1 - 1e-6)
    assert ticks == sorted(set(ticks))


def test_wait_bar_is_in_proportion_and_readable_without_colour() -> None:
    # 60 columns: 1/10, 6/10, 3/10.
    text = charts.wait_bar(
        wait(load=1.0, prefill=6.0, decode=3.0), title="One request", width=60, unicode=True
    )
    assert text
    title, bar, *legend = text.splitlines()
    assert title == "One request"
    assert bar == "█" * 6 + "▒" * 36 + "░" * 18
    assert legend == [
        "██ load     1.00 s    10 %",
        "▒▒ prefill  6.00 s    60 %",
        "░░ decode   3.00 s    30 %",
    ]


def test_a_short_phase_is_still_seen() -> None:
    text = charts.wait_bar(wait(load=0.001, prefill=100.0, decode=0.0), title="t", width=60, unicode=False)
    assert text
    assert text.splitlines()[1] == "#" + "-" * 59


def test_nothing_to_split_is_no_bar() -> None:
    assert charts.wait_bar([], title="t", width=60, unicode=True) is None
    assert charts.wait_bar(wait(load=0.0), title="t", width=60, unicode=True) is None


@given(st.lists(st.floats(min_value=0, max_value=1e6), min_size=1, max_size=4), st.integers(40, 200))
def test_a_bar_always_fills_the_width(values: list[float], width: int) -> None:
    shares = [Share(name=str(i), seconds=value) for i, value in enumerate(values)]
    text = charts.wait_bar(shares, title="t", width=width, unicode=True)
    if text:
        assert len(text.splitlines()[1]) == width
