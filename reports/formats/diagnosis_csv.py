"""A diagnosis as flat CSV rows: `kind, code, value, unit, saved_s, measured_saved_s, text`.

| kind | code | value, unit | text |
| --- | --- | --- | --- |
| verdict | the class | confidence, 0 to 1 | the answer |
| contributing | a further class | | |
| phase | a part of the wait | seconds | |
| total | wait, ttft, decode, crossover | seconds, tok/s, tokens | |
| remedy | its stable code | predicted wait, seconds | what to do |
| evidence | the fact's name | its value and unit | its source |
| unknown | the fact's name | | |
| request | its verdict | wait, seconds | number, name and counts, for a log |
| trend, warning | | | a sentence |

`saved_s` and `measured_saved_s` belong to remedies. What is not known is empty, never 0.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator

from reports.diagnosis_report import DiagnosisReport
from reports.fact_text import plain_facts, unit_of, value_text
from reports.formats import TerminalStyle
from reports.text import csv_safe

COLUMNS = ("kind", "code", "value", "unit", "saved_s", "measured_saved_s", "text")

_Cell = str | float | int | None


def render(report: DiagnosisReport, style: TerminalStyle) -> str:
    """A head line, then the rows in the order of the table above."""
    del style
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in (*_verdict(report), *_times(report), *_remedies(report), *_facts(report), *_log(report)):
        writer.writerow([_cell(value) for value in row])
    return out.getvalue()


def _row(
    kind: str,
    code: str,
    value: _Cell = None,
    unit: str = "",
    *,
    saved_s: float | None = None,
    measured_saved_s: float | None = None,
    text: str = "",
) -> tuple[_Cell, ...]:
    return kind, code, value, unit, saved_s, measured_saved_s, text


def _verdict(report: DiagnosisReport) -> Iterator[tuple[_Cell, ...]]:
    yield _row("verdict", report.verdict, report.confidence, "confidence", text=" ".join(report.headline))
    for verdict in report.contributing:
        yield _row("contributing", verdict)


def _times(report: DiagnosisReport) -> Iterator[tuple[_Cell, ...]]:
    for name, seconds in report.phases.items():
        yield _row("phase", name, seconds, "s")
    yield _row("total", "wait", report.wait_s, "s")
    yield _row("total", "ttft", report.ttft_s, "s")
    yield _row("total", "decode", report.decode_tok_s, "tok/s")
    yield _row("total", "crossover", report.crossover_tokens, "tokens")


def _remedies(report: DiagnosisReport) -> Iterator[tuple[_Cell, ...]]:
    for advice in report.advice:
        yield _row(
            "remedy",
            advice.remedy.code,
            advice.remedy.predicted_wait_s,
            "s",
            saved_s=advice.remedy.saved_s,
            measured_saved_s=advice.measured_saved_s,
            text=advice.remedy.title,
        )


def _facts(report: DiagnosisReport) -> Iterator[tuple[_Cell, ...]]:
    evidence = report.evidence
    for name in plain_facts(evidence):
        source = evidence.sources.get(name, "")
        yield _row("evidence", name, _value(name, getattr(evidence, name)), unit_of(name), text=source)
    for name in report.unknown:
        yield _row("unknown", name)


def _log(report: DiagnosisReport) -> Iterator[tuple[_Cell, ...]]:
    for one in report.logged.requests if report.logged else ():
        known = one.evidence.known(
            "n_prompt", "n_prompt_cached", "n_output", "prefill_s", "decode_s", "decode_tok_s"
        )
        figures = ", ".join(f"{name} {value}" for name, value in known.items())
        text = " ".join(part for part in (f"request {one.number}", one.label, figures) if part)
        yield _row("request", one.verdict, one.wait_s or None, "s", text=text)
    for sentence in report.logged.trend if report.logged else ():
        yield _row("trend", "", text=sentence)
    for notice in report.logged.notices if report.logged else ():
        yield _row("warning", notice.code, text=notice.text)


def _value(name: str, value: object) -> _Cell:
    """A number as it is stored, a flag as `true` or `false`, the rest in words."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, int | float) else value_text(name, value)


def _cell(value: _Cell) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, str):
        return csv_safe(value)
    return f"{value:.9g}" if isinstance(value, float) else str(value)
