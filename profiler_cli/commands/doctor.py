"""`llmphase doctor`: whether this machine and its engine are fit for measuring, and what to change."""

from __future__ import annotations

import enum
from typing import Annotated

import typer


class DoctorFormat(str, enum.Enum):
    """How the findings are written."""

    TERMINAL = "terminal"
    JSON = "json"


def doctor(
    form: Annotated[DoctorFormat, typer.Option("--format", help="terminal or json.")] = DoctorFormat.TERMINAL,
    self_test: Annotated[
        bool,
        typer.Option("--self-test", help="Measure tiny generated models whose work is known instead."),
    ] = False,
) -> None:
    """Check machine and engine before measuring, with a fix for what is wrong.

    Ends with exit code 1 when something needs fixing, or when a self-test fails.
    """
    from profiler_cli.checking import check_up
    from profiler_cli.self_testing import check_self

    raise typer.Exit(check_self(form.value) if self_test else check_up(form.value))
