"""`llmphase devices`: what computes here, how fast, and what the drivers say."""

from __future__ import annotations

from typing import Annotated

import typer

from profiler_cli.options import Format, Output, Quiet

_Rpc = Annotated[
    str | None,
    typer.Option(
        "--rpc",
        metavar="HOST:PORT,...",
        help="Add devices of machines that run `llmphase rpc-server`.",
        show_default=False,
    ),
]
_NoMeasure = Annotated[
    bool, typer.Option("--no-measure", help="List only: measure no bandwidth, matmul and transfer rates.")
]
_Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", "-t", min=1, metavar="N", help="Of the CPU. Default: usable cores.", show_default=False
    ),
]


def devices(
    rpc: _Rpc = None,
    no_measure: _NoMeasure = False,
    threads: _Threads = None,
    form: Format = None,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """List what computes here: the engine's devices with their rates, and the GPUs' drivers.

    Ends with exit code 3 when the engine or a server of --rpc can not be used.
    """
    from profiler_cli.listing_devices import list_devices
    from profiler_cli.options import optional, parse_servers

    servers = optional(parse_servers, rpc) or ()
    code = list_devices(
        servers, threads=threads, measure=not no_measure, form=form, output=output, quiet=quiet
    )
    raise typer.Exit(code)
