"""The report for a person at a terminal: the answer first, then the figures, what to know, and charts."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from reports import charts
from reports.formats import TerminalStyle
from reports.formats.page import WIDE, Page
from reports.offload_section import OffloadSection
from reports.parts import Facts
from reports.quantization_section import QuantizationSection
from reports.report import ModelReport, Report

_IN_FULL = 3
"""Settings of which each is shown in full; of more, the tables over all of them alone."""
_GAP = 4
"""Columns between charts that stand side by side."""


def render(report: Report, style: TerminalStyle) -> str:
    """The report as lines of at most `style.width` columns (at least 40), with colour codes only where
    allowed."""
    page = Page(style)
    _together(page, report)
    shown = report.models if report.with_details or len(report.models) <= _IN_FULL else ()
    for model in shown:
        _figures(page, model)
    _notices(page, report)
    for model in shown:
        _charts(page, model, named=len(report.models) > 1)
    _settings(page, report, shown)
    page.facts(report.machine)
    if report.remote:
        page.facts(report.remote)
    page.paragraph(report.origin, "dim")
    return page.text()


def _together(page: Page, report: Report) -> None:
    """What all settings show side by side."""
    for sentence in report.comparison:
        page.paragraph(sentence, "bold")
    if report.overview:
        page.table(report.overview)
    for sweep in report.offload:
        _offload(page, sweep)
    for section in report.quantizations:
        _quantizations(page, section)


def _settings(page: Page, report: Report, shown: Sequence[ModelReport]) -> None:
    for model in shown:
        page.facts(model.settings, of=model.name if len(report.models) > 1 else "")
    if not shown and report.models:
        page.facts(_shared_settings(report.models))
        page.paragraph(
            f"Each of the {len(report.models)} settings in full: llmphase report"
            f" {report.run_id or 'RUN'} --details",
            "dim",
        )


def _shared_settings(models: Sequence[ModelReport]) -> Facts:
    """What is the same for all of them; the rest stands in the tables."""
    first = models[0].settings
    kept = [fact for fact in first.facts if all(fact in model.settings.facts for model in models)]
    return dataclasses.replace(first, title="Settings that all share", facts=tuple(kept))


def _offload(page: Page, sweep: OffloadSection) -> None:
    page.heading(sweep.title, "")
    for number, sentence in enumerate(sweep.sentences):
        page.paragraph(sentence, "" if number else "bold")
    page.table(sweep.table)
    for title, points in (("Decode", sweep.decode), ("Prefill", sweep.prefill)):
        try:
            drawn = charts.layers_chart(
                points, title=f"{title} rate [tokens/s]", width=page.width, unicode=page.style.unicode
            )
        except ImportError:
            return  # said once, with the models' own charts
        if drawn:
            page.chart(drawn)


def _quantizations(page: Page, section: QuantizationSection) -> None:
    page.heading(section.title, "")
    for number, sentence in enumerate(section.sentences):
        page.paragraph(sentence, "" if number else "bold")
    page.table(section.holds)
    page.table(section.speeds)
    try:
        drawn = charts.bytes_chart(section.chart, width=page.width, unicode=page.style.unicode)
    except ImportError:
        return  # said once, with the models' own charts
    if drawn:
        page.chart(drawn)


def _figures(page: Page, model: ModelReport) -> None:
    page.heading(model.name, model.subtitle)
    if model.headline:
        page.paragraph(model.headline[0], "bold")
    page.paragraph(" ".join(model.headline[1:]))
    page.table(model.phases)
    if model.load:
        page.table(model.load)
    page.facts(model.placement)
    if model.buffers:
        page.table(model.buffers)
    if model.beside:
        page.facts(model.beside)


def _notices(page: Page, report: Report) -> None:
    if not report.notices:
        return
    page.title("To know before trusting the figures")
    for notice in report.notices:
        where = ""
        if notice.group is not None and len(report.models) > 1:
            where = f"{report.models[notice.group].name}: "
        page.item(f"{where}{notice.text}", notice.code)
    page.blank()


def _charts(page: Page, model: ModelReport, *, named: bool) -> None:
    data = model.charts
    bar = charts.wait_bar(data.wait, title=data.wait_title, width=page.width, unicode=page.style.unicode)
    if named and bar:
        page.heading(model.name, model.subtitle)
    if bar:
        page.chart(bar)
    try:
        drawn = _line_charts(page, data)
    except ImportError as error:
        # plotext brings a compiled part that an installation may lack; the report is whole without it.
        page.paragraph(f"No line charts: {error}. Reinstall plotext to see them.")
        return
    for chart in drawn:
        page.chart(chart)


def _line_charts(page: Page, data: charts.ChartData) -> tuple[str, ...]:
    columns = (page.width - _GAP) // 2 if page.width >= WIDE else page.width
    ttft = charts.ttft_chart(data.ttft, width=columns, unicode=page.style.unicode, title=data.ttft_title)
    decode = charts.decode_chart(data.decode, width=columns, unicode=page.style.unicode)
    if ttft and decode and page.width >= WIDE:
        return ("\n".join(_side_by_side(ttft, decode, columns)),)
    return tuple(chart for chart in (ttft, decode) if chart)


def _side_by_side(left: str, right: str, columns: int) -> Iterator[str]:
    for first, second in itertools.zip_longest(left.split("\n"), right.split("\n"), fillvalue=""):
        yield f"{first:<{columns + _GAP}}{second}".rstrip()
