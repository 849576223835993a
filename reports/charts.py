"""The only module that draws: line charts by plotext and one bar by hand, as plain text without colour
codes.

plotext 5 and 6 share a name and hardly a function; `_frame_5` and `_frame_6` are all that knows the
difference.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

from reports import units
from reports.text import to_ascii

HEIGHT = 14
"""Lines of a chart: frame, ticks and axis label in it, the title not."""
MIN_WIDTH = 40
_TICK_GAP = 7
"""Columns that a tick label of the x axis needs."""
_DATE_GAP = 18
"""Columns that a date on the x axis needs."""
_Y_STEPS = 4

_FILLS = "█▒░▓╱▞"
"""As many as a wait has parts, so that each has its own."""
_MARK, _PREDICTED_MARK = "●", "○"
_ASCII_MARK, _ASCII_PREDICTED_MARK = "o", "?"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One figure over a length."""

    tokens: int
    value: float
    """Seconds or tokens per second, as the chart says."""
    predicted: bool = False
    """Has a sign of its own; over layers it marks the cliff."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One part of a wait."""

    name: str
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChartData:
    """What a model's charts show; empty where it was not measured."""

    ttft: tuple[Point, ...] = ()
    """Seconds to the first token by prompt length."""
    ttft_title: str = "Time to first token"
    """Of another program's file: what it timed in its place."""
    decode: tuple[Point, ...] = ()
    """Tokens per second by depth."""
    wait: tuple[Share, ...] = ()
    """One request's wait: load, prefill, decode."""
    wait_title: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BytesPoint:
    """One quantization's decode rate."""

    label: str
    n_bytes: int
    """Weights read for one token."""
    tokens_per_s: float
    is_off_line: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BytesChart:
    """Decode rates by bytes read, and the line through those that follow them."""

    title: str
    points: tuple[BytesPoint, ...]
    line: tuple[tuple[float, float], ...]
    """(bytes, tokens per second) along the fitted line; empty without one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """A chart in numbers, ready for either plotext."""

    x: list[float]
    y: list[float]
    marks: list[str]
    """The sign of each point."""
    x_label: str
    x_ticks: list[float]
    x_tick_labels: list[str]
    y_ticks: list[float]
    y_tick_labels: list[str]
    width: int
    unicode: bool
    curve: tuple[list[float], list[float]] | None = None
    """The line to draw, empty for none; None: from point to point."""

    def line(self) -> tuple[list[float], list[float]]:
        """The line's own points."""
        return (self.x, self.y) if self.curve is None else self.curve

    def by_mark(self) -> list[tuple[str, list[float], list[float]]]:
        """Each sign with its points, in the order of their first ones."""
        return [
            (
                mark,
                [x for x, own in zip(self.x, self.marks, strict=True) if own == mark],
                [y for y, own in zip(self.y, self.marks, strict=True) if own == mark],
            )
            for mark in dict.fromkeys(self.marks)
        ]


def ttft_chart(
    points: Sequence[Point], *, width: int, unicode: bool, title: str = "Time to first token"
) -> str | None:
    """Time to first token against prompt length; None with fewer than two points, for a line needs two."""
    top = max((point.value for point in points), default=0.0)
    scale, unit = (1.0, "s") if top >= 1 else (1e-3, "ms")
    scaled = [dataclasses.replace(point, value=point.value / scale) for point in points]
    return _chart(scaled, f"{title} [{unit}]", "prompt length [tokens]", width, unicode)


def decode_chart(points: Sequence[Point], *, width: int, unicode: bool) -> str | None:
    """Decode rate against depth; None with fewer than two points."""
    return _chart(points, "Decode rate [tokens/s]", "depth: tokens already in the cache", width, unicode)


def layers_chart(points: Sequence[Point], *, title: str, width: int, unicode: bool) -> str | None:
    """A rate against layers on devices, the cliff with a sign of its own; None with fewer than two points."""
    return _chart(points, title, "layers on devices", width, unicode, apart="cliff")


def _chart(
    points: Sequence[Point], title: str, x_label: str, width: int, unicode: bool, apart: str = "predicted"
) -> str | None:
    """`apart` is what the sign of its own stands for."""
    if len({point.tokens for point in points}) < 2 or width < MIN_WIDTH:
        return None
    ordered = sorted(points, key=lambda point: point.tokens)
    y_ticks = nice_ticks(max(point.value for point in ordered))
    x_ticks = _spaced([point.tokens for point in ordered], width)
    plain, predicted = (_MARK, _PREDICTED_MARK) if unicode else (_ASCII_MARK, _ASCII_PREDICTED_MARK)
    frame = _Frame(
        x=[float(point.tokens) for point in ordered],
        y=[point.value for point in ordered],
        marks=[predicted if point.predicted else plain for point in ordered],
        x_label=x_label,
        x_ticks=[float(n) for n in x_ticks],
        x_tick_labels=[units.tick(n) for n in x_ticks],
        y_ticks=y_ticks,
        y_tick_labels=[f"{tick:g}" for tick in y_ticks],
        width=width,
        unicode=unicode,
    )
    note = f"  {predicted} {apart}" if predicted in frame.marks else ""
    return f"{title}{note}\n{_drawn(frame)}"


def bytes_chart(chart: BytesChart, *, width: int, unicode: bool) -> str | None:
    """Decode rate against the bytes that a token reads, with the fitted line; None with fewer than two
    amounts of bytes. Ticks are the names of what was measured there."""
    points = sorted(chart.points, key=lambda point: point.n_bytes)
    low, high = (points[0].n_bytes, points[-1].n_bytes) if points else (0, 0)
    if low == high or width < MIN_WIDTH:
        return None
    gap = max(len(point.label) for point in points) + 1
    named = {point.n_bytes: point.label for point in points}
    ticks = _spaced(list(named), width, gap)
    y_ticks = nice_ticks(max(point.tokens_per_s for point in points))
    on, off = (_MARK, _PREDICTED_MARK) if unicode else (_ASCII_MARK, _ASCII_PREDICTED_MARK)
    frame = _Frame(
        x=[float(point.n_bytes) for point in points],
        y=[point.tokens_per_s for point in points],
        marks=[off if point.is_off_line else on for point in points],
        x_label=f"weights read for a token, from {units.size(low)} to {units.size(high)}",
        x_ticks=[float(tick) for tick in ticks],
        x_tick_labels=[named[tick] for tick in ticks],
        y_ticks=y_ticks,
        y_tick_labels=[f"{tick:g}" for tick in y_ticks],
        width=width,
        unicode=unicode,
        curve=([x for x, _ in chart.line], [y for _, y in chart.line]),
    )
    note = f"  {off} off the line" if off in frame.marks else ""
    return f"{chart.title} [tokens/s]{note}\n{_drawn(frame)}"


def _drawn(frame: _Frame) -> str:
    """The chart's lines without its title, blank ones left out."""
    drawn = _draw(frame)
    text = drawn if frame.unicode else to_ascii(drawn)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def time_chart(
    points: Sequence[tuple[float, float, str]], *, title: str, width: int, unicode: bool
) -> str | None:
    """Values over time: (seconds since the epoch, value, the one-letter sign of its kind), oldest first.

    Where several fall into one column of the chart, their median stands for those of a kind. None with fewer
    than two moments.
    """
    if len({moment for moment, _, _ in points}) < 2 or width < MIN_WIDTH:
        return None
    first, last = points[0][0], points[-1][0]
    binned: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for moment, value, mark in points:
        column = round((moment - first) / (last - first) * (width - _TICK_GAP))
        binned.setdefault((column, mark), []).append((moment, value))
    kept = sorted(
        (statistics.median(m for m, _ in bin), statistics.median(v for _, v in bin), mark)
        for (_, mark), bin in binned.items()
    )
    y_ticks = nice_ticks(max(value for _, value, _ in kept))
    ticks = max(2, width // _DATE_GAP)
    x_ticks = [first + (last - first) * i / (ticks - 1) for i in range(ticks)]
    frame = _Frame(
        x=[moment for moment, _, _ in kept],
        y=[value for _, value, _ in kept],
        marks=[mark for _, _, mark in kept],
        x_label="time [UTC]",
        x_ticks=x_ticks,
        x_tick_labels=[units.moment_tick(tick, last - first) for tick in x_ticks],
        y_ticks=y_ticks,
        y_tick_labels=[f"{tick:g}" for tick in y_ticks],
        width=width,
        unicode=unicode,
    )
    return f"{title}\n{_drawn(frame)}"


def nice_ticks(top: float) -> list[float]:
    """Round ticks from zero to at or just above `top`: steps of 1, 2, 2.5 or 5 times a power of ten."""
    if top <= 0 or not math.isfinite(top):
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(top / _Y_STEPS))
    step = next(f * power for f in (1.0, 2.0, 2.5, 5.0, 10.0) if f * power * _Y_STEPS >= top * (1 - 1e-9))
    return [round(i * step, 12) for i in range(math.ceil(top / step - 1e-9) + 1)]


def _spaced(tokens: Sequence[int], width: int, gap_columns: int = _TICK_GAP) -> list[int]:
    """The lengths that get a tick: both ends, and from the largest down each that is far enough from the
    others."""
    low, high = min(tokens), max(tokens)
    gap = (high - low) * gap_columns / (width - gap_columns)
    kept = [low, high]
    for n in sorted(set(tokens), reverse=True):
        if all(abs(n - other) >= gap for other in kept):
            kept.append(n)
    return sorted(kept)


def _draw(frame: _Frame) -> str:
    import plotext

    return _frame_6(plotext, frame) if hasattr(plotext, "figure") else _frame_5(plotext, frame)


def _line_mark(frame: _Frame) -> str:
    return "braille" if frame.unicode else "."


def _frame_6(plotext, frame: _Frame) -> str:  # type: ignore[no-untyped-def]
    """By plotext 6: figures, rulers and signals."""
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    plotext.terminal.limit(False, False)
    figure.plot_size(frame.width, HEIGHT)
    figure.label(frame.x_label, "x")
    if all(frame.line()):
        figure.draw(figure.signal(*frame.line(), marker=_line_mark(frame)).lines())
    for mark, x, y in frame.by_mark():
        figure.draw(figure.signal(x, y, marker=mark))
    figure.ruler("x", "lower").lim(frame.x[0], frame.x[-1]).ticks(frame.x_ticks, frame.x_tick_labels)
    figure.ruler("y", "left").lim(0, frame.y_ticks[-1]).ticks(frame.y_ticks, frame.y_tick_labels)
    return str(figure.build().string(colorless=True))


def _frame_5(plotext, frame: _Frame) -> str:  # type: ignore[no-untyped-def]
    """By plotext 5: one figure of module functions."""
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.limit_size(False, False)
    plotext.plot_size(frame.width, HEIGHT)
    plotext.xlabel(frame.x_label)
    if all(frame.line()):
        plotext.plot(*frame.line(), marker=_line_mark(frame))
    for mark, x, y in frame.by_mark():
        plotext.scatter(x, y, marker=mark)
    plotext.xlim(frame.x[0], frame.x[-1])
    plotext.xticks(frame.x_ticks, frame.x_tick_labels)
    plotext.ylim(0, frame.y_ticks[-1])
    plotext.yticks(frame.y_ticks, frame.y_tick_labels)
    return str(plotext.uncolorize(plotext.build()))


def wait_bar(shares: Sequence[Share], *, title: str, width: int, unicode: bool) -> str | None:
    """One bar under its title that splits a wait in proportion, with a legend line for each part; None where
    there is nothing to split.

    Every part that is not zero gets at least one column, so that a short phase is seen; the largest gives it
    up.
    """
    total = sum(share.seconds for share in shares)
    if total <= 0 or width < MIN_WIDTH:
        return None
    columns = _columns([share.seconds for share in shares], width)
    bar = "".join(_FILLS[i % len(_FILLS)] * n for i, n in enumerate(columns))
    names = max(len(share.name) for share in shares)
    times = [units.duration(share.seconds) for share in shares]
    longest = max(len(text) for text in times)
    legend = []
    for i, share in enumerate(shares):
        key = _FILLS[i % len(_FILLS)] * 2
        percent = units.percent(share.seconds / total)
        legend.append(f"{key} {share.name:<{names}}  {times[i]:>{longest}}  {percent:>6}")
    text = "\n".join([title, bar, *legend])
    return text if unicode else to_ascii(text)


def _columns(values: Sequence[float], width: int) -> list[int]:
    """Whole columns that sum to `width`, in proportion to `values`."""
    total = sum(values)
    columns = [max(round(value / total * width), 1) if value > 0 else 0 for value in values]
    columns[columns.index(max(columns))] += width - sum(columns)
    return columns
