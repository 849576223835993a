"""One JSON object: the flat rows, and beside them what the run says in words."""

from __future__ import annotations

import dataclasses
import json

from reports.formats import TerminalStyle
from reports.report import Report
from reports.rows import ROWS_SCHEMA_VERSION


def render(report: Report, style: TerminalStyle) -> str:
    """`{"schema_version": 1, "run": {...}, "rows": [...]}`; a value that is not known is null."""
    del style
    document = {
        "schema_version": ROWS_SCHEMA_VERSION,
        "run": {
            "run_id": report.run_id,
            "started_at": report.started_at,
            "llmphase_version": report.llmphase_version,
            "comparison": report.comparison,
            "models": [{"name": model.name, "headline": model.headline} for model in report.models],
            "remote": {fact.name: fact.value for fact in report.remote.facts} if report.remote else None,
            "quantizations": [section.figures() for section in report.quantizations],
            "notices": [dataclasses.asdict(notice) for notice in report.notices],
        },
        "rows": [dataclasses.asdict(row) for row in report.rows],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
