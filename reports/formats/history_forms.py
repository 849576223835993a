"""A history in its forms: charts and sentences for a terminal, points for programs."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import string
from collections.abc import Iterator
from typing import Any

from reports import charts, units
from reports.formats import TerminalStyle
from reports.formats.markdown_parts import table as markdown_table
from reports.formats.page import Page
from reports.history import History, Metric, value_of
from reports.history_words import engine_table, sentences
from reports.text import clean, csv_safe, markdown_safe

SCHEMA_VERSION = 1
COLUMNS = ("run_id", "started_at", "model", "engine", "prompt_tokens", "ttft_s", "decode_tok_s")


def render_terminal(history: History, style: TerminalStyle) -> str:
    """What changed first, then the levels of each engine version and two charts over time."""
    page = Page(style)
    n_points = len(history.points)
    page.heading(history.model, f"{units.count(n_points)} measurement{'' if n_points == 1 else 's'}")
    for sentence in sentences(history):
        page.paragraph(sentence, "bold")
    page.table(engine_table(history))
    marks = _marks(history)
    legend = "   ".join(f"{mark} {engine}" for engine, mark in marks.items())
    try:
        for drawing in _drawings(history, marks, page):
            page.chart(drawing)
        if len(marks) > 1:
            page.paragraph(f"Engine: {legend}")
    except ImportError as error:
        # plotext brings a compiled part that an installation may lack; the history is whole without it.
        page.paragraph(f"No charts: {error}. Reinstall plotext to see them.")
    page.paragraph(f"{history.settings}. {history.machine}.")
    page.paragraph(" ".join(history.notes), "dim")
    return page.text()


def _marks(history: History) -> dict[str, str]:
    """A letter for each engine version; the newest ones share the last where letters run out."""
    letters = string.ascii_lowercase
    return {engine: letters[min(index, len(letters) - 1)] for index, engine in enumerate(history.engines)}


def _drawings(history: History, marks: dict[str, str], page: Page) -> Iterator[str]:
    tokens = units.count(history.prompt_tokens)
    for metric, title in (
        ("ttft", f"Time to first token at {tokens} prompt tokens [s]"),
        ("decode", f"Decode rate at depth {tokens} [tokens/s]"),
    ):
        points = [
            (point.moment, value, marks[point.engine])
            for point in history.points
            if (value := value_of(point, _metric(metric))) is not None
        ]
        drawn = charts.time_chart(points, title=title, width=page.width, unicode=page.style.unicode)
        if drawn:
            yield drawn


def _metric(name: str) -> Metric:
    return "ttft" if name == "ttft" else "decode"


def render_markdown(history: History, style: TerminalStyle) -> str:
    """Sentences and the levels of each engine version."""
    del style
    lines = [f"# History of {markdown_safe(history.model)}", ""]
    for sentence in sentences(history):
        lines += [f"**{markdown_safe(sentence)}**", ""]
    lines += markdown_table(engine_table(history))
    lines += [markdown_safe(f"{history.settings}. {history.machine}."), ""]
    lines += [markdown_safe(note) for note in history.notes]
    return "\n".join(lines).rstrip() + "\n"


def render_json(history: History, style: TerminalStyle) -> str:
    """`{"schema_version": 1, "model": ..., "points": [...], "drifts": [...]}`; unknown is null."""
    del style
    document = {"schema_version": SCHEMA_VERSION} | dataclasses.asdict(history)
    document["sentences"] = sentences(history)
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def render_jsonl(history: History, style: TerminalStyle) -> str:
    """A point a line."""
    del style
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in _rows(history))


def render_csv(history: History, style: TerminalStyle) -> str:
    """A point a line under a head line; unknown is empty."""
    del style
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in _rows(history):
        writer.writerow([_cell(row[name]) for name in COLUMNS])
    return out.getvalue()


def _rows(history: History) -> Iterator[dict[str, Any]]:
    for point in history.points:
        yield {
            "run_id": point.run_id,
            "started_at": point.started_at,
            "model": clean(history.model),
            "engine": point.engine,
            "prompt_tokens": history.prompt_tokens,
            "ttft_s": point.ttft_s,
            "decode_tok_s": point.decode_tok_s,
        }


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.9g}"
    return csv_safe(value) if isinstance(value, str) else str(value)
