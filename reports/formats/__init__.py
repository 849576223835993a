"""Renderers: a report in, text out. A format is one module and one line in `FORMATS` (profiles) or
`DIAGNOSIS_FORMATS`; modules are imported when used."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Generic, TypeVar

from probes.errors import UsageError

if TYPE_CHECKING:
    from reports.checkup_report import CheckupReport
    from reports.comparison_report import ComparisonReport
    from reports.devices import DevicesReport
    from reports.diagnosis_report import DiagnosisReport
    from reports.history import History
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
    **{
        f"llama-bench-{name}": Renderer(
            module="reports.formats.llama_bench", endings=endings, function=f"render_{name}"
        )
        for name, endings in (("json", ()), ("jsonl", ()), ("csv", ()), ("sql", (".sql",)))
    },
    "llama-bench-md": Renderer(module="reports.formats.llama_bench_md", endings=()),
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

_COMPARISON = {
    "terminal": ("comparison_terminal", "render"),
    "json": ("comparison_rows", "render_json"),
    "jsonl": ("comparison_rows", "render_jsonl"),
    "csv": ("comparison_rows", "render_csv"),
    "markdown": ("comparison_markdown", "render"),
}

COMPARISON_FORMATS: dict[str, Renderer[ComparisonReport]] = {
    **{
        name: Renderer(module=f"reports.formats.{module}", function=function, endings=FORMATS[name].endings)
        for name, (module, function) in _COMPARISON.items()
    },
    "junit": Renderer(module="reports.formats.comparison_junit", endings=(".xml",)),
}
"""Of `llmphase compare`: the same names and endings, and one for CI servers."""

_ENDINGS = {
    name: renderer.endings for forms in (FORMATS, COMPARISON_FORMATS) for name, renderer in forms.items()
}


DEVICES_FORMATS: dict[str, Renderer[DevicesReport]] = {
    name: Renderer(
        module="reports.formats.devices_forms", function=f"render_{name}", endings=FORMATS[name].endings
    )
    for name in ("terminal", "json", "jsonl", "csv", "markdown")
}
"""Of `llmphase devices`."""

CHECKUP_FORMATS: dict[str, Renderer[CheckupReport]] = {
    name: Renderer(
        module="reports.formats.checkup_forms", function=f"render_{name}", endings=FORMATS[name].endings
    )
    for name in ("terminal", "json")
}
"""Of `llmphase doctor`."""

HISTORY_FORMATS: dict[str, Renderer[History]] = {
    name: Renderer(
        module="reports.formats.history_forms", function=f"render_{name}", endings=FORMATS[name].endings
    )
    for name in ("terminal", "json", "jsonl", "csv", "markdown")
}
"""Of `llmphase history`."""


def format_for_ending(ending: str, names: Container[str] = FORMATS) -> str:
    """The format's name, one of `names`, for a file ending such as `.csv`. Raises UsageError for one that
    means none."""
    able = {name: endings for name, endings in _ENDINGS.items() if name in names}
    for name, endings in able.items():
        if ending.lower() in endings:
            return name
    known = ", ".join(ending for endings in able.values() for ending in endings)
    raise UsageError(
        f"No format belongs to the ending {ending!r}: use --format, or one of {known}.",
        reason="unknown-ending",
    )
