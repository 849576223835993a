"""CSV: the flat rows under a head line."""

from __future__ import annotations

from reports import frame
from reports.formats import TerminalStyle
from reports.report import Report


def render(report: Report, style: TerminalStyle) -> str:
    """The rows as CSV; a value that is not known is empty."""
    del style
    return frame.csv(report.rows)
