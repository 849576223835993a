"""The program and its commands."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Annotated

import typer

from probes.errors import EXIT_DONE
from profiler_cli import __version__
from profiler_cli.commands.compare import compare
from profiler_cli.commands.devices import devices
from profiler_cli.commands.diagnose import diagnose
from profiler_cli.commands.doctor import doctor
from profiler_cli.commands.history import history
from profiler_cli.commands.models import models
from profiler_cli.commands.profile import profile
from profiler_cli.commands.report import report
from profiler_cli.commands.rpc_server import rpc_server
from profiler_cli.commands.runs import runs
from profiler_cli.streams import say

DEFAULT_TRIALS = 2

app = typer.Typer(
    name="llmphase",
    help="Times load, prefill and decode of local GGUF models apart, and says which one you wait for.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 a check failed, 2 wrong use, 3 could not measure, 130 interrupted.",
)

for command in (profile, diagnose, compare, report, runs, history, models, devices, doctor, rpc_server):
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


def _with_counts(arguments: Sequence[str]) -> list[str]:
    """`--verify` may stand alone: the parser knows no options whose value may be left out."""
    given = list(arguments)
    for index, word in enumerate(arguments):
        following = arguments[index + 1 : index + 2]
        if word == "--verify" and not (following and following[0].isdigit()):
            given[index] = f"--verify={DEFAULT_TRIALS}"
    return given


def run(arguments: Sequence[str]) -> int:
    """Parse the command line and run its command; the exit code. Errors of ours, of the system and
    interruptions come through."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("llmphase", _with_counts(arguments)) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except Exception as error:
        if not (hasattr(error, "show") and hasattr(error, "exit_code")):
            raise
        words = io.StringIO()
        error.show(words)  # wrong use, in the parser's own words: they repeat the argument as it is
        for line in words.getvalue().splitlines():
            say(line)
        return int(error.exit_code)
    return EXIT_DONE
