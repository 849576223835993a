"""`llmphase compare`: what got faster or slower between measurements, and what is only noise."""

from __future__ import annotations

from typing import Annotated

import typer

from profiler_cli.comparison_options import (
    Anyway,
    ComparisonFormat,
    FailOver,
    GitHub,
    NoiseIsFailure,
    PhaseChoice,
    SameWithin,
)
from profiler_cli.options import Output, Quiet

_HELP = (
    "The file to compare with, then one or more others: a run id, last, last~N, a run file, a csv or json"
    " export, or a file that llama-bench wrote."
)


def compare(
    files: Annotated[list[str], typer.Argument(metavar="BASE NEW...", help=_HELP, show_default=False)],
    phase: PhaseChoice = None,
    same_within: SameWithin = None,
    anyway: Anyway = False,
    fail_over: FailOver = None,
    noise_is_failure: NoiseIsFailure = False,
    form: ComparisonFormat = None,
    output: Output = None,
    github: GitHub = False,
    quiet: Quiet = False,
) -> None:
    """Compare measurements cell by cell: slower, faster, the same, or too noisy to say."""
    from profiler_cli.comparing import Comparing, compare_files

    comparing = Comparing.read(
        phase=phase,
        same_within=same_within,
        fail_over=fail_over,
        noise_is_failure=noise_is_failure,
        anyway=anyway,
        github=github,
    )
    raise typer.Exit(compare_files(files, comparing, form, output, quiet=quiet))
