"""A diagnosis in GitHub's Markdown: for an issue, a wiki or a readme."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports import phase_diagram, units
from reports.diagnosis_report import DiagnosisReport
from reports.formats import TerminalStyle
from reports.formats.markdown_parts import facts, table
from reports.parts import Column, Table
from reports.text import markdown_safe

_MAP_WIDTH = 72


def render(report: DiagnosisReport, style: TerminalStyle) -> str:
    """The whole report, the phase diagram as a code block."""
    del style
    lines = [*_answer(report), *_grounds(report), *_changes(report), *_rest(report)]
    return "\n".join(lines).rstrip() + "\n"


def _answer(report: DiagnosisReport) -> Iterator[str]:
    yield from (f"# Diagnosis: {report.verdict}", "")
    if report.measured:
        yield from (
            f"{markdown_safe(report.measured.model_name)} · {markdown_safe(report.measured.model_subtitle)}",
            "",
        )
    for sentence in report.headline:
        yield from (f"**{markdown_safe(sentence)}**", "")
    yield from (" ".join(markdown_safe(sentence) for sentence in report.standing), "")
    if report.wait_parts:
        yield from table(_wait_table(report))
    if report.request:
        yield from facts(report.request)


def _wait_table(report: DiagnosisReport) -> Table:
    total = sum(part.seconds for part in report.wait_parts)
    return Table(
        title=report.wait_title,
        columns=(Column(title="part", numeric=False), Column(title="time"), Column(title="share")),
        rows=tuple(
            (part.name, units.duration(part.seconds), units.percent(part.seconds / total))
            for part in report.wait_parts
        ),
    )


def _changes(report: DiagnosisReport) -> Iterator[str]:
    if report.remedies_table:
        yield from table(report.remedies_table)
    for way in report.ways:
        yield from facts(way)
    yield from _listed(report.futile)


def _grounds(report: DiagnosisReport) -> Iterator[str]:
    if report.phase_map:
        drawn = phase_diagram.draw(report.phase_map, width=_MAP_WIDTH, unicode=True) or ""
        yield from ("```text", drawn, "```", "")
    logged = report.logged
    for part in (report.turns_table, logged.table if logged else None, report.evidence_table):
        if part:
            yield from table(part)
    if logged and logged.trend:
        yield from ("### From request to request", "")
        yield from _listed(logged.trend)
    if report.ceiling_sentences:
        yield from ("### Ceilings", "")
        yield from _listed(report.ceiling_sentences)


def _rest(report: DiagnosisReport) -> Iterator[str]:
    if report.unknown_sentence:
        yield from (markdown_safe(report.unknown_sentence), "")
    run = report.measured
    if report.notices:
        yield from ("### To know before trusting the figures", "")
        yield from (f"- `{notice.code}`: {markdown_safe(notice.text)}" for notice in report.notices)
        yield ""
    if report.rules_table:
        yield from table(report.rules_table)
    if run is None:
        return
    yield from facts(run.settings)
    yield from facts(run.machine)
    yield markdown_safe(run.origin)


def _listed(sentences: Sequence[str]) -> Iterator[str]:
    yield from (f"- {markdown_safe(sentence)}" for sentence in sentences)
    if sentences:
        yield ""
