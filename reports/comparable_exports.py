"""Our own csv, json and jsonl exports as `Comparable`: summaries, for exports carry no samples.

All raise UsageError with the file, the row and what to do: `not-an-export`, `newer-export`, `empty-file`,
`several-runs`, `bad-row`, `bad-duration`.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from probes.errors import UsageError
from reports.comparable import (
    PHASES,
    CellSummary,
    Comparable,
    ComparableCell,
    ComparedPhase,
    checked_seconds,
    known_texts,
)
from reports.comparable_runs import DISTURBING, MODEL_FACTS, SETTINGS, TELLING
from reports.rows import ROWS_SCHEMA_VERSION
from reports.text import clean

_REQUIRED = ("phase", "status", "samples", "median_s")
_SETTINGS = ("backend", *(name for name in SETTINGS if name != "devices"))
"""Columns that are settings; `devices` are those that the build sees, not those chosen."""

Record = Mapping[str, Any]


def of_csv(text: str, label: str) -> Comparable:
    """A CSV export of ours: summaries, no samples.

    Raises UsageError: `not-an-export` for other columns, `empty-file` without a row, `several-runs`,
    `bad-duration`, `bad-row`.
    """
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        lines = [line for line in reader if line]
    except csv.Error as problem:
        raise UsageError(
            f"{label}: it is no CSV ({problem}): make it again", reason="not-an-export"
        ) from problem
    if not lines:
        raise UsageError(f"{label}: it is empty: make it again", reason="empty-file")
    columns = lines[0]
    records = []
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(columns):
            raise UsageError(
                f"{label}: line {number} has {len(line)} values under {len(columns)} columns: the file is cut"
                " short, make it again",
                reason="bad-row",
            )
        values = {name: _unguarded(value) or None for name, value in zip(columns, line, strict=True)}
        records.append(values)
    return _of_records(records, columns, label, source="csv")


def _unguarded(value: str) -> str:
    """Text as it was before a formula's start was guarded for spreadsheets."""
    return value[1:] if value[:1] == "'" and value[1:2] in ("=", "+", "-", "@") else value


def of_json(document: Record, label: str) -> Comparable:
    """A JSON export of ours. Raises UsageError as `of_csv` does, and `newer-export` for a later version."""
    version = document.get("schema_version")
    rows = document.get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError(
            f"{label}: it is JSON, but neither a saved run nor an export of `llmphase profile --format json`",
            reason="not-an-export",
        )
    if version != ROWS_SCHEMA_VERSION:
        raise UsageError(
            f"{label}: its rows have version {clean(str(version), limit=20)}, this llmphase reads"
            f" {ROWS_SCHEMA_VERSION}: update with `pip install --upgrade llmphase`, or export it again",
            reason="newer-export",
        )
    return _of_records(rows, list(rows[0]) if rows else list(_REQUIRED), label, source="json")


def of_jsonl(text: str, label: str) -> Comparable:
    """A JSON lines export of ours. Raises UsageError as `of_csv` does."""
    records: list[Record] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as problem:
            raise UsageError(
                f"{label}: line {number} is no JSON: the file is cut short, make it again", reason="bad-row"
            ) from problem
        if not isinstance(record, dict):
            raise UsageError(f"{label}: line {number} is no row of `--format jsonl`", reason="not-an-export")
        records.append(record)
    return _of_records(records, list(records[0]) if records else list(_REQUIRED), label, source="json")


def _of_records(records: Sequence[Record], columns: Sequence[str], label: str, *, source: str) -> Comparable:
    missing = [name for name in _REQUIRED if name not in columns]
    if missing:
        raise UsageError(
            f"{label}: it has no column {', '.join(missing)}, so it is no export of `llmphase profile`: give"
            " a saved run, or a csv or json that `llmphase report RUN -o FILE` wrote",
            reason="not-an-export",
        )
    if not records:
        raise UsageError(f"{label}: it has no rows: make it again", reason="empty-file")
    runs = tuple(dict.fromkeys(clean(str(r["run_id"]), limit=40) for r in records if r.get("run_id")))
    if len(runs) > 1:
        raise UsageError(
            f"{label}: it holds {len(runs)} runs ({', '.join(runs[:3])}{' ...' if runs[3:] else ''}): give"
            " each as a file of its own",
            reason="several-runs",
        )
    cells = [
        _record_cell(record, f"{label}, row {number}")
        for number, record in enumerate(records, start=1)
        if record.get("phase") in PHASES
    ]
    told = sorted(_warnings(records) & TELLING)
    first = records[0]
    return Comparable(
        label=label,
        source=source,
        started_at=_text(first.get("started_at")),
        machine={},
        engine=known_texts(
            {"version": first.get("engine_version"), "llmphase": first.get("llmphase_version")}
        ),
        cells=tuple(cells),
        notes=(f"It was exported with warnings: {', '.join(told)}.",) if told else (),
        is_disturbed=not DISTURBING.isdisjoint(told),
    )


def _warnings(records: Sequence[Record]) -> frozenset[str]:
    """Codes of all rows."""
    return frozenset(code for record in records for code in str(record.get("warnings") or "").split(";"))


def _text(value: object) -> str | None:
    return None if value is None else clean(str(value), limit=80)


def _record_cell(record: Record, where: str) -> ComparableCell:
    phase = cast(ComparedPhase, record["phase"])
    status = record.get("status")
    prompt = _count(record.get("prompt_tokens"), "prompt_tokens", where)
    cell = ComparableCell(
        model=known_texts(
            {"name": record.get("model_name"), **{name: record.get(name) for name in MODEL_FACTS}},
        ),
        settings=known_texts({name: record.get(name) for name in _SETTINGS}),
        phase=phase,
        prompt_tokens=prompt if phase in ("prefill", "ttft") else None,
        depth_tokens=_count(record.get("depth_tokens"), "depth_tokens", where) if phase != "load" else None,
        output_tokens=_count(record.get("output_tokens"), "output_tokens", where)
        if phase == "decode"
        else None,
        cache_state=_text(record.get("cache_state")) if phase == "load" else None,
        where=where,
    )
    if status != "ok":
        reason = _text(record.get("reason")) or "no measurement"
        return dataclasses.replace(cell, problem=f"{clean(str(status), limit=20)}: {reason}")
    return dataclasses.replace(cell, summary=_summary(record, where))


def _summary(record: Record, where: str) -> CellSummary:
    def optional(field: str, *, may_be_zero: bool = False) -> float | None:
        value = record.get(field)
        if value is None:
            return None
        return checked_seconds(value, field=field, where=where, may_be_zero=may_be_zero)

    return CellSummary(
        median_s=checked_seconds(record.get("median_s"), field="median_s", where=where),
        stddev_s=optional("stddev_s", may_be_zero=True),
        low_s=optional("ci_low_s", may_be_zero=True),
        high_s=optional("ci_high_s"),
        n=_count(record.get("samples"), "samples", where),
    )


def _count(value: object, field: str, where: str) -> int | None:
    if value is None:
        return None
    try:
        number = float(value) if isinstance(value, int | float | str) else -1.0
    except ValueError:
        number = -1.0
    if not 0 <= number < 2**53 or number != int(number):
        raise UsageError(
            f"{where}: {field} is {clean(str(value), limit=40)}, which is no count: remove the row, or make"
            " the file again",
            reason="bad-row",
        )
    return int(number)
