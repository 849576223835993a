"""`llmphase rpc-server`: let other machines use this one's devices."""

from __future__ import annotations

from typing import Annotated

import typer

from profiler_cli.options import Quiet

_DEFAULT = "127.0.0.1:50052"
_Bind = Annotated[
    str,
    typer.Option("--bind", metavar="ADDRESS:PORT", help="Where to listen: an IPv4 address of this machine."),
]
_Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", "-t", metavar="N", help="Of a CPU device. Default: usable cores.", show_default=False
    ),
]
_Cache = Annotated[
    bool, typer.Option("--cache", help="Keep large tensors on disk: they are not sent a second time.")
]
_AllowRemote = Annotated[
    bool,
    typer.Option(
        "--allow-remote",
        help="Listen beyond this machine, without authentication: in a trusted network alone.",
    ),
]


def rpc_server(
    bind: _Bind = _DEFAULT,
    threads: _Threads = None,
    cache: _Cache = False,
    allow_remote: _AllowRemote = False,
    quiet: Quiet = False,
) -> None:
    """Serve this machine's devices to `--rpc` of other machines, until Ctrl-C."""
    from profiler_cli.serving import serve

    serve(bind, threads, with_cache=cache, allow_remote=allow_remote, quiet=quiet)
