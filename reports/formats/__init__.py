"""Renderers: a report in, text out. A format is one module and one line in `FORMATS`; modules are imported
when used."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from probes.errors import UsageError

if TYPE_CHECKING:
    from reports.report import Report


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TerminalStyle:
    """What the terminal can show."""

    width: int
    """Columns."""
    colour: bool
    unicode: bool
    """False: ASCII alone."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Renderer:
    """One format: where it lives and which file endings mean it."""

    module: str
    """Has `render(report, style) -> str`, ending with a line break."""
    endings: tuple[str, ...]

    def render(self, report: Report, style: TerminalStyle) -> str:
        """The report as text that ends with a line break."""
        function: Callable[[Report, TerminalStyle], str] = importlib.import_module(self.module).render
        return function(report, style)


FORMATS: dict[str, Renderer] = {
    "terminal": Renderer(module="reports.formats.terminal", endings=(".txt",)),
    "json": Renderer(module="reports.formats.json_format", endings=(".json",)),
    "jsonl": Renderer(module="reports.formats.jsonl_format", endings=(".jsonl", ".ndjson")),
    "csv": Renderer(module="reports.formats.csv_format", endings=(".csv",)),
    "markdown": Renderer(module="reports.formats.markdown", endings=(".md", ".markdown")),
}


def format_for_ending(ending: str) -> str:
    """The format's name for a file ending such as `.csv`. Raises UsageError for one that means none."""
    for name, renderer in FORMATS.items():
        if ending.lower() in renderer.endings:
            return name
    known = ", ".join(ending for renderer in FORMATS.values() for ending in renderer.endings)
    raise UsageError(
        f"No format belongs to the ending {ending!r}: use --format, or one of {known}.",
        reason="unknown-ending",
    )
