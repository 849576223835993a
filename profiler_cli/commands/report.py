"""`llmphase report`: print a saved run again, in any form."""

from __future__ import annotations

from typing import Annotated

import typer

from profiler_cli.options import Format, Output


def report(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run id, `last`, `last~N`, or the path of a run file.")
    ] = "last",
    form: Format = None,
    output: Output = None,
) -> None:
    """Print the report of a saved run, without touching the model."""
    from probes.run_files import RunStore
    from profiler_cli.output import Destination, deliver, report_renderer

    destination = Destination.choose(form, output)
    deliver(report_renderer(RunStore().load(run)), destination)
