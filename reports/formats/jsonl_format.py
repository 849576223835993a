"""JSON lines: one flat row a line."""

from __future__ import annotations

import dataclasses
import json

from reports.formats import TerminalStyle
from reports.report import Report


def render(report: Report, style: TerminalStyle) -> str:
    """Each row as one JSON object on its own line; a value that is not known is null."""
    del style
    return "".join(json.dumps(dataclasses.asdict(row), allow_nan=False) + "\n" for row in report.rows)
