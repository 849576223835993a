"""Engine settings as options, shared by the commands that measure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from profiler_cli import options

if TYPE_CHECKING:
    from probes.plan import Asked

_ENGINE = "Engine settings"


def _option(*names: str, panel: str, metavar: str, help: str) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, rich_help_panel=panel)


def _flag(*names: str, panel: str, help: str) -> Any:
    return typer.Option(*names, help=help, show_default=False, rich_help_panel=panel)


Threads = Annotated[
    int | None,
    _option("--threads", "-t", panel=_ENGINE, metavar="N", help="Threads for decode. Default: usable cores."),
]
ThreadsBatch = Annotated[
    int | None,
    _option(
        "--threads-batch",
        "-tb",
        panel=_ENGINE,
        metavar="N",
        help="Threads for prefill. Default: as --threads.",
    ),
]
Batch = Annotated[
    int | None,
    _option(
        "--batch", "-b", "--batch-size", panel=_ENGINE, metavar="N", help="Tokens in a batch. Default: 2048."
    ),
]
Ubatch = Annotated[
    int | None,
    _option(
        "--ubatch",
        "-ub",
        "--ubatch-size",
        panel=_ENGINE,
        metavar="N",
        help="Tokens in a micro-batch. Default: 512.",
    ),
]
FlashAttn = Annotated[
    str | None,
    _option("--flash-attn", "-fa", panel=_ENGINE, metavar="WHEN", help="on, off or auto. Default: auto."),
]
TypeK = Annotated[
    str | None,
    _option(
        "--type-k",
        "-ctk",
        "--cache-type-k",
        panel=_ENGINE,
        metavar="TYPE",
        help="Type of the K cache. Default: f16.",
    ),
]
TypeV = Annotated[
    str | None,
    _option(
        "--type-v",
        "-ctv",
        "--cache-type-v",
        panel=_ENGINE,
        metavar="TYPE",
        help="Type of the V cache. Default: f16.",
    ),
]
GpuLayers = Annotated[
    str | None,
    _option(
        "--gpu-layers",
        "-ngl",
        "--n-gpu-layers",
        panel=_ENGINE,
        metavar="N",
        help="Layers on the GPU: a number, all or auto. Default: auto.",
    ),
]
Ctx = Annotated[
    int | None,
    _option(
        "--ctx",
        "-c",
        "--ctx-size",
        panel=_ENGINE,
        metavar="N",
        help="Context size. Default: what is needed.",
    ),
]
LoadMode = Annotated[
    str | None,
    _option(
        "--load-mode", panel=_ENGINE, metavar="MODE", help=f"{', '.join(options.LOAD_MODES)}. Default: auto."
    ),
]
Repack = Annotated[
    bool | None,
    _flag(
        "--repack/--no-repack",
        panel=_ENGINE,
        help="Let the engine lay weights out anew for this CPU. Default: repack.",
    ),
]
Force = Annotated[
    bool, _flag("--force", panel=_ENGINE, help="Measure what will likely not fit into memory, too.")
]


def read_engine_options(
    *,
    threads: int | None,
    threads_batch: int | None,
    n_batch: int | None,
    n_ubatch: int | None,
    flash_attn: str | None,
    type_k: str | None,
    type_v: str | None,
    gpu_layers: str | None,
    n_ctx: int | None,
    load_mode: str | None,
    repack: bool | None,
    budget: str | None,
) -> Asked:
    """What was given, checked one by one. Raises UsageError naming the option."""
    from probes.plan import Asked

    return Asked(
        threads=threads,
        threads_batch=threads_batch,
        n_batch=n_batch,
        n_ubatch=n_ubatch,
        n_ctx=n_ctx,
        flash_attn=options.optional_choice(flash_attn, "--flash-attn", options.FLASH_CHOICES),
        type_k=options.optional_choice(type_k, "--type-k", options.CACHE_TYPES),
        type_v=options.optional_choice(type_v, "--type-v", options.CACHE_TYPES),
        n_gpu_layers=options.optional(options.parse_gpu_layers, gpu_layers),
        load_mode=options.optional_choice(load_mode, "--load-mode", options.LOAD_MODES),
        repack=repack,
        budget_ns=options.optional(options.parse_duration_ns, budget),
    )
