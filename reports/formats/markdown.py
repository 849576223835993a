"""Markdown (GitHub's): for an issue, a wiki or a readme."""

from __future__ import annotations

from collections.abc import Iterator

from reports.formats import TerminalStyle
from reports.formats.markdown_parts import facts, table
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
    lines += facts(report.machine)
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
    for part in (model.phases, model.load):
        if part:
            yield from table(part)
    yield from facts(model.placement)
    if model.buffers:
        yield from table(model.buffers)
    if model.beside:
        yield from facts(model.beside)
    yield from facts(model.settings)
