"""The one place that writes reports: to standard output or, beside and renamed, to a file."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from probes.errors import UsageError
from probes.records import Run
from profiler_cli.console import note, style_of
from profiler_cli.options import FORMATS, parse_choice
from reports.formats import TerminalStyle, format_for_ending


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a report goes, and in which form."""

    form: str
    path: Path | None
    """None: standard output."""

    @classmethod
    def choose(cls, form: str | None, output: str | None) -> Destination:
        """From `--format` and `-o`: the format named, else the file's ending, else `terminal`.

        A file that can not be written is found out now, not after minutes of measuring: raises
        UsageError.
        """
        named = None if form is None else parse_choice(form, "--format", FORMATS)
        if output is None or output == "-":
            return cls(form=named or "terminal", path=None)
        path = Path(output)
        _require_writable(path)
        return cls(form=named or format_for_ending(path.suffix), path=path)


Render = Callable[[str, TerminalStyle], str]
"""Text of a report in a named form."""


def report_renderer(run: Run) -> Render:
    """The profile report of a run."""
    from reports.formats import FORMATS as RENDERERS
    from reports.report import build_report

    report = build_report(run)
    return lambda form, style: RENDERERS[form].render(report, style)


def deliver(render: Render, destination: Destination, *, show_too: bool = False, quiet: bool = False) -> None:
    """Render and write; `show_too` prints the terminal form as well when a file was asked for.

    Raises UsageError when the file can not be written.
    """
    if destination.path is None:
        _print(render(destination.form, style_of(sys.stdout)))
        return
    plain = TerminalStyle(width=100, colour=False, unicode=True)
    _write(destination.path, render(destination.form, plain))
    if show_too:
        _print(render("terminal", style_of(sys.stdout)))
    note(f"Report written to {destination.path}", quiet=quiet)


def _print(text: str) -> None:
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def _require_writable(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"--output: {path} is a folder; name a file in it", reason="unwritable")
    if path.exists() and not path.is_file():
        return
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".llmphase-"):
            pass
    except OSError as error:
        raise _unwritable(path, error) from error


def _write(path: Path, text: str) -> None:
    """Beside and renamed, so that a reader never finds half a report; devices and pipes are written to."""
    data = text.encode("utf-8", "replace")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".llmphase-", delete=False) as beside:
            beside.write(data)
        Path(beside.name).chmod(0o666 & ~_umask())
        Path(beside.name).replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"--output: {path} can not be written ({error.strerror or error}); name a file in a folder of yours",
        reason="unwritable",
    )
