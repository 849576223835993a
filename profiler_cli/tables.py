"""Plain aligned tables and cells that are safe to print."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from profiler_cli.console import style_of
from reports.text import clean, to_ascii


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of equal length in columns as wide as their widest cell, two spaces apart; never wrapped."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def shown(text: str, *, limit: int = 300) -> str:
    """Text of any origin as one harmless line that standard output can write."""
    line = clean(text, limit=limit)
    return line if line.isascii() or style_of(sys.stdout).unicode else to_ascii(line)
