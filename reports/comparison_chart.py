"""Bars of several files' times over the first file's."""

from __future__ import annotations

from collections.abc import Sequence

from reports.comparison_report import RatioBar
from reports.text import to_ascii

_MIN_WIDTH = 40
_FIGURES = 6


def ratio_bars(bars: Sequence[RatioBar], *, width: int, unicode: bool) -> str | None:
    """A bar for each phase and file under a title, the first file's length at 1.00; None where there is
    nothing to draw, or no room."""
    if not bars or width < _MIN_WIDTH:
        return None
    heads = [f"{bar.phase:<7} {label}" for bar, label in zip(bars, _labels(bars), strict=True)]
    room = width - max(len(head) for head in heads) - _FIGURES - 2
    longest = max(1.0, *(bar.ratio for bar in bars))
    lines = ["Time over the first file's, mean over cells (1.00: as long)"]
    last = ""
    for bar, head in zip(bars, heads, strict=True):
        if bar.phase != last:
            base = f"{bar.phase:<7} 1"
            lines.append(_line(base, 1.0, longest, room, len(heads[0]), "░"))
            last = bar.phase
        lines.append(_line(head, bar.ratio, longest, room, len(heads[0]), "█"))
    text = "\n".join(lines)
    return text if unicode else to_ascii(text)


def _labels(bars: Sequence[RatioBar]) -> list[str]:
    widest = max(len(bar.file) for bar in bars)
    return [f"{bar.file:<{widest}}" for bar in bars]


def _line(head: str, ratio: float, longest: float, room: int, indent: int, fill: str) -> str:
    bar = fill * max(1, round(room * ratio / longest))
    return f"{head:<{indent}} {bar} {ratio:.2f}"
