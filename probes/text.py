"""Makes untrusted text safe to show: names in model files, file names, lines of the engine's log."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path

_ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"  # the other escapes
)
_LINE_BREAKS = {"\t", "\n", "\v", "\f", "\r", "\x85", "\u2028", "\u2029"}
_REMOVED_CATEGORIES = {"Cc", "Cf"}
"""Control characters, and format characters: among them all bidirectional controls and invisible marks."""


def _safe_character(character: str) -> str:
    if character in _LINE_BREAKS:
        return " "
    category = unicodedata.category(character)
    if category in _REMOVED_CATEGORIES:
        return ""
    return "\ufffd" if category == "Cs" else character


def clean_text(text: str, limit: int = 200) -> str:
    """Return `text` as one printable line of at most `limit` characters.

    Terminal escape sequences, control characters and invisible format characters (bidirectional
    controls among them) are removed, line breaks become spaces, bytes that were no text become U+FFFD.
    What is cut off is marked by `...`.
    """
    # Beyond this the result could only be longer than the limit, or the text is not worth reading.
    head = text[: 8 * limit + 1024]
    safe = "".join(map(_safe_character, _ESCAPE_SEQUENCE.sub("", head))).strip()
    return safe if len(safe) <= limit else safe[: max(0, limit - 3)].rstrip() + "..."


def show_path(path: str | os.PathLike[str]) -> str:
    """Return a path as text for a message: cleaned, long ones cut at their beginning."""
    text = clean_text(os.fspath(path), 4096)
    return text if len(text) <= 240 else "..." + text[-237:]


def show_name(path: Path) -> str:
    """Return a file's name alone as text for a message."""
    return show_path(path.name)
