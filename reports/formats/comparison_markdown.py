"""A comparison in GitHub's Markdown: for a pull request or a job's summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.comparison_chart import ratio_bars
from reports.comparison_report import ComparisonReport
from reports.formats import TerminalStyle
from reports.formats.markdown_parts import facts, table
from reports.text import markdown_safe

_CHART_WIDTH = 72


def render(report: ComparisonReport, style: TerminalStyle) -> str:
    """The whole report, the bars as a code block."""
    del style
    return "\n".join(_lines(report)).rstrip() + "\n"


def _lines(report: ComparisonReport) -> Iterator[str]:
    yield from ("## llmphase comparison", "")
    if report.divergences:
        yield from (f"**Not like for like: {markdown_safe('; '.join(report.divergences))}.**", "")
    for sentence in report.headline:
        yield from (f"**{markdown_safe(sentence)}**", "")
    if report.failures:
        yield from _listed("Gate not met", report.failures)
    for part in report.tables:
        yield from table(part)
    chart = ratio_bars(report.bars, width=_CHART_WIDTH, unicode=True)
    if chart:
        yield from ("```text", chart, "```", "")
    if report.notes:
        yield from _listed("To know before trusting it", report.notes)
    yield from facts(report.files)


def _listed(title: str, sentences: Sequence[str]) -> Iterator[str]:
    yield from (f"### {title}", "")
    yield from (f"- {markdown_safe(sentence)}" for sentence in sentences)
    yield ""
