"""The devices of a machine in every form: a page, JSON, CSV, Markdown."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

from reports.devices import DeviceRow, DevicesReport
from reports.formats import TerminalStyle
from reports.formats.markdown_parts import facts, table
from reports.formats.page import Page
from reports.machine_advice import command_lines
from reports.text import csv_safe, markdown_safe

SCHEMA_VERSION = 1


def render_terminal(report: DevicesReport, style: TerminalStyle) -> str:
    """Lines of at most `style.width` columns (at least 40)."""
    page = Page(style)
    page.heading("Devices", report.engine)
    if report.rows:
        page.table(dataclasses.replace(report.table, title="What computes here"))
    if report.links_table:
        page.table(report.links_table)
    for driver in report.drivers:
        page.facts(driver)
    for advice in report.advice:
        page.item(advice.text, advice.code)
        if advice.command is not None:
            page.chart("\n".join(("", *command_lines(advice.command))))
    for doubt in report.doubts:
        page.item(doubt, sign="?")
    return page.text()


def render_json(report: DevicesReport, style: TerminalStyle) -> str:
    """`{"schema_version": 1, "engine": ..., "devices": [...], "links": [...], "advice": [...]}`."""
    del style
    document = {
        "schema_version": SCHEMA_VERSION,
        "engine": report.engine,
        "devices": [dataclasses.asdict(row) for row in report.rows],
        "links": [dataclasses.asdict(link) for link in report.links],
        "advice": [dataclasses.asdict(advice) for advice in report.advice],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def render_jsonl(report: DevicesReport, style: TerminalStyle) -> str:
    """One device a line."""
    del style
    return "".join(json.dumps(dataclasses.asdict(row), allow_nan=False) + "\n" for row in report.rows)


def render_csv(report: DevicesReport, style: TerminalStyle) -> str:
    """One device a line under a head line; what is not known is empty."""
    del style
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(field.name for field in dataclasses.fields(DeviceRow))
    for row in report.rows:
        values = dataclasses.asdict(row).values()
        writer.writerow(csv_safe(value) if isinstance(value, str) else value for value in values)
    return out.getvalue()


def render_markdown(report: DevicesReport, style: TerminalStyle) -> str:
    """Tables and lists for an issue or a wiki."""
    del style
    lines = ["# Devices", "", markdown_safe(report.engine), ""]
    for part in (report.table, report.links_table):
        if part and part.rows:
            lines += table(part)
    for driver in report.drivers:
        lines += facts(driver)
    for advice in report.advice:
        lines += [f"- `{advice.code}`: {markdown_safe(advice.text)}", ""]
        if advice.command is not None:
            lines += ["```", *command_lines(advice.command), "```", ""]
    lines += [f"- {markdown_safe(doubt)}" for doubt in report.doubts]
    return "\n".join(lines).rstrip("\n") + "\n"
