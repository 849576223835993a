"""Standard output and standard error as they may be: closed, full, or with nobody reading on.

Standard library only: the program says its first word through here.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from typing import TextIO

from probes.errors import EXIT_DONE, LlmphaseError, UnmeasurableError

_PIPED_WIDTH = 80
_LONGEST = 4000


class OutputClosedError(LlmphaseError):
    """Nobody reads standard output any more: no reason to complain."""

    exit_code = EXIT_DONE


def show(text: str) -> None:
    """Print on standard output, in its encoding.

    Raises OutputClosedError when the reader has gone, UnmeasurableError when it can not be written.
    """
    if sys.stdout is None:
        raise OutputClosedError("standard output is closed", reason="closed")
    encoding = sys.stdout.encoding or "ascii"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError as error:
        discard_output()
        raise OutputClosedError("the reader of standard output has gone", reason="closed") from error
    except (OSError, ValueError) as error:
        discard_output()
        raise UnmeasurableError(
            f"standard output can not be written: {getattr(error, 'strerror', None) or error}",
            reason="unwritable",
        ) from error


def show_line(text: str) -> None:
    """As `show`, with a line break."""
    show(text + "\n")


def discard_output() -> None:
    """Let the interpreter flush what is left into nothing instead of complaining at its end."""
    if sys.stdout is None:
        return
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - until the process ends


def say(text: str) -> None:
    """Print one line on standard error, its control characters taken out; lost when nobody can read it."""
    write_error(one_line(text) + "\n")


def write_error(text: str) -> None:
    """Write to standard error as it is. Where that is closed or full, the remark is lost: what is being
    measured counts more."""
    if sys.stderr is None:
        return
    encoding = sys.stderr.encoding or "ascii"
    try:
        sys.stderr.write(text.encode(encoding, "replace").decode(encoding))
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - until the process ends


def one_line(text: str) -> str:
    """Without control, format and line-breaking characters, and of bearable length: names in it may come
    from anywhere."""
    cut = text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."
    return "".join(" " if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c for c in cut)


def is_live(stream: TextIO | None) -> bool:
    """Whether a person's terminal that can redraw a line is at the other end."""
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:
        return False


def width_of(stream: TextIO | None) -> int:
    """Columns of a stream: COLUMNS where it is set, else the terminal's, else 80."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and 0 < len(columns) <= 6 and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _PIPED_WIDTH if stream else _PIPED_WIDTH
    except (OSError, ValueError):
        return _PIPED_WIDTH
