"""A diagnosis for a person at a terminal: the answer, the wait, what it rests on, what to change, what to
know."""

from __future__ import annotations

from reports import charts, phase_diagram
from reports.diagnosis_report import DiagnosisReport
from reports.formats import TerminalStyle
from reports.formats.page import Page, Paint

_MAP_PAINT: Paint = (
    ("▒+|#{2,}", "cyan"),
    (r"·+|\.{2,}", "magenta"),
    ("━+|={2,}", "bold yellow"),
    (r"(?:^|(?<= ))X(?= )", "bold red"),
)
"""Prefill, decode, crossover, and the request."""


def render(report: DiagnosisReport, style: TerminalStyle) -> str:
    """The report as lines of at most `style.width` columns (at least 40), with colour codes only where
    allowed."""
    page = Page(style)
    _answer(page, report)
    _grounds(page, report)
    _changes(page, report)
    _rest(page, report)
    return page.text()


def _answer(page: Page, report: DiagnosisReport) -> None:
    if report.measured:
        page.heading(report.measured.model_name, report.measured.model_subtitle)
    for sentence in report.headline:
        page.paragraph(sentence, "bold")
    page.paragraph(" ".join(report.standing))
    bar = charts.wait_bar(
        report.wait_parts, title=report.wait_title, width=page.width, unicode=page.style.unicode
    )
    if bar:
        page.chart(bar)
    if report.request:
        page.facts(report.request)


def _changes(page: Page, report: DiagnosisReport) -> None:
    if report.remedies_table:
        page.table(report.remedies_table)
    for way in report.ways:
        page.facts(way)
    for sentence in report.futile:
        page.item(sentence, sign="-")
    if report.futile:
        page.blank()


def _grounds(page: Page, report: DiagnosisReport) -> None:
    drawn = (
        phase_diagram.draw(report.phase_map, width=page.width, unicode=page.style.unicode)
        if report.phase_map
        else None
    )
    if drawn:
        page.chart(drawn, _MAP_PAINT)
    if report.turns_table:
        page.table(report.turns_table)
    if report.logged and report.logged.table:
        page.table(report.logged.table)
    if report.logged and report.logged.trend:
        page.title("From request to request")
        for sentence in report.logged.trend:
            page.item(sentence, sign="-")
        page.blank()
    if report.evidence_table:
        page.table(report.evidence_table)
    if report.ceiling_sentences:
        page.title("Ceilings")
        for sentence in report.ceiling_sentences:
            page.item(sentence, sign="-")
        page.blank()


def _rest(page: Page, report: DiagnosisReport) -> None:
    """What was not known, every rule where asked for, and what the run says about itself."""
    page.paragraph(report.unknown_sentence)
    run = report.measured
    if report.notices:
        page.title("To know before trusting the figures")
        for notice in report.notices:
            page.item(notice.text, notice.code)
        page.blank()
    if report.rules_table:
        page.table(report.rules_table)
    if run is None:
        return
    page.facts(run.settings)
    page.facts(run.machine)
    page.paragraph(run.origin, "dim")
