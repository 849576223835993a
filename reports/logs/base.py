"""What a log parser is, and what it gathers: requests with their facts, and the loads they ran under.

Facts are named as the fields of `Evidence`. A fact that a log does not state is absent, never 0.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

KEPT_REQUESTS = 2_000
"""Of a longer log the first and the last half of so many are kept, and the rest is counted."""
_MOST_NOTES = 200


@dataclasses.dataclass(slots=True, kw_only=True)
class Load:
    """One model loaded, as the loader's lines tell; shared by the requests that follow it."""

    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Names that begin with `_` are a parser's own notes."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Request:
    """One request, or one configuration of a benchmark, as a log tells of it."""

    source: str
    """Name of the parser."""
    line: int
    """Where its figures end, from 1."""
    label: str
    """What the log calls it; untrusted text, may be empty."""
    facts: dict[str, Any]
    expected: tuple[str, ...]
    """Facts that this source could have told."""
    notes: tuple[str, ...] = ()
    """What was put right, or left out, and why."""
    is_series: bool = True
    """One request after another; False for tests of a benchmark, which have no before and after."""
    load: Load = dataclasses.field(default_factory=Load)


class Gathering:
    """Everything found so far, in bounded memory."""

    def __init__(self) -> None:
        self._first: list[Request] = []
        self._last: deque[Request] = deque(maxlen=KEPT_REQUESTS // 2)
        self.n_requests = 0
        self.load = Load()
        self.notes: list[str] = []

    def begin_load(self) -> None:
        """A model begins to be loaded: what follows belongs to it."""
        if self.load.facts or self.n_requests:
            self.load = Load(facts={k: v for k, v in self.load.facts.items() if k in _OF_MACHINE})

    def add(self, request: Request) -> None:
        """A request that ran under the present load."""
        request.load = self.load
        self.n_requests += 1
        kept = self._first if len(self._first) < KEPT_REQUESTS // 2 else self._last
        kept.append(request)

    def note(self, text: str) -> None:
        """Something to know about the log as a whole, said once."""
        if text not in self.notes and len(self.notes) < _MOST_NOTES:
            self.notes.append(text)

    @property
    def requests(self) -> tuple[Request, ...]:
        """Those kept, in order."""
        return (*self._first, *self._last)

    @property
    def n_left_out(self) -> int:
        """Requests that were read and not kept."""
        return self.n_requests - len(self._first) - len(self._last)


_OF_MACHINE = frozenset(
    {"gpu_name", "n_gpus", "gpu_present", "cpu_name", "logical_cpus", "memory_bytes", "backend", "engine"}
)
"""Facts that outlive a load."""


class Parser:
    """Reads one program's lines. A new program is a new file and one line in the tuple of parsers."""

    name: ClassVar[str]
    """For a person: `ollama run --verbose`."""
    marks: ClassVar[tuple[str, ...]] = ()
    """Every line of interest holds one of these; a line without any is offered only inside a table."""
    has_tables: ClassVar[bool] = False
    in_table: bool = False
    """A table was begun: its rows may hold none of the marks."""
    gives: ClassVar[tuple[str, ...]] = ()
    """Facts that this source can tell of a request."""
    looks_for: ClassVar[str] = ""
    """The wording it knows, for a person whose log has none."""
    obtain: ClassVar[str] = ""
    """How to make the program print it."""

    def line(self, text: str, number: int, found: Gathering) -> bool:
        """Reads a line that holds one of the marks; True where it belongs to this program alone."""
        del text, number, found
        return False

    def document(self, value: Mapping[str, Any], number: int, found: Gathering) -> bool:
        """Reads a JSON object that ends on line `number`; True where it is this program's."""
        del value, number, found
        return False

    def close(self, found: Gathering) -> None:
        """The log ended: what is still open is handed over."""
        del found


def within(value: Mapping[str, Any], depth: int = 4) -> Iterator[Mapping[str, Any]]:
    """An object and those inside it, down to a depth."""
    yield value
    if depth == 0:
        return
    for item in value.values():
        inner = item if isinstance(item, list) else [item]
        for one in inner[:1000]:
            if isinstance(one, dict):
                yield from within(one, depth - 1)


def steps_rate(n_output: int | None, decode_s: float | None) -> float | None:
    """Tokens a second of the answer: the first of n tokens comes from the prompt pass, n - 1 steps make the
    rest."""
    if n_output is None or not decode_s or n_output < 2:
        return None
    return (n_output - 1) / decode_s


def known(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Without the facts that are None."""
    return {name: value for name, value in facts.items() if value is not None}
