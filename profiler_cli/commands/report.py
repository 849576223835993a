"""`llmphase report`: print a saved run, or a file of llama-bench, in any form."""

from __future__ import annotations

from typing import Annotated

import typer

from profiler_cli.options import PROFILE_FORMATS, Output, ProfileFormat


def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run id, `last`, `last~N`, the path of a run file, or a file that llama-bench wrote.",
        ),
    ] = "last",
    form: ProfileFormat = None,
    output: Output = None,
    details: Annotated[
        bool, typer.Option("--details", help="Show each setting in full, however many there are.")
    ] = False,
) -> None:
    """Print the report of a saved run, without touching the model.

    Also of a file that llama-bench wrote (json, jsonl, csv, sql, md).
    """
    from dataclasses import replace

    from probes.run_files import RunStore
    from profiler_cli.loading import load_results, report_of
    from profiler_cli.output import Destination, deliver, renderer_of

    destination = Destination.choose(form, output, PROFILE_FORMATS)
    found = replace(report_of(load_results(run, RunStore())), with_details=details)
    deliver(renderer_of(found), destination)
