"""Markdown (GitHub's): for an issue, a wiki or a readme."""

from __future__ import annotations

from collections.abc import Iterator

from reports.formats import TerminalStyle
from reports.parts import Facts, Table
from reports.report import ModelReport, Report
from reports.text import markdown_safe


def render(report: Report, style: TerminalStyle) -> str:
    """The whole report but for the charts."""
    del style
    lines = [f"# llmphase report {markdown_safe(report.run_id)}", ""]
    for sentence in report.comparison:
        lines += [markdown_safe(sentence), ""]
    for model in report.models:
        lines += _model(model)
    if report.notices:
        lines += ["## To know", ""]
        lines += [f"- `{notice.code}`: {markdown_safe(notice.text)}" for notice in report.notices]
        lines.append("")
    lines += _facts(report.machine)
    lines.append(
        f"Measured {markdown_safe(report.started_at)} by llmphase {markdown_safe(report.llmphase_version)}."
    )
    return "\n".join(lines) + "\n"


def _model(model: ModelReport) -> Iterator[str]:
    yield from (f"## {markdown_safe(model.name)}", "", markdown_safe(model.subtitle), "")
    if model.headline:
        yield from (f"**{markdown_safe(model.headline[0])}**", "")
    if model.headline[1:]:
        yield from (" ".join(markdown_safe(sentence) for sentence in model.headline[1:]), "")
    for table in (model.phases, model.load):
        if table:
            yield from _table(table)
    yield from _facts(model.placement)
    if model.buffers:
        yield from _table(model.buffers)
    if model.beside:
        yield from _facts(model.beside)
    yield from _facts(model.settings)


def _table(table: Table) -> Iterator[str]:
    yield from (f"### {table.title}", "")
    yield _line(column.title for column in table.columns)
    yield _line("---:" if column.numeric else "---" for column in table.columns)
    for row in table.rows:
        yield _line(markdown_safe(cell) for cell in row)
    yield ""
    for note in table.notes:
        yield from (markdown_safe(note), "")


def _line(cells: Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _facts(facts: Facts) -> Iterator[str]:
    yield from (f"### {facts.title}", "")
    for fact in facts.facts:
        default = " (default)" if fact.is_default else ""
        yield f"- {markdown_safe(fact.name)}: {markdown_safe(fact.value)}{default}"
    yield ""
