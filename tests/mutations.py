"""Damages model files: seeded changes of headers and bodies, each the same for the same seed.

A change knows what it hits (a count, a length, a type, a number, text), so that most of the damaged files get
past the first check and meet the next.
"""

from __future__ import annotations

import dataclasses
import os
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

Kind = Literal["count", "length", "type", "number", "text"]

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_STRING, _ARRAY = 8, 9
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_MARKED_STRINGS = 50
"""Of one array: a vocabulary has tens of thousands, all alike to a reader."""
_ODD_NUMBERS = (
    *(0, 1, 2, 3, 7, 8, 9, 10, 31, 32, 63, 255, 512, 1024, 4095, 65_535, 65_536, 1 << 20),
    *((1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1),
)
_ODD_TEXT = (
    b"\x1b]0;owned\x07\x1b[2J\x1b[31m",
    b"[red]markup[/red]<script>|",
    b"=cmd|' /C calc'!A0",
    "\u202eelif\u2066\u200b".encode(),
    b"line\nbreak\r\x00\x85",
    b"\xff\xfe\xc3\x28\xf0\x28\x8c\x28",
    b"%s%n{0}{x!r}\\",
)
_LARGEST_FILE = 16 << 30


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One place of a header."""

    start: int
    size: int
    kind: Kind


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """A good file to damage."""

    name: str
    data: bytes
    """The whole file, or of a large one its header alone."""
    file_bytes: int
    fields: tuple[Field, ...]
    header_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A damaged file: its bytes, and its size where zeros follow them."""

    seed: str
    changes: tuple[str, ...]
    data: bytes
    file_bytes: int

    def write(self, path: Path) -> None:
        """The zeros take no room on the disk."""
        path.write_bytes(self.data)
        if self.file_bytes > len(self.data):
            os.truncate(path, self.file_bytes)


class _Layout:
    """Walks a good header and notes its places."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 4
        self.fields: list[Field] = []

    def walk(self) -> None:
        self._number(_U32, "number")
        n_tensors, n_keys = self._number(_U64, "count"), self._number(_U64, "count")
        for _ in range(n_keys):
            self._text()
            self._value(self._number(_U32, "type"))
        for _ in range(n_tensors):
            self._text()
            for _ in range(self._number(_U32, "count")):
                self._number(_U64, "number")
            self._number(_U32, "type")
            self._number(_U64, "number")

    def _value(self, type_number: int) -> None:
        if type_number == _STRING:
            self._text()
        elif type_number == _ARRAY:
            item_type, count = self._number(_U32, "type"), self._number(_U64, "count")
            if item_type == _STRING:
                for index in range(count):
                    self._text(marked=index < _MARKED_STRINGS)
            else:
                self._mark(count * _SCALAR_BYTES[item_type], "number")
        else:
            self._mark(_SCALAR_BYTES[type_number], "number")

    def _text(self, *, marked: bool = True) -> None:
        length: int = _U64.unpack_from(self._data, self.position)[0]
        if marked:
            self._mark(_U64.size, "length")
            self._mark(length, "text")
        else:
            self.position += _U64.size + length

    def _number(self, form: struct.Struct, kind: Kind) -> int:
        value: int = form.unpack_from(self._data, self.position)[0]
        self._mark(form.size, kind)
        return value

    def _mark(self, size: int, kind: Kind) -> None:
        self.fields.append(Field(self.position, size, kind))
        self.position += size


def seed_of(path: Path, *, whole: bool = True) -> Seed:
    """Prepare a good model file; not `whole`: its weights are replaced by zeros."""
    data = path.read_bytes()
    layout = _Layout(data)
    layout.walk()
    return Seed(
        name=path.name,
        data=data if whole else data[: layout.position],
        file_bytes=len(data),
        fields=tuple(layout.fields),
        header_bytes=layout.position,
    )


# Changes. Each takes the bytes, alters them in place and says what it did.

Change = Callable[[random.Random, bytearray, Seed], str]


def _odd_number(rng: random.Random, data: bytearray, seed: Seed) -> str:
    """A count, length, type or number becomes another one."""
    field = rng.choice([field for field in seed.fields if field.kind != "text" and field.size])
    size = min(field.size, 8)
    old = int.from_bytes(data[field.start : field.start + size], "little")
    new = rng.choice([*_ODD_NUMBERS, old + 1, old - 1, old * 2, rng.getrandbits(8 * size)]) % (
        1 << (8 * size)
    )
    data[field.start : field.start + size] = new.to_bytes(size, "little")
    return f"{field.kind} at {field.start}: {old} -> {new}"


def _small_number(rng: random.Random, data: bytearray, seed: Seed) -> str:
    """A number keeps its plausible size: such files get furthest."""
    field = rng.choice([field for field in seed.fields if field.kind == "number" and field.size in (4, 8)])
    new = rng.choice([0, 1, rng.randrange(64), rng.randrange(100_000)])
    data[field.start : field.start + field.size] = new.to_bytes(field.size, "little")
    return f"number at {field.start} -> {new}"


def _odd_text(rng: random.Random, data: bytearray, seed: Seed) -> str:
    """A key, name or text becomes a hostile one of the same length."""
    field = rng.choice([field for field in seed.fields if field.kind == "text" and field.size])
    text = (rng.choice(_ODD_TEXT) * (field.size // 6 + 1))[: field.size]
    data[field.start : field.start + field.size] = text
    return f"text at {field.start}"


def _longer_text(rng: random.Random, data: bytearray, seed: Seed) -> str:
    """A text gets up to a megabyte more, its length told rightly."""
    lengths = [index for index, field in enumerate(seed.fields) if field.kind == "length"]
    field = seed.fields[rng.choice(lengths)]
    old: int = _U64.unpack_from(seed.data, field.start)[0]
    more = rng.choice(_ODD_TEXT) * rng.choice([1, 100, 100_000])
    data[field.start + 8 : field.start + 8] = more
    data[field.start : field.start + 8] = _U64.pack(old + len(more))
    return f"text at {field.start} longer by {len(more)}"


def _bit(rng: random.Random, data: bytearray, seed: Seed) -> str:
    at = rng.randrange(min(seed.header_bytes, len(data)))
    data[at] ^= 1 << rng.randrange(8)
    return f"bit at {at}"


def _noise(rng: random.Random, data: bytearray, seed: Seed) -> str:
    at, size = rng.randrange(min(seed.header_bytes, len(data))), rng.randint(1, 64)
    data[at : at + size] = rng.randbytes(len(data[at : at + size]))
    return f"{size} bytes at {at}"


def _removed(rng: random.Random, data: bytearray, seed: Seed) -> str:
    at, size = rng.randrange(min(seed.header_bytes, len(data))), rng.randint(1, 64)
    del data[at : at + size]
    return f"{size} bytes gone at {at}"


def _repeated(rng: random.Random, data: bytearray, seed: Seed) -> str:
    at, size = rng.randrange(min(seed.header_bytes, len(data))), rng.randint(1, 4096)
    data[at:at] = data[at : at + size]
    return f"{size} bytes twice at {at}"


def _cut(rng: random.Random, data: bytearray, seed: Seed) -> str:
    end = rng.randrange(rng.choice([64, min(seed.header_bytes, len(data)), len(data)]) + 1)
    del data[end:]
    return f"cut at {end}"


def _weights(rng: random.Random, data: bytearray, seed: Seed) -> str:
    """Bytes of the body: to a reader of headers nothing is wrong."""
    for _ in range(rng.randint(1, 200)):
        at = rng.randrange(min(seed.header_bytes, len(data) - 1), len(data))
        data[at] = rng.randrange(256)
    return "weights"


_CHANGES: tuple[tuple[Change, int], ...] = (
    (_odd_number, 8),
    (_small_number, 4),
    (_odd_text, 2),
    (_longer_text, 1),
    (_bit, 3),
    (_noise, 2),
    (_removed, 1),
    (_repeated, 1),
    (_cut, 1),
    (_weights, 1),
)
"""Each with its weight."""


def damaged(seeds: Sequence[Seed], first: int, count: int) -> Iterator[Case]:
    """Cases number `first` and following, `count` of them; a number always gives the same case."""
    changes, weights = zip(*_CHANGES, strict=True)
    for number in range(first, first + count):
        rng = random.Random(number)
        seed = seeds[number % len(seeds)]
        data = bytearray(seed.data)
        done = []
        for change in rng.choices(changes, weights, k=rng.choice([1, 1, 1, 2, 4])):
            if len(data) > 1:
                done.append(change(rng, data, seed))
        size = max(len(data), seed.file_bytes + len(data) - len(seed.data))
        if rng.random() < 0.1:
            size = rng.randrange(len(data), _LARGEST_FILE)
            done.append(f"followed by zeros up to {size}")
        yield Case(seed=seed.name, changes=tuple(done), data=bytes(data), file_bytes=size)
