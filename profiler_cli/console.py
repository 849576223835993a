"""What standard output can show, decided once."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TextIO

from reports.formats import TerminalStyle

_PIPED_WIDTH = 80
_NARROWEST = 40
_WIDEST = 160


def style_of(stream: TextIO) -> TerminalStyle:
    """Width, colour and characters for a stream: 80 columns without colour where it is no terminal.

    NO_COLOR takes colour away, COLUMNS sets the width; characters beyond ASCII are used where the
    stream's encoding has them.
    """
    colour = stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    width = max(_NARROWEST, min(width_of(stream), _WIDEST))
    return TerminalStyle(width=width, colour=colour, unicode=_has_blocks(stream))


def width_of(stream: TextIO) -> int:
    """Columns of a stream: COLUMNS where it is set, else the terminal's, else 80."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _PIPED_WIDTH
    except (OSError, ValueError):
        return _PIPED_WIDTH


def note(text: str, *, quiet: bool = False) -> None:
    """A remark to the person, on standard error; broken at words where that is a terminal."""
    if quiet:
        return
    if sys.stderr.isatty():
        text = textwrap.fill(text, width_of(sys.stderr), break_long_words=False, break_on_hyphens=False)
    print(text, file=sys.stderr, flush=True)


def _has_blocks(stream: TextIO) -> bool:
    try:
        "─█░µ±⡇".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
