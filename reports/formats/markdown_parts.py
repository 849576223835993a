"""Tables and lists of facts in GitHub's Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reports.parts import Facts, Table
from reports.text import markdown_safe


def table(part: Table) -> Iterator[str]:
    """A titled table with its notes; wide columns are always there."""
    yield from (f"### {markdown_safe(part.title)}", "")
    yield _line(column.title for column in part.columns)
    yield _line("---:" if column.numeric else "---" for column in part.columns)
    for row in part.rows:
        yield _line(markdown_safe(cell) for cell in row)
    yield ""
    for note in part.notes:
        yield from (markdown_safe(note), "")


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def facts(part: Facts) -> Iterator[str]:
    """A titled list."""
    yield from (f"### {markdown_safe(part.title)}", "")
    for fact in part.facts:
        default = " (default)" if fact.is_default else ""
        yield f"- {markdown_safe(fact.name)}: {markdown_safe(fact.value)}{default}"
    yield ""
