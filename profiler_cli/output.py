"""The one place that writes reports: to standard output or, beside and renamed, to a file."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from probes.atomic_file import replace_file
from probes.errors import UnmeasurableError, UsageError
from probes.records import Run
from profiler_cli.console import note, style_of
from profiler_cli.options import FORMATS, parse_choice
from profiler_cli.streams import show
from reports.formats import TerminalStyle, format_for_ending

if TYPE_CHECKING:
    from reports.report import Report


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a report goes, and in which form."""

    form: str
    path: Path | None
    """None: standard output."""

    @classmethod
    def choose(cls, form: str | None, output: str | None, forms: tuple[str, ...] = FORMATS) -> Destination:
        """From `--format` (one of `forms`) and `-o`: the format named, else the file's ending, else
        `terminal`.

        A file that can not be written is found out now, not after minutes of measuring: raises
        UsageError.
        """
        named = None if form is None else parse_choice(form, "--format", forms)
        if output is None or output == "-":
            return cls(form=named or "terminal", path=None)
        path = Path(output)
        require_writable(path)
        return cls(form=named or format_for_ending(path.suffix, forms), path=path)


Render = Callable[[str, TerminalStyle], str]
"""Text of a report in a named form."""


def report_renderer(run: Run) -> Render:
    """The profile report of a run."""
    from reports.report import build_report

    return renderer_of(build_report(run))


def renderer_of(report: Report) -> Render:
    """A profile report in any form."""
    from reports.formats import FORMATS as RENDERERS

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
    text = render(destination.form, plain)
    write_data(
        destination.path,
        text.encode("utf-8", "replace"),
        advice="`llmphase report last -o FILE` writes the saved run again",
    )
    note(f"Report written to {destination.path}", quiet=quiet)


def require_writable(path: Path, option: str = "--output") -> None:
    """What can be known before measuring: raises UsageError for a folder, a model, or no right to write."""
    try:
        _try_to_write(path, option)
    except OSError as error:
        raise UsageError(
            f"{option}: {path} can not be written ({error.strerror or error}); name a file of yours",
            reason="unwritable",
        ) from error


def _try_to_write(path: Path, option: str) -> None:
    if path.is_dir():
        raise UsageError(f"{option}: {path} is a folder; name a file in it", reason="unwritable")
    if path.exists() and not path.is_file():
        return
    if path.exists() and _begins_as_model(path):
        raise UsageError(f"{option}: {path} is a model file; name another file", reason="unwritable")
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".llmphase-"):
        pass


def _begins_as_model(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def write_data(path: Path, data: bytes, *, option: str = "--output", advice: str = "make room") -> None:
    """Beside and renamed, so that a reader never finds half a file; devices and pipes are written to.

    Raises UnmeasurableError (`unwritable`).
    """
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            replace_file(path, data, mode=0o666 & ~_umask())
    except OSError as error:
        raise UnmeasurableError(
            f"{option}: {path} was not written: {error.strerror or error}; {advice}", reason="unwritable"
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
