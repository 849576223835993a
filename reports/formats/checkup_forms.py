"""A checkup as a page and as JSON."""

from __future__ import annotations

import dataclasses
import json

from reports.checkup_report import CheckupReport
from reports.formats import TerminalStyle
from reports.formats.page import Page
from reports.machine_advice import command_lines

SCHEMA_VERSION = 1


def render_terminal(report: CheckupReport, style: TerminalStyle) -> str:
    """Lines of at most `style.width` columns (at least 40)."""
    page = Page(style)
    for part in report.parts:
        page.facts(part)
    page.table(report.table)
    for check in report.checks:
        if check.command is not None:
            page.chart("\n".join((f"{check.code}:", *command_lines(check.command))))
    return page.text()


def render_json(report: CheckupReport, style: TerminalStyle) -> str:
    """`{"schema_version": 1, "ok": ..., "checks": [...], "machine": ..., "engine": ..., ...}`."""
    del style
    document = {
        "schema_version": SCHEMA_VERSION,
        "ok": report.is_fine,
        "checks": [dataclasses.asdict(check) for check in report.checks],
        "advice": [dataclasses.asdict(advice) for advice in report.advice],
        "machine": dataclasses.asdict(report.machine),
        "engine": dataclasses.asdict(report.engine) if report.engine is not None else None,
        "facts": dataclasses.asdict(report.facts),
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
