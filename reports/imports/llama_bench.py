"""A file of llama-bench, in any of its five formats and of any age, as tests."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from probes.errors import UsageError
from reports.imports.llama_bench_text import (
    RawRows,
    is_table_head,
    read_csv,
    read_json,
    read_sql,
    read_table,
)
from reports.llama_bench import KINDS, BenchFile, BenchTest, with_samples
from reports.text import clean

_LARGEST = 2**63 - 1
_CSV_HEAD = re.compile(r"^(?=[^\n]*\bavg_ts\b)(?=[^\n]*\bn_gen\b)[\w\"', ]+\r?$", re.M)
_JSON_KEY = re.compile(r'"avg_ts"\s*:')
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
_OLD_BACKENDS = {
    "cuda": "CUDA",
    "metal": "Metal",
    "vulkan": "Vulkan",
    "sycl": "SYCL",
    "kompute": "Kompute",
    "opencl": "OpenCL",
    "rpc": "RPC",
    "blas": "BLAS",
}
"""Flags that older versions had in place of `backends`."""
_FIGURES = ("avg_ns", "avg_ts", "stddev_ns", "stddev_ts")
_EMPTY = BenchTest(n_prompt=0, n_gen=0, n_depth=0, avg_ts=0.0)


def is_llama_bench(text: str) -> bool:
    """Whether this looks like output of llama-bench."""
    return _reader(text) is not None


def parse_llama_bench(text: str) -> BenchFile:
    """The tests of a file, exact repeats once.

    Averages and deviations are those of the samples where there are any: the written `stddev_ns` is made in
    whole numbers of 64 bits and goes wrong for long tests. Raises UsageError naming the row for a duration
    that is none (`bad-duration`) or a value of the wrong kind (`bad-row`), and for a file without tests
    (`no-tests`).
    """
    reader = _reader(text)
    if reader is None:
        raise UsageError("it is no output of llama-bench: json, jsonl, csv, sql or md", reason="no-tests")
    raw: RawRows = reader(text)
    tests = [_test(values, where) for where, values in raw.rows]
    if not tests:
        raise UsageError("it holds no test: llama-bench ended before the first was done", reason="no-tests")
    notes = list(raw.notes)
    unique = tuple(dict.fromkeys(tests))
    if len(unique) < len(tests):
        notes.append(
            ("repeated-rows", f"{len(tests) - len(unique)} rows stand in the file twice: they count once.")
        )
    return BenchFile(tests=unique, notes=tuple(notes))


def _reader(text: str) -> Callable[[str], RawRows] | None:
    if re.search(r"^\s*INSERT\s+INTO\s+[\"'`]?llama_bench\b", text, re.I | re.M):
        return read_sql
    if _JSON_KEY.search(text):
        return read_json
    if _CSV_HEAD.search(text):
        return read_csv
    return read_table if any(map(is_table_head, text.splitlines())) else None


def _test(values: Mapping[str, Any], where: str) -> BenchTest:
    """One row as a test; what the row does not have is None."""
    row = _renamed({str(name): value for name, value in values.items()})
    lengths: dict[str, Any] = {name: _length(name, row, where) for name in ("n_prompt", "n_gen", "n_depth")}
    test = dataclasses.replace(_EMPTY, **lengths)
    if not test.name or test.name.startswith(" "):
        raise _bad_row(where, "it has neither prompt nor generated tokens")
    where = f"{where}, {test.name}"
    samples = _samples(row.get("samples_ns"), where)
    average_ns, average_ts = (_duration(name, row, where) for name in ("avg_ns", "avg_ts"))
    others: dict[str, Any] = {
        name: _field(name, row.get(name), where)
        for name in KINDS
        if name not in lengths and name not in _FIGURES
    }
    test = dataclasses.replace(test, **others)
    if samples:
        return with_samples(test, samples)
    if average_ns is None and average_ts is None:
        raise _bad_row(where, "it has no time: neither samples_ns nor avg_ns nor avg_ts")
    tokens = test.n_prompt + test.n_gen
    average_ts = average_ts or tokens * 1e9 / (average_ns or 1.0)
    average_ns = average_ns or tokens * 1e9 / average_ts
    return _with_averages(test, average_ns, average_ts, _deviation(row.get("stddev_ts"), where))


def _with_averages(
    test: BenchTest, average_ns: float, average_ts: float, deviation_ts: float | None
) -> BenchTest:
    """The deviation of the time follows from that of the rate, which llama-bench reckons in floats. One of
    exactly zero stands for a single repetition: unknown."""
    share = deviation_ts / average_ts if deviation_ts else None
    return dataclasses.replace(
        test,
        avg_ns=max(round(average_ns), 1),
        stddev_ns=None if share is None else round(average_ns * share),
        avg_ts=average_ts,
        stddev_ts=deviation_ts or None,
    )


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    """Columns of older versions under the names of today."""
    if "load_mode" not in row and "use_mmap" in row:
        direct = _is_true(row.get("use_direct_io"))
        row["load_mode"] = "dio" if direct else "mmap" if _is_true(row["use_mmap"]) else "none"
    if "backends" not in row and any(flag in row for flag in _OLD_BACKENDS):
        names = [name for flag, name in _OLD_BACKENDS.items() if _is_true(row.get(flag))]
        row["backends"] = ",".join(names) or "CPU"
    return row


def _is_true(value: object) -> bool:
    return str(value).lower() in _TRUE


def _length(name: str, row: Mapping[str, Any], where: str) -> int:
    """A count of tokens; a column that older versions lack is none."""
    value = _whole(name, row.get(name), where)
    if value is not None and value < 0:
        raise _bad_row(where, f"{name} is below zero")
    return value or 0


def _duration(name: str, row: Mapping[str, Any], where: str) -> float | None:
    """A time in nanoseconds or a rate, above zero; None where there is none."""
    value = row.get(name)
    return None if value is None or value == "" else _figure(name, value, where)


def _deviation(value: object, where: str) -> float | None:
    """Of the rate, from zero up. None where there is none, and for NaN: the root that llama-bench takes of a
    difference goes below zero where all repetitions took the same time."""
    number = _number(value)
    if value is None or value == "" or (number is not None and math.isnan(number)):
        return None
    return 0.0 if number == 0 else _figure("stddev_ts", value, where)


def _samples(value: object, where: str) -> tuple[int, ...]:
    """Nanoseconds of each repetition."""
    if value is None or value == "":
        return ()
    if not isinstance(value, list):
        raise _bad_row(where, "samples_ns is no list")
    return tuple(
        max(round(_figure(f"samples_ns[{index}]", one, where)), 1) for index, one in enumerate(value)
    )


def _figure(name: str, value: object, where: str) -> float:
    number = None if isinstance(value, bool) else _number(value)
    if number is None or not 0 < number <= _LARGEST:
        raise UsageError(
            f"{where}: {name} is {_shown(value)}, which is neither time nor rate: remove the row, or make the"
            " file again",
            reason="bad-duration",
        )
    return number


def _field(name: str, value: object, where: str) -> str | int | bool | None:
    """A field of its kind; flags may be written as numbers and numbers as text."""
    kind = KINDS[name]
    if kind == "str":
        return None if value is None else clean(str(value), limit=4096)
    if value is None or value == "":
        return None
    if kind == "bool":
        word = str(value).lower()
        if word not in _TRUE + _FALSE:
            raise _bad_row(where, f"{name} is {_shown(value)}, neither 0 nor 1")
        return word in _TRUE
    return _whole(name, value, where)


def _whole(name: str, value: object, where: str) -> int | None:
    if value is None or value == "":
        return None
    number = _number(value)
    if number is None or not math.isfinite(number) or number != int(number) or abs(number) > _LARGEST:
        raise _bad_row(where, f"{name} is {_shown(value)}, no whole number")
    return int(value) if isinstance(value, int) else int(number)


def _number(value: object) -> float | None:
    """None for what is none; flags of older versions count as 1 and 0."""
    if isinstance(value, str):
        value = {"true": 1, "false": 0, "auto": -1}.get(value.lower(), value)
    try:
        return float(value) if isinstance(value, bool | int | float | str) else None
    except (ValueError, OverflowError):
        return None


def _shown(value: object) -> str:
    return clean(str(value), limit=40) or "nothing"


def _bad_row(where: str, problem: str) -> UsageError:
    return UsageError(f"{where}: {problem}: mend or remove the row", reason="bad-row")
