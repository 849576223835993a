"""`llmphase compare`: what got faster or slower between measurements, and what is only noise."""

from __future__ import annotations

from typing import Annotated

import typer

from profiler_cli.comparison_options import ComparisonFormat, ComparisonOptions, with_comparison_options
from profiler_cli.options import Output, Quiet

_HELP = (
    "The file to compare with, then one or more others: a run id, last, last~N, a run file, a csv or json"
    " export, or a file that llama-bench wrote."
)


@with_comparison_options
def compare(
    files: Annotated[list[str], typer.Argument(metavar="BASE NEW...", help=_HELP, show_default=False)],
    form: ComparisonFormat = None,
    output: Output = None,
    quiet: Quiet = False,
    *,
    comparison: ComparisonOptions,
) -> None:
    """Compare measurements cell by cell: slower, faster, the same, or too noisy to say."""
    from profiler_cli.comparing import compare_files

    raise typer.Exit(compare_files(files, comparison.read(), form, output, quiet=quiet))
