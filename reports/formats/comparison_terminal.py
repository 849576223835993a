"""A comparison for a person at a terminal: what is not alike, the answer, the cells, what to know."""

from __future__ import annotations

from reports.comparison_chart import ratio_bars
from reports.comparison_report import ComparisonReport
from reports.formats import TerminalStyle
from reports.formats.page import Page


def render(report: ComparisonReport, style: TerminalStyle) -> str:
    """The report as lines of at most `style.width` columns (at least 40), with colour codes only where
    allowed."""
    page = Page(style)
    if report.divergences:
        page.paragraph(f"Not like for like: {'; '.join(report.divergences)}.", "bold")
    for sentence in report.headline:
        page.paragraph(sentence, "bold")
    page.facts(report.files)
    for table in report.tables:
        page.table(table)
    chart = ratio_bars(report.bars, width=page.width, unicode=style.unicode)
    if chart:
        page.chart(chart)
    if report.notes:
        page.title("To know before trusting it")
        for note in report.notes:
            page.item(note)
        page.blank()
    if report.failures:
        page.title("Gate not met")
        for failure in report.failures:
            page.item(failure)
    return page.text()
