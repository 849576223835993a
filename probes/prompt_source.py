"""The user's prompt: read from a file or standard input, and refused clearly when it is no text."""

from __future__ import annotations

import sys
from pathlib import Path

from probes.errors import UnmeasurableError, UsageError
from probes.text import show_path

MAX_PROMPT_BYTES = 64 * 1024 * 1024
"""More than any context holds: a larger file was hardly meant as a prompt."""
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\r\f\v\x1b")
_MOST_CONTROLS = 0.01
"""A larger share of control characters makes a binary file, not a text."""


def read_prompt(name: str, option: str = "--prompt") -> str:
    """The text of a file, or of standard input for `-`. Raises UsageError, UnmeasurableError."""
    shown = "standard input" if name == "-" else show_path(Path(name))
    data = _read_input() if name == "-" else _read_file(Path(name), option)
    if len(data) > MAX_PROMPT_BYTES:
        raise UsageError(
            f"{option}: {shown} is larger than {MAX_PROMPT_BYTES // 2**20} MiB: no context holds it",
            reason="prompt",
        )
    if not data.strip():
        raise UsageError(f"{option}: {shown} is empty: there is nothing to read", reason="prompt")
    return _decoded(data, f"{option}: {shown}")


def _read_input() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("--prompt -: pipe the prompt into the command, or name a file", reason="prompt")
    return sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1)


def _read_file(path: Path, option: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_PROMPT_BYTES + 1)
    except (FileNotFoundError, IsADirectoryError, ValueError) as error:
        raise UsageError(f"{option}: there is no file {show_path(path)}", reason="prompt") from error
    except OSError as error:
        raise UnmeasurableError(
            f"{option}: {show_path(path)} can not be read: {error.strerror}", reason="prompt"
        ) from error


def _decoded(data: bytes, what: str) -> str:
    """UTF-8, and UTF-16 where its mark says so."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    controls = sum(byte in _CONTROLS for byte in data) if encoding == "utf-8-sig" else 0
    if controls > _MOST_CONTROLS * len(data):
        raise UsageError(f"{what} is binary, not a text", reason="prompt")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{what} is not {error.encoding.upper().removesuffix('-SIG')}: byte {error.start + 1:,}"
            f" (0x{data[error.start]:02x}) is wrong; convert it, for example with iconv",
            reason="prompt",
        ) from error
