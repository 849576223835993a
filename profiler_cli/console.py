"""How a report looks on a stream, and remarks to the person."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TextIO

from profiler_cli.streams import is_live, one_line, width_of, write_error
from reports.formats import TerminalStyle

_NARROWEST = 40
_WIDEST = 160


def style_of(stream: TextIO | None) -> TerminalStyle:
    """Width, colour and characters for a stream: 80 columns without colour where it is no terminal.

    NO_COLOR takes colour away, COLUMNS sets the width; characters beyond ASCII are used where the
    stream's encoding has them.
    """
    width = max(_NARROWEST, min(width_of(stream), _WIDEST))
    colour = is_live(stream) and "NO_COLOR" not in os.environ
    return TerminalStyle(width=width, colour=colour, unicode=_has_blocks(stream))


def note(text: str, *, quiet: bool = False) -> None:
    """A remark to the person, on standard error; broken at words where that is a terminal."""
    if quiet:
        return
    text = one_line(text)
    if is_live(sys.stderr):
        text = textwrap.fill(text, width_of(sys.stderr), break_long_words=False, break_on_hyphens=False)
    write_error(text + "\n")


def _has_blocks(stream: TextIO | None) -> bool:
    try:
        "─█░µ±⡇".encode((stream.encoding if stream else None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
