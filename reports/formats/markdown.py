"""Markdown (GitHub's): for an issue, a wiki or a readme."""

from __future__ import annotations

from collections.abc import Iterator

from reports.formats import TerminalStyle
from reports.formats.markdown_parts import facts, table
from reports.offload_section import OffloadSection
from reports.quantization_section import QuantizationSection
from reports.report import ModelReport, Report
from reports.text import markdown_safe


def render(report: Report, style: TerminalStyle) -> str:
    """The whole report but for the charts."""
    del style
    lines = [f"# llmphase report {markdown_safe(report.run_id or report.source or '')}", ""]
    for sentence in report.comparison:
        lines += [markdown_safe(sentence), ""]
    if report.overview:
        lines += table(report.overview)
    for sweep in report.offload:
        lines += _offload(sweep)
    for section in report.quantizations:
        lines += _quantizations(section)
    for model in report.models:
        lines += _model(model)
    if report.notices:
        lines += ["## To know", ""]
        lines += [f"- `{notice.code}`: {markdown_safe(notice.text)}" for notice in report.notices]
        lines.append("")
    lines += facts(report.machine)
    if report.remote:
        lines += facts(report.remote)
    lines.append(markdown_safe(report.origin))
    return "\n".join(lines) + "\n"


def _offload(sweep: OffloadSection) -> Iterator[str]:
    yield from (f"## {markdown_safe(sweep.title)}", "")
    for sentence in sweep.sentences:
        yield from (markdown_safe(sentence), "")
    yield from table(sweep.table)


def _quantizations(section: QuantizationSection) -> Iterator[str]:
    yield from (f"## {markdown_safe(section.title)}", "")
    for sentence in section.sentences:
        yield from (markdown_safe(sentence), "")
    yield from table(section.holds)
    yield from table(section.speeds)


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
