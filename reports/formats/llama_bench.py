"""llama-bench's own formats but for its table: JSON, JSON lines, CSV and SQL.

Every field stands in llama-bench's order, what we add after it. CSV and SQL quote every value and carry no
samples; SQL has llama-bench's columns alone, so that it can be added to a table that llama-bench made.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator

from probes.errors import UsageError
from reports.formats import TerminalStyle
from reports.llama_bench import KINDS, BenchTest, Value
from reports.report import Report
from reports.text import clean, csv_safe

_SQL_TYPES = {"str": "TEXT", "int": "INTEGER", "bool": "INTEGER", "float": "REAL"}


def required_tests(report: Report) -> tuple[BenchTest, ...]:
    """The report's tests; none where nothing was measured. Raises UsageError where it came from rows."""
    if report.tests is None:
        raise UsageError(
            "these rows do not say all that llama-bench's formats hold: give the saved run instead"
            " (`llmphase runs` lists them)",
            reason="no-tests",
        )
    return report.tests


def render_json(report: Report, style: TerminalStyle) -> str:
    """A list with one object a test; samples after llama-bench's fields."""
    del style
    return json.dumps([_object(test) for test in required_tests(report)], indent=2, allow_nan=False) + "\n"


def render_jsonl(report: Report, style: TerminalStyle) -> str:
    """One object a line."""
    del style
    return "".join(json.dumps(_object(test), allow_nan=False) + "\n" for test in required_tests(report))


def render_csv(report: Report, style: TerminalStyle) -> str:
    """A head line, then one line a test."""
    del style
    tests = required_tests(report)
    extras = list(dict.fromkeys(name for test in tests for name, _ in test.extras))
    out = io.StringIO()
    out.write(",".join([*KINDS, *extras]) + "\n")
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for test in tests:
        added = dict(test.extras)
        values = [*_values(test, _csv_text), *(_plain(added.get(name), _csv_text) for name in extras)]
        writer.writerow(values)
    return out.getvalue()


def render_sql(report: Report, style: TerminalStyle) -> str:
    """A table `llama_bench` where there is none yet, then one INSERT a test."""
    del style
    columns = ",\n".join(f"  {name} {_SQL_TYPES[kind]}" for name, kind in KINDS.items())
    lines = [f"CREATE TABLE IF NOT EXISTS llama_bench (\n{columns}\n);\n"]
    for test in required_tests(report):
        values = ", ".join(_quoted(value) for value in _values(test, _sql_text))
        lines.append(f"INSERT INTO llama_bench ({', '.join(KINDS)}) VALUES ({values});")
    return "\n".join(lines) + "\n"


def _object(test: BenchTest) -> dict[str, object]:
    fields: dict[str, object] = {name: getattr(test, name) for name in KINDS}
    samples = {"samples_ns": test.samples_ns, "samples_ts": [round(rate, 3) for rate in test.samples_ts]}
    return fields | samples | dict(test.extras)


def _values(test: BenchTest, text: Callable[[str], str]) -> Iterator[str | None]:
    for name in KINDS:
        yield _plain(getattr(test, name), text)


def _plain(value: Value, text: Callable[[str], str]) -> str | None:
    """As llama-bench writes it: flags as 1 and 0, rates with six decimals."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:.6f}" if math.isfinite(value) else None
    return str(value) if isinstance(value, int) else text(value)


def _csv_text(text: str) -> str:
    return csv_safe(text)


def _sql_text(text: str) -> str:
    # llama-bench itself leaves quotes as they are, which ends the statement early.
    return clean(text, limit=4096).replace("'", "''")


def _quoted(value: str | None) -> str:
    return "NULL" if value is None else f"'{value}'"
