"""The program: its commands, and the one place where errors are caught."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from probes.errors import EXIT_DONE, EXIT_INTERRUPTED, LlmphaseError
from profiler_cli import __version__
from profiler_cli.commands.doctor import doctor
from profiler_cli.commands.models import models
from profiler_cli.commands.profile import profile
from profiler_cli.commands.report import report
from profiler_cli.commands.runs import runs

app = typer.Typer(
    name="llmphase",
    help="Times load, prefill and decode of local GGUF models apart, and says which one you wait for.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done · 1 a check failed · 2 wrong use · 3 could not measure · 130 interrupted.",
)

for command in (profile, report, runs, models, doctor):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"llmphase {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end."),
    ] = False,
) -> None:
    """Times load, prefill and decode of local GGUF models apart, and says which one you wait for."""


def main() -> None:
    """Run the program; every error becomes one line on standard error and an exit code."""
    try:
        app()
    except LlmphaseError as error:
        _say(f"llmphase: {error}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _say("llmphase: interrupted")
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        _close_quietly()
        sys.exit(EXIT_DONE)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _close_quietly() -> None:
    """Nobody reads on: let the interpreter flush into nothing instead of complaining."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
