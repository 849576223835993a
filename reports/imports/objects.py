"""JSON objects out of text that may begin with other lines, hold a list or an object a line, or end early."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

_DECODER = json.JSONDecoder()
_BARE_NUMBER = re.compile(r"(?<=[\s:,\[])-?(?:nan|inf)(?:\(ind\))?(?=\s*[,}\]])")
"""How C++ prints what is no number; JSON as Python reads it spells it in capitals."""
_OBJECT_LINE = re.compile(r"^[ \t]*(?:\[[ \t]*)?(?=\{)", re.MULTILINE)
"""Where an object may begin: what a program says before its JSON does not start so."""
_LIST_START = re.compile(r"^[ \t]*\[\s*(?:\{|\]|$)", re.MULTILINE)
_BETWEEN = re.compile(r"[\s,]*")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """What was found, in order."""

    found: tuple[tuple[int, dict[str, Any]], ...]
    """Line (from 1) where each object begins, and the object."""
    cut_line: int | None
    """Where the last object begins that is not whole: the text was cut short there."""
    broken_line: int | None
    """Where an object begins that is not whole though others follow."""
    unclosed: bool
    """A list was opened and not closed: its program ended before it was done."""


def read_objects(text: str) -> Objects:
    """All objects at the top level of `text`, or in a list there."""
    text = _BARE_NUMBER.sub(_in_capitals, text) if _BARE_NUMBER.search(text) else text
    found: list[tuple[int, dict[str, Any]]] = []
    failed: list[int] = []
    position, last_good = 0, -1
    while (start := _next_object(text, position)) is not None:
        try:
            value, position = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            failed.append(start)
            position = start + 1
            continue
        last_good = start
        found.append((_line(text, start), value))
    inside = [start for start in failed if start < last_good]
    after = [start for start in failed if start > last_good]
    return Objects(
        found=tuple(found),
        cut_line=_line(text, after[0]) if after else None,
        broken_line=_line(text, inside[0]) if inside else None,
        unclosed=bool(found and _LIST_START.search(text) and "]" not in text[position:]),
    )


def _in_capitals(match: re.Match[str]) -> str:
    sign = "-" if match[0].startswith("-") else ""
    return f"{sign}Infinity" if "inf" in match[0] else "NaN"


def _next_object(text: str, position: int) -> int | None:
    """Where the next object begins: right after the last one, else at the start of a line."""
    between = _BETWEEN.match(text, position)
    if position and between and text[between.end() : between.end() + 1] == "{":
        return between.end()
    line = _OBJECT_LINE.search(text, position)
    return line.end() if line else None


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
