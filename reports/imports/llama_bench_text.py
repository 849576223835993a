"""llama-bench's five formats as raw rows: where each stands and its values by column name.

Nothing is checked here but the form; `reports.imports.llama_bench` makes tests of the rows.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from probes.errors import UsageError
from reports.formats.llama_bench_md import TITLES
from reports.imports.objects import read_objects

CUT_SHORT = "cut-short"
_MAX_FIELD_CHARACTERS = 2**20
_INSERT = re.compile(
    r"^\s*INSERT\s+INTO\s+[\"'`]?llama_bench[\"'`]?\s*(?:\(([^)]*)\))?\s*VALUES\s*\((.*)$", re.I
)
_CREATE = re.compile(r"CREATE\s+TABLE[^(]*llama_bench[\"'`]?\s*\((.*?)\)\s*;", re.I | re.S)
_SQL_VALUE = re.compile(r"\s*(?:'((?:[^']|'')*)'|([^\s',()]+))\s*(,|\)\s*;?\s*$)")
_TABLE_FIELDS = {title: field for field, title in TITLES.items()} | {
    "model": "model_type",
    "size": "model_size",
    "params": "model_n_params",
    "backend": "backends",
    "mmap": "use_mmap",
    "dio": "use_direct_io",
    "th": "n_threads",
}
"""Head of a column of the Markdown table -> field."""
_TEST = re.compile(r"(?:pp ?(\d+))?\+?(?:tg ?(\d+))?(?: @ d(\d+))?")
_BUILD = re.compile(r"^build: (\S+) \((\d+)\)\s*$", re.M)
_ESCAPED = re.compile(r"\\([\\`*_{}\[\]<>#|~!])")
_TABLE_END = re.compile(r"(?<!\\)\|")
_SCALES = {
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "k": 10**3,
    "M": 10**6,
    "B": 10**9,
    "T": 10**12,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RawRows:
    """Rows as they stand in a file."""

    rows: tuple[tuple[str, Mapping[str, Any]], ...]
    """Where (`row 3 (line 81)`) and the values: of JSON's types, else text."""
    notes: tuple[tuple[str, str], ...] = ()
    """Stable code and text."""


def read_json(text: str) -> RawRows:
    """A list, or one object a line; lines before them are passed over, an end that is missing is noted."""
    objects = read_objects(text)
    if objects.broken_line is not None:
        raise UsageError(
            f"line {objects.broken_line}: it is no whole JSON object: mend or remove it", reason="bad-row"
        )
    rows = tuple((f"row {n} (line {line})", value) for n, (line, value) in enumerate(objects.found, start=1))
    notes = []
    if objects.cut_line is not None or objects.unclosed:
        where = "" if objects.cut_line is None else f" in line {objects.cut_line}"
        words = (
            f"The file is cut short{where}, as after a crash: {len(rows)} whole tests were read, what came "
            "after them is lost. Run llama-bench again for the rest."
        )
        notes.append((CUT_SHORT, words))
    return RawRows(rows=rows, notes=tuple(notes))


def read_csv(text: str) -> RawRows:
    """A head line that names the columns, then a test a line; lines before the head are passed over."""
    lines = text.splitlines(keepends=True)
    head = next((i for i, line in enumerate(lines) if "avg_ts" in line and "," in line), 0)
    reader = csv.reader(io.StringIO("".join(lines[head:])))
    rows: list[tuple[str, Mapping[str, Any]]] = []
    notes: list[tuple[str, str]] = []
    try:
        columns = [name.strip() for name in next(reader)]
        for values in reader:
            if not values:
                continue
            where = f"row {len(rows) + 1} (line {head + reader.line_num})"
            if len(values) != len(columns):
                if _is_at_end(lines, head + reader.line_num):
                    notes.append(_cut_row(where, len(rows)))
                    break
                raise _bad_row(where, f"it has {len(values)} values for {len(columns)} columns")
            rows.append((where, dict(zip(columns, map(_unguarded, values), strict=True))))
    except csv.Error as problem:
        raise _bad_row(f"line {head + reader.line_num}", str(problem)) from None
    return RawRows(rows=tuple(rows), notes=tuple(notes))


def _is_at_end(lines: Sequence[str], line: int) -> bool:
    return not any(rest.strip() for rest in lines[line:])


def _cut_row(where: str, read: int) -> tuple[str, str]:
    return CUT_SHORT, f"The file is cut short in {where}: {read} whole tests were read before it."


def _bad_row(where: str, problem: str) -> UsageError:
    return UsageError(f"{where}: {problem}: mend or remove it", reason="bad-row")


def _unguarded(value: str) -> str:
    """Without the apostrophe that keeps a spreadsheet from taking text for a formula."""
    return value[1:] if value[:2] in ("'=", "'+", "'-", "'@") else value


def read_sql(text: str) -> RawRows:
    """The INSERT statements; columns they do not name are those of the CREATE TABLE."""
    created = _CREATE.search(text)
    table = (
        [part.split()[0].strip("\"'`") for part in created[1].split(",") if part.split()] if created else []
    )
    rows: list[tuple[str, Mapping[str, Any]]] = []
    notes: list[tuple[str, str]] = []
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        statement = _INSERT.match(line)
        if statement is None:
            continue
        columns = [name.strip("\"'` ") for name in statement[1].split(",")] if statement[1] else table
        where = f"row {len(rows) + 1} (line {number})"
        values = _sql_values(statement[2], len(columns))
        if values is None:
            if _is_at_end(lines, number) and not line.rstrip().endswith(";"):
                notes.append(_cut_row(where, len(rows)))
                break
            raise _bad_row(where, f"its values can not be told apart, or are not {len(columns)}")
        rows.append((where, dict(zip(columns, values, strict=True))))
    return RawRows(rows=tuple(rows), notes=tuple(notes))


def _sql_values(text: str, count: int) -> list[str | None] | None:
    """The values of one INSERT. llama-bench leaves quotes inside a value as they are: that is tried too."""
    values: list[str | None] = []
    position = 0
    while match := _SQL_VALUE.match(text, position):
        quoted, bare = match[1], match[2]
        values.append(quoted.replace("''", "'") if quoted is not None else None if bare == "NULL" else bare)
        position = match.end()
        if match[3] != ",":
            return values if len(values) == count and position == len(text) else None
    whole = re.fullmatch(r"\s*'(.*)'\)\s*;\s*", text)
    parts: list[str | None] = list(whole[1].split("', '")) if whole else []
    return parts if len(parts) == count else None


def read_table(text: str) -> RawRows:
    """The Markdown table and the build below it; sizes and counts are as rounded as the table has them."""
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if is_table_head(line))
    columns = [_TABLE_FIELDS.get(name, name) for name in _cells(lines[head])]
    builds = _BUILD.findall(text)
    # Several builds below one another: a table can not tell which made which row.
    build = {"build_commit": builds[0][0], "build_number": builds[0][1]} if len(builds) == 1 else {}
    rows: list[tuple[str, Mapping[str, Any]]] = []
    for number, line in enumerate(lines[head + 1 :], start=head + 2):
        if not line.lstrip().startswith("|") or is_table_head(line) or set(line) <= set("|-: "):
            continue
        where = f"row {len(rows) + 1} (line {number})"
        values = _cells(line)
        if len(values) != len(columns):
            raise _bad_row(where, f"it has {len(values)} cells for {len(columns)} columns")
        rows.append((where, build | _table_row(dict(zip(columns, values, strict=True)), where)))
    return RawRows(rows=tuple(rows))


def is_table_head(line: str) -> bool:
    """Whether this line names the columns of llama-bench's table."""
    cells = _cells(line) if line.lstrip().startswith("|") else []
    return "test" in cells and "t/s" in cells


def _cells(line: str) -> list[str]:
    parts = _TABLE_END.split(line.strip())
    return [_ESCAPED.sub(r"\1", part.strip()) for part in parts[1 : -1 if parts[-1] == "" else None]]


def _table_row(cells: dict[str, str], where: str) -> dict[str, Any]:
    test = _TEST.fullmatch(cells.pop("test"))
    if test is None or not (test[1] or test[2]):
        raise _bad_row(where, "its test is neither pp nor tg")
    rate, _, deviation = cells.pop("t/s").partition("±")
    row: dict[str, Any] = dict(cells)
    for field in ("model_size", "model_n_params"):
        row[field] = _scaled(cells.get(field, ""))
    row |= {"n_prompt": test[1] or "0", "n_gen": test[2] or "0", "n_depth": test[3] or "0"}
    return row | {"avg_ts": rate.strip(), "stddev_ts": deviation.strip() or None}


def _scaled(text: str) -> int | None:
    """`92.10 MiB` or `134.52 M` as a number; None for anything else."""
    number, _, unit = text.partition(" ")
    try:
        return round(float(number) * _SCALES[unit])
    except (ValueError, KeyError, OverflowError):
        return None
