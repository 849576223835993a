"""Renderers: a report in, text out. A format is one module and one line in `FORMATS` (profiles) or
`DIAGNOSIS_FORMATS`; modules are imported when used."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from probes.errors import UsageError

if TYPE_CHECKING:
    from reports.diagnosis_report import DiagnosisReport
    from reports.report import Report

R = TypeVar("R")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TerminalStyle:
    """What the terminal can show."""

    width: int
    """Columns."""
    colour: bool
    unicode: bool
    """False: ASCII alone."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Renderer(Generic[R]):
    """One format of one kind of report: where it lives and which file endings mean it."""

    module: str
    """Has the function, `(report, style) -> str`, whose text ends with a line break."""
    endings: tuple[str, ...]
    function: str = "render"

    def render(self, report: R, style: TerminalStyle) -> str:
        """The report as text that ends with a line break."""
        function: Callable[[R, TerminalStyle], str] = getattr(
            importlib.import_module(self.module), self.function
        )
        return function(report, style)


FORMATS: dict[str, Renderer[Report]] = {
    "terminal": Renderer(module="reports.formats.terminal", endings=(".txt",)),
    "json": Renderer(module="reports.formats.json_format", endings=(".json",)),
    "jsonl": Renderer(module="reports.formats.jsonl_format", endings=(".jsonl", ".ndjson")),
    "csv": Renderer(module="reports.formats.csv_format", endings=(".csv",)),
    "markdown": Renderer(module="reports.formats.markdown", endings=(".md", ".markdown")),
}
"""Of `llmphase profile`."""

_DIAGNOSIS = {
    "terminal": ("diagnosis_terminal", "render"),
    "json": ("diagnosis_json", "render"),
    "jsonl": ("diagnosis_json", "render_line"),
    "csv": ("diagnosis_csv", "render"),
    "markdown": ("diagnosis_markdown", "render"),
}

DIAGNOSIS_FORMATS: dict[str, Renderer[DiagnosisReport]] = {
    name: Renderer(module=f"reports.formats.{module}", function=function, endings=FORMATS[name].endings)
    for name, (module, function) in _DIAGNOSIS.items()
}
"""Of `llmphase diagnose`: the same names and endings."""


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
