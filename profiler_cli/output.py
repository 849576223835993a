"""The one place that writes reports: to standard output or, beside and renamed, to a file."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from probes.atomic_file import replace_file
from probes.errors import UnmeasurableError, UsageError
from probes.records import Run
from profiler_cli.console import note, style_of
from profiler_cli.options import FORMATS, parse_choice
from profiler_cli.streams import show
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
        try:
            _require_writable(path)
        except OSError as error:
            raise UsageError(
                f"--output: {path} can not be written ({error.strerror or error}); name a file of yours",
                reason="unwritable",
            ) from error
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

    Raises UnmeasurableError when the file or standard output can not be written after all.
    """
    if destination.path is None:
        show(render(destination.form, style_of(sys.stdout)))
        return
    if show_too:
        show(render("terminal", style_of(sys.stdout)))
    plain = TerminalStyle(width=100, colour=False, unicode=True)
    _write(destination.path, render(destination.form, plain))
    note(f"Report written to {destination.path}", quiet=quiet)


def _require_writable(path: Path) -> None:
    """What can be known before measuring: a folder, a model, or no right to write there."""
    if path.is_dir():
        raise UsageError(f"--output: {path} is a folder; name a file in it", reason="unwritable")
    if path.exists() and not path.is_file():
        return
    if path.exists() and _begins_as_model(path):
        raise UsageError(f"--output: {path} is a model file; name another file", reason="unwritable")
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".llmphase-"):
        pass


def _begins_as_model(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def _write(path: Path, text: str) -> None:
    """Beside and renamed, so that a reader never finds half a report; devices and pipes are written to."""
    data = text.encode("utf-8", "replace")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            replace_file(path, data, mode=0o666 & ~_umask())
    except OSError as error:
        raise UnmeasurableError(
            f"--output: {path} was not written: {error.strerror or error}; `llmphase report last -o FILE`"
            " writes the saved run again",
            reason="unwritable",
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
