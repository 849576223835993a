"""Logs of other programs, line by line: every source is one file here and one line in `PARSERS`.

Text in, requests out; nothing is opened here. Memory stays bounded however long the log is.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from reports.logs.base import Gathering, Load, Parser, Request, within
from reports.logs.batched_bench import BatchedBench
from reports.logs.json_text import JsonStream
from reports.logs.koboldcpp import Koboldcpp
from reports.logs.llama_bench import LlamaBench
from reports.logs.llama_prints import LlamaPrints
from reports.logs.llama_server import LlamaServer
from reports.logs.lm_studio import LmStudio
from reports.logs.loader import Loader
from reports.logs.ollama_json import OllamaJson
from reports.logs.ollama_verbose import OllamaVerbose
from reports.logs.server_json import ServerJson

__all__ = ["PARSERS", "Load", "LogRead", "Parser", "Request", "read_log"]

PARSERS: tuple[type[Parser], ...] = (
    LlamaServer,
    LlamaPrints,
    Loader,
    OllamaVerbose,
    OllamaJson,
    ServerJson,
    Koboldcpp,
    LmStudio,
    LlamaBench,
    BatchedBench,
)
"""Asked in this order until one takes a line for its own."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_LONGEST, _HALF = 4000, 2000
"""Of a longer line the parsers see both ends: no program's figures stand in the middle of a text."""
_WRAPPED = ("log", "msg", "message", "MESSAGE", "line")
"""Keys under which a collector (docker, journald, a server's JSON log) puts the line that a program wrote."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogRead:
    """All that a log told."""

    requests: tuple[Request, ...]
    """In order; of a very long log the first and the last ones."""
    n_requests: int
    n_left_out: int
    """Requests that were read and not kept."""
    n_lines: int
    load: Load
    """The last load, for a log without requests."""
    notes: tuple[str, ...]


def read_log(lines: Iterable[str]) -> LogRead:
    """Everything that the parsers find. Lines come without their ends."""
    reader = _Reader()
    for line in lines:
        reader.feed(line)
    return reader.close()


class _Reader:
    def __init__(self) -> None:
        self._parsers = [parser() for parser in PARSERS]
        self._offers = [(parser, parser.marks) for parser in self._parsers if parser.marks]
        self._tables = [parser for parser in self._parsers if parser.has_tables]
        self._marks = tuple(dict.fromkeys(mark for _, marks in self._offers for mark in marks))
        self._found = Gathering()
        self._json = JsonStream()
        self._number = 0

    def feed(self, line: str) -> None:
        self._number += 1
        text = _ANSI.sub("", line) if "\x1b" in line else line
        objects, is_all = self._json.feed(text)
        for value in objects:
            self._object(value)
        if not is_all and self._is_of_interest(text):
            self._offer(text if len(text) <= _LONGEST else f"{text[:_HALF]} {text[-_HALF:]}")

    def close(self) -> LogRead:
        for parser in self._parsers:
            parser.close(self._found)
        found = self._found
        return LogRead(
            requests=found.requests,
            n_requests=found.n_requests,
            n_left_out=found.n_left_out,
            n_lines=self._number,
            load=found.load,
            notes=tuple(found.notes),
        )

    def _is_of_interest(self, text: str) -> bool:
        """Most lines of a long log are not: a plain loop over a few words is all that they cost."""
        for mark in self._marks:
            if mark in text:
                return True
        return any(parser.in_table for parser in self._tables)

    def _offer(self, text: str) -> None:
        for parser, marks in self._offers:
            if not parser.in_table and not any(mark in text for mark in marks):
                continue
            if parser.line(text, self._number, self._found):
                return

    def _object(self, value: dict[str, object]) -> None:
        """Offered with the objects inside it, the outermost first; what no program knows may wrap a line."""
        for inner in within(value):
            if any(parser.document(inner, self._number, self._found) for parser in self._parsers):
                return
        for key in _WRAPPED:
            wrapped = value.get(key)
            if isinstance(wrapped, str):
                for line in wrapped.splitlines():
                    self._offer(line)
                return
