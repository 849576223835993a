"""What standard output can show, decided once."""

from __future__ import annotations

import os
import shutil
import sys
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
    live = stream.isatty()
    colour = live and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return TerminalStyle(width=_width(live), colour=colour, unicode=_has_blocks(stream))


def note(text: str, *, quiet: bool = False) -> None:
    """One line to the person, on standard error."""
    if not quiet:
        print(text, file=sys.stderr, flush=True)


def _width(live: bool) -> int:
    if not live and not os.environ.get("COLUMNS", "").isdigit():
        return _PIPED_WIDTH
    columns = shutil.get_terminal_size((_PIPED_WIDTH, 24)).columns
    return max(_NARROWEST, min(columns, _WIDEST))


def _has_blocks(stream: TextIO) -> bool:
    try:
        "─█░µ±⡇".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
