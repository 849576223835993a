"""A page of a terminal report: text laid out by rich, collected line by line.

Every string goes in as `rich.text.Text`, never as markup, so that no model name or log line can style, link
or move anything.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Literal

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from reports.formats import TerminalStyle
from reports.parts import Facts, Table
from reports.text import clean, to_ascii

MIN_WIDTH = 40
WIDE = 110
"""From this width on charts stand side by side and columns further apart."""
_LEAST_TEXT = 24
"""Columns that a wrapped text column needs to be read."""
_ASCII_HEAD = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
"""A line of dashes under the column titles, nothing else."""

Paint = Sequence[tuple[str, str]]
"""Patterns of a drawing's signs, with their colours."""
_PAINT: Paint = (
    (r"[\u2800-\u28ff●○]+", "cyan"),
    ("█+", "yellow"),
    ("▒+", "cyan"),
    ("░+", "magenta"),
    ("▓+", "green"),
    ("╱+", "blue"),
    ("▞+", "red"),
)
"""The curve of a chart (braille and points) and the fills of a bar."""


class Page:
    """Lines of at most `style.width` columns (at least 40), with colour codes only where allowed."""

    def __init__(self, style: TerminalStyle) -> None:
        self.style = style
        self.width = max(style.width, MIN_WIDTH)
        self._out = io.StringIO()
        self._console = Console(
            file=self._out,
            width=self.width,
            force_terminal=style.colour,
            color_system="standard" if style.colour else None,
            no_color=not style.colour,
            legacy_windows=False,
            markup=False,
            highlight=False,
            emoji=False,
        )

    def text(self) -> str:
        """All lines so far, without trailing blanks."""
        return "\n".join(line.rstrip() for line in self._out.getvalue().rstrip().split("\n")) + "\n"

    def _text(self, text: str, style: str = "") -> Text:
        return Text(text if self.style.unicode else to_ascii(text), style=style if self.style.colour else "")

    def _print(self, item: Text | Grid | Padding) -> None:
        self._console.print(item)

    def blank(self) -> None:
        """An empty line."""
        self._print(Text(""))

    def heading(self, name: str, subtitle: str) -> None:
        """A model's name over a rule, its facts beside it."""
        line = self._text(name, "bold cyan")
        line.append_text(self._text(f"  {subtitle}", "dim"))
        self._print(line)
        self._print(self._text("─" * self.width, "dim"))

    def title(self, text: str) -> None:
        """A section's title."""
        self._print(self._text(text, "bold cyan"))

    def paragraph(self, text: str, style: str = "") -> None:
        """Wrapped text and an empty line; nothing for no text."""
        if text:
            self._print(self._text(clean(text, limit=2000), style))
            self.blank()

    def item(self, text: str, code: str = "", *, sign: str = "!") -> None:
        """A wrapped list item behind its sign, with its code at the end."""
        grid = Grid.grid(padding=(0, 1))
        grid.add_column(width=1)
        grid.add_column(ratio=1)
        body = self._text(clean(text, limit=600))
        if code:
            body.append_text(self._text(f" [{code}]", "dim"))
        grid.add_row(self._text(sign, "bold yellow"), body)
        self._print(grid)

    def table(self, table: Table) -> None:
        """A titled table, its notes below. Wide columns are left out where there is no room for all; then the
        widest column of words is broken over lines.

        A page too narrow even for that breaks all cells: no figure is ever cut.
        """
        self.title(table.title)
        cells = [[self._text(clean(cell, limit=600)) for cell in row] for row in table.rows]
        titles = [self._text(column.title, "bold") for column in table.columns]
        widths = [max(text.cell_len for text in column) for column in zip(titles, *cells, strict=True)]
        gap = 3 if self.width >= WIDE else 2
        shown = list(range(len(titles)))
        if self._total(widths, shown, gap) > self.width:
            shown = [i for i in shown if not table.columns[i].wide]
        wrapped = self._wrapped(table, widths, shown, gap)
        grid = Grid(
            box=box.SIMPLE_HEAD if self.style.unicode else _ASCII_HEAD,
            padding=(0, 1) if gap == 3 else (0, 0, 0, 1),
            pad_edge=False,
            show_edge=False,
        )
        for i in shown:
            justify: Literal["left", "right"] = "right" if table.columns[i].numeric else "left"
            grid.add_column(titles[i], justify=justify, no_wrap=i not in wrapped, overflow="fold")
        for row in cells:
            grid.add_row(*(row[i] for i in shown))
        self._print(grid)
        for note in table.notes:
            self._print(self._text(clean(note, limit=600), "dim"))
        self.blank()

    def _wrapped(self, table: Table, widths: Sequence[int], shown: Sequence[int], gap: int) -> list[int]:
        """The columns that are broken over lines."""
        missing = self._total(widths, shown, gap) - self.width
        if missing <= 0:
            return []
        words = [i for i in shown if not table.columns[i].numeric]
        widest = max(words, key=lambda i: widths[i], default=None)
        if widest is not None and widths[widest] - missing >= _LEAST_TEXT:
            return [widest]
        return list(shown)

    @staticmethod
    def _total(widths: Sequence[int], shown: Sequence[int], gap: int) -> int:
        return sum(widths[i] for i in shown) + gap * (len(shown) - 1)

    def facts(self, facts: Facts, *, of: str = "") -> None:
        """A titled list of names and values, short ones flowing; `of` says whose they are."""
        self.title(f"{facts.title}: {of}" if of else facts.title)
        if facts.is_flowing:
            self._flow(facts)
        else:
            grid = Grid.grid(padding=(0, 2))
            grid.add_column(no_wrap=True)
            grid.add_column(ratio=1)
            for fact in facts.facts:
                grid.add_row(self._text(clean(fact.name), "dim"), self._text(clean(fact.value)))
            self._print(grid)
        self.blank()

    def _flow(self, facts: Facts) -> None:
        """Facts side by side, a line broken only between two of them."""
        line = ""
        for fact in facts.facts:
            item = f"{fact.name} {clean(fact.value)}{'*' if fact.is_default else ''}"
            if line and len(line) + 2 + len(item) > self.width:
                self._print(self._text(line))
                line = ""
            line = f"{line}  {item}" if line else item
        self._print(self._text(line))
        if any(fact.is_default for fact in facts.facts):
            self._print(self._text("* took a default", "dim"))

    def chart(self, drawing: str, paint: Paint = _PAINT) -> None:
        """A drawing of our own, line by line as it is."""
        for number, line in enumerate(drawing.split("\n")):
            text = Text(line, no_wrap=True, style="bold" if number == 0 and self.style.colour else "")
            for pattern, colour in paint if self.style.colour else ():
                text.highlight_regex(pattern, colour)
            self._print(text)
        self.blank()
