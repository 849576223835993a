"""Lines of a log of any length from a file or standard input, in bounded memory."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from probes.errors import UnmeasurableError, UsageError
from probes.text import show_path

_CHUNK_BYTES = 2**20
MOST_CHARACTERS = 4 * 2**20
"""Of one line; the rest of a longer one is dropped, for no program that is read here writes any."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""PowerShell writes UTF-16 when output is sent to a file."""
_KINDS = (
    (b"GGUF", "a model file: give it as --model, and the program's output as --log"),
    (b"\x1f\x8b", "compressed (gzip): zcat FILE | llmphase diagnose --log -"),
    (b"\x28\xb5\x2f\xfd", "compressed (zstd): zstdcat FILE | llmphase diagnose --log -"),
    (b"\xfd7zXZ", "compressed (xz): xzcat FILE | llmphase diagnose --log -"),
    (b"BZh", "compressed (bzip2): bzcat FILE | llmphase diagnose --log -"),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"%PDF", "a PDF: copy its text into a file"),
    (b"\x89PNG", "a picture: paste the text itself"),
)
_BINARY_SHARE = 0.05
"""Share of NUL bytes in the beginning above which it is no text; a crash leaves some in a log."""


def read_log_lines(name: str, option: str = "--log") -> Iterator[str]:
    """The lines without their ends, `-` for standard input; a carriage return ends a line too.

    Bytes that are no text are replaced. Raises UsageError for a file that is missing, empty or binary,
    UnmeasurableError where it can not be read.
    """
    shown = "standard input" if name == "-" else show_path(Path(name))
    with _opened(name, option) as file:
        try:
            beginning = file.read(_CHUNK_BYTES)
            encoding = _encoding(beginning, f"{option}: {shown}")
            yield from _lines(file, beginning, encoding)
        except OSError as error:
            raise UnmeasurableError(
                f"{option}: {shown} can not be read: {error.strerror or error}", reason="unreadable"
            ) from error


@contextmanager
def _opened(name: str, option: str) -> Iterator[BinaryIO]:
    if name == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError(f"{option} -: pipe the log into the command, or name a file", reason="no-log")
        yield sys.stdin.buffer
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - closed below
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError) as error:
        raise UsageError(f"{option}: there is no file {show_path(Path(name))}", reason="no-log") from error
    except OSError as error:
        raise UnmeasurableError(
            f"{option}: {show_path(Path(name))} can not be read: {error.strerror}", reason="unreadable"
        ) from error
    with file:
        yield file


def _encoding(beginning: bytes, what: str) -> str:
    """UTF-8 unless a mark or the places of NUL bytes say otherwise."""
    if not beginning.strip():
        raise UsageError(f"{what} is empty: there is nothing to read", reason="no-log")
    for start, kind in _KINDS:
        if beginning.startswith(start):
            raise UsageError(f"{what} is {kind}", reason="binary-log")
    for mark, encoding in _MARKS:
        if beginning.startswith(mark):
            return encoding
    nul = beginning.count(0)
    if nul <= _BINARY_SHARE * len(beginning):
        return "utf-8"
    odd = beginning[1::2].count(0)
    if odd >= 0.9 * nul and nul > 0.3 * len(beginning):
        return "utf-16-le"
    raise UsageError(
        f"{what} is binary, not a log: give what the program printed, as text", reason="binary-log"
    )


def _lines(file: BinaryIO, beginning: bytes, encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    rest, chunk, is_cut = "", beginning, False
    while chunk:
        text = rest + decoder.decode(chunk)
        parts = text.splitlines()
        rest = parts.pop() if parts and text[-1:] not in ("\n", "\r") else ""
        if parts and is_cut:
            parts, is_cut = parts[1:], False
        yield from parts
        if len(rest) > MOST_CHARACTERS:
            if not is_cut:
                yield rest[:MOST_CHARACTERS]
            rest, is_cut = "", True
        chunk = file.read(_CHUNK_BYTES)
    rest += decoder.decode(b"", final=True)
    if rest and not is_cut:
        yield rest
