"""Damaged model files through the real command; the long run is `tests/benchmarks/fuzz_headers.py`."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from program import TESTS

if TYPE_CHECKING:
    from forked import Forks

MIB = 2**20
CASES = 500


@pytest.fixture(autouse=True)
def _needs_forks() -> None:
    pytest.importorskip("resource", reason="commands are forked")


def test_damaged_files_are_refused_or_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TESTS / "benchmarks"))
    import fuzz_headers

    cases = fuzz_headers.mutations.damaged(list(fuzz_headers.seeds(tmp_path)), first=1_000_000, count=CASES)
    figures = fuzz_headers.fuzz(tmp_path, cases, tmp_path / "kept", measure_every=25, engine_every=0)
    assert figures.problems == []
    assert figures.cases == CASES
    assert figures.refused > CASES // 2
    assert figures.measured["scripted"]["0"] > 0
    assert figures.most_memory_bytes < fuzz_headers.LIMIT_BYTES


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def _many_strings(path: Path) -> None:
    """Four arrays of sixteen million empty strings each: half a gigabyte of nothing."""
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 4))
        for index in range(4):
            file.write(_text(b"k%d" % index) + struct.pack("<IIQ", 9, 8, 1 << 24))
            file.seek(8 << 24, 1)
        file.truncate(file.tell())


def _many_numbers(path: Path) -> None:
    """Arrays that are short enough to be kept, and thousands of them."""
    numbers = struct.pack("<1024Q", *range(1 << 40, (1 << 40) + 1024))
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 8000))
        for index in range(8000):
            file.write(_text(b"k%d" % index) + struct.pack("<IIQ", 9, 10, 1024) + numbers)


def _long_keys(path: Path) -> None:
    """Each of them takes four bytes a character, for one that needs them."""
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 2000))
        for index in range(2000):
            key = "\U0001f600".encode() + b"%08d" % index + b"x" * 60_000
            file.write(_text(key) + struct.pack("<IB", 0, 1))


@pytest.mark.parametrize("write", [_many_strings, _many_numbers, _long_keys])
def test_headers_made_to_be_dear_cost_little(forks: Forks, tmp_path: Path, write: object) -> None:
    path = tmp_path / "dear.gguf"
    assert callable(write)
    write(path)
    outcome = forks.run(["profile", path], limit_bytes=1024 * MIB, longest_s=10)
    assert outcome.code == 2, outcome.said
    assert "is damaged" in outcome.said
    assert outcome.memory_bytes < 400 * MIB
