"""A self-test as a page and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence

from reports.formats import TerminalStyle
from reports.formats.page import Page
from reports.self_test import Statement, statements_table

SCHEMA_VERSION = 1


def render_terminal(statements: Sequence[Statement], threads: int, style: TerminalStyle) -> str:
    """Lines of at most `style.width` columns (at least 40)."""
    page = Page(style)
    page.table(statements_table(statements, threads))
    return page.text()


def render_json(statements: Sequence[Statement], threads: int, style: TerminalStyle) -> str:
    """`{"schema_version": 1, "ok": ..., "threads": ..., "statements": [...]}`."""
    del style
    document = {
        "schema_version": SCHEMA_VERSION,
        "ok": all(one.passed for one in statements),
        "threads": threads,
        "statements": [dataclasses.asdict(one) for one in statements],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


FORMS: dict[str, Callable[[Sequence[Statement], int, TerminalStyle], str]] = {
    "terminal": render_terminal,
    "json": render_json,
}
