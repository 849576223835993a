"""Text made safe: nothing from a model file or a log may steer a terminal, a table or a spreadsheet."""

from __future__ import annotations

import unicodedata

_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
"""Controls, invisible format and direction marks, private, surrogate and unassigned code points, line
breaks."""

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")

_ASCII = {
    "µ": "u",
    "±": "+/-",
    "≈": "~",
    "×": "x",
    "–": "-",
    "—": "-",
    "…": "...",
    "·": "|",
    "•": "*",
    "→": "->",
    "≥": ">=",
    "≤": "<=",
    "█": "#",
    "▓": "=",
    "▒": "-",
    "░": ".",
    "╱": "/",
    "▞": "%",
    "─": "-",
    "│": "|",
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯", "+"),
}


def clean(text: str, *, limit: int = 300) -> str:
    """One line of harmless text: controls and invisible marks gone, white space single, at most `limit`
    characters."""
    if not (text.isascii() and text.isprintable()):  # plain text, as nearly all is, has nothing to take out
        spaced = "".join(" " if ch in "\t\n\r\v\f" else ch for ch in text)
        text = "".join(ch for ch in spaced if unicodedata.category(ch) not in _UNSAFE_CATEGORIES)
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def csv_safe(text: str) -> str:
    """`text` for a CSV cell: a spreadsheet must not take it for a formula, so such a start gets an
    apostrophe."""
    guarded = text.startswith(_FORMULA_STARTS)
    line = clean(text, limit=2000)
    return f"'{line}" if guarded or line.startswith(_FORMULA_STARTS) else line


def markdown_safe(text: str) -> str:
    """`text` for a Markdown table cell or paragraph: no markup, no HTML, no column break."""
    return "".join(f"\\{ch}" if ch in "\\`*_{}[]<>#|~!" else ch for ch in clean(text))


def to_ascii(text: str) -> str:
    """`text` with our own signs spelled in ASCII and what else is not ASCII replaced by `?`. Line breaks
    stay."""
    spelled = "".join(_ASCII.get(ch, ch) for ch in text)
    plain = unicodedata.normalize("NFKD", spelled)
    kept = "".join(ch for ch in plain if not unicodedata.combining(ch))
    return kept.encode("ascii", "replace").decode("ascii")
