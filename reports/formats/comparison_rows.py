"""A comparison as flat rows, for csv and json: one per new file and cell, the same columns in the same order.

New columns go to the end. None means not known or not applicable, never 0.
"""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

from reports.comparison import ComparedCell, Comparison
from reports.comparison_gate import failure
from reports.comparison_matching import name_of
from reports.comparison_report import ComparisonReport
from reports.formats import TerminalStyle
from reports.text import clean, csv_safe

SCHEMA_VERSION = 1
COLUMNS = (
    *("base", "new", "like_for_like", "model_name", "quantization", "label", "phase"),
    *("prompt_tokens", "depth_tokens", "output_tokens", "cache_state"),
    *("base_median_s", "new_median_s", "base_samples", "new_samples"),
    *("ratio", "ci_low", "ci_high", "interval", "p_value", "detectable", "verdict", "reason", "failure"),
)


def render_csv(report: ComparisonReport, style: TerminalStyle) -> str:
    """A head line and the rows; `ratio` is new over base, so above 1 is slower."""
    del style
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in _rows(report):
        writer.writerow(_csv_cell(row[name]) for name in COLUMNS)
    return out.getvalue()


def render_json(report: ComparisonReport, style: TerminalStyle) -> str:
    """`{"schema_version": 1, "comparisons": [...], "rows": [...], "failures": [...]}`."""
    del style
    document = {
        "schema_version": SCHEMA_VERSION,
        "headline": report.headline,
        "comparisons": [_head(one) for one in report.comparisons],
        "rows": _rows(report),
        "notes": report.notes,
        "failures": report.failures,
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def render_jsonl(report: ComparisonReport, style: TerminalStyle) -> str:
    """Each row as one JSON object on its own line."""
    del style
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in _rows(report))


def _head(one: Comparison) -> dict[str, Any]:
    return {
        "base": name_of(one.base),
        "base_started_at": one.base.started_at,
        "new": name_of(one.new),
        "new_started_at": one.new.started_at,
        "like_for_like": one.like_for_like,
        "differences": [
            {"kind": d.kind, "name": d.name, "base": d.base, "new": d.new, "harmless": d.is_soft}
            for d in one.divergences
        ],
        "same_within": one.same_within,
        "unmatched": one.unmatched,
        "lost": one.lost,
    }


def _rows(report: ComparisonReport) -> list[dict[str, Any]]:
    return [_row(one, cell, report) for one in report.comparisons for cell in one.cells]


def _row(one: Comparison, cell: ComparedCell, report: ComparisonReport) -> dict[str, Any]:
    values = (
        *(name_of(one.base), name_of(one.new), one.like_for_like),
        *(_known(cell.model.get("name")), _known(cell.model.get("quantization")), _known(cell.label)),
        *(cell.phase, cell.prompt_tokens, cell.depth_tokens, cell.output_tokens, cell.cache_state),
        *(cell.base_s, cell.new_s, cell.base_n, cell.new_n),
        *(cell.ratio, cell.low, cell.high, cell.interval, cell.p_value, _finite(cell.detectable)),
        *(cell.verdict, cell.reason, failure(cell, report.gate, one.same_within)),
    )
    return dict(zip(COLUMNS, values, strict=True))


def _known(text: str | None) -> str | None:
    return clean(text) if text else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.9g}"
    return csv_safe(value) if isinstance(value, str) else str(value)
