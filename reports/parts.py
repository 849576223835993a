"""The parts a report is made of: tables and lists of facts, already in words and units, for any renderer to
lay out."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    title: str
    numeric: bool = True
    """Set right."""
    wide: bool = False
    """Shown only where there is room."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Text cells under columns."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A name and its value."""

    name: str
    value: str
    is_default: bool = False
    """The setting took a default."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A titled list of facts."""

    title: str
    facts: tuple[Fact, ...]
    is_flowing: bool = False
    """Many short facts that may share a line."""
