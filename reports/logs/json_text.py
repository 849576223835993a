"""JSON objects in a stream of lines: alone on a line, after other words, or over many lines."""

from __future__ import annotations

import re
from typing import Any

from reports.imports.objects import read_objects

MOST_CHARACTERS = 4 * 2**20
"""Of one object over many lines; what is longer is no reply of a program that is read here."""
_START = re.compile(r'\{\s*(?:"|$)')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


class JsonStream:
    """Finds objects, holding at most one that is not yet whole."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._characters = 0
        self._depth = 0
        self._column = 0

    def feed(self, line: str) -> tuple[list[dict[str, Any]], bool]:
        """Objects that end on this line, and whether the line holds nothing but what is in them."""
        start = _START.search(line) if "{" in line else None
        if self._lines and (start is None or start.start() > self._column):
            return self._continue(line), False
        self._lines = []
        if start is None:
            return [], False
        text = line[start.start() :]
        depth = _depth(text)
        if depth > 0:
            self._lines, self._characters = [text], len(text)
            self._depth, self._column = depth, start.start()
            return [], False
        found = [value for _, value in read_objects(text).found]
        return found, bool(found)

    def _continue(self, line: str) -> list[dict[str, Any]]:
        self._lines.append(line)
        self._characters += len(line)
        self._depth += _depth(line)
        if self._characters > MOST_CHARACTERS:
            self._lines = []
        elif self._depth <= 0:
            text = "\n".join(self._lines)
            self._lines = []
            return [value for _, value in read_objects(text).found]
        return []


def _depth(text: str) -> int:
    """Braces opened and not closed, strings aside."""
    bare = _STRING.sub("", text)
    return bare.count("{") - bare.count("}")
