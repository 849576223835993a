"""`llmphase profile`: measure models and print the report."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from profiler_cli import options
from profiler_cli.options import Format, Output, Quiet

_MODEL_HELP = (
    "A GGUF file, folder or glob; demo; ollama:NAME[:TAG]; hf:REPO/FILE. "
    "Without one: $LLMPHASE_MODEL, else the model profiled last, else demo."
)
_CELLS, _TIME, _ENGINE = "What to measure", "How long and how exactly", "Engine settings"


def _option(*names: str, panel: str, metavar: str, help: str) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, rich_help_panel=panel)


def _flag(*names: str, panel: str, help: str) -> Any:
    return typer.Option(*names, help=help, show_default=False, rich_help_panel=panel)


_Models = Annotated[
    list[str] | None,
    typer.Argument(metavar="MODEL...", help=_MODEL_HELP.replace("[", "\\["), show_default=False),
]
_PromptTokens = Annotated[
    str | None,
    _option(
        "--prompt-tokens",
        "-p",
        panel=_CELLS,
        metavar="LIST",
        help="Prompt lengths, such as 512,2048 or 512-8192*2 or 0-4096+512. Default: 0,128,512,2048.",
    ),
]
_OutputTokens = Annotated[
    int | None,
    _option(
        "--output-tokens", "-n", panel=_CELLS, metavar="N", help="Decode steps at each depth. Default: 32."
    ),
]
_Tokens = Annotated[
    str | None,
    _option("--tokens", panel=_CELLS, metavar="KIND", help="Prompt of text or random tokens. Default: text."),
]
_Seed = Annotated[
    int | None, _option("--seed", panel=_CELLS, metavar="N", help="Seed of the prompt. Default: 0.")
]
_Cold = Annotated[
    bool, _flag("--cold", panel=_CELLS, help="Drop the file from the page cache before loading.")
]
_Like = Annotated[
    str | None,
    _option("--like", panel=_CELLS, metavar="TOOL", help="Take another tool's defaults: llama-bench."),
]
_Repetitions = Annotated[
    int | None,
    _option(
        "--repetitions", "-r", panel=_TIME, metavar="N", help="Exactly N passes, whatever the precision."
    ),
]
_Precision = Annotated[
    str | None,
    _option(
        "--precision", panel=_TIME, metavar="SHARE", help="Half-width of each interval to reach. Default: 3%."
    ),
]
_Budget = Annotated[
    str | None,
    _option("--budget", panel=_TIME, metavar="TIME", help="Time for everything: 90s, 2m, 1h. Default: 2m."),
]
_Force = Annotated[
    bool, _flag("--force", panel=_TIME, help="Measure what will likely not fit into memory, too.")
]
_Threads = Annotated[
    int | None,
    _option("--threads", "-t", panel=_ENGINE, metavar="N", help="Threads for decode. Default: usable cores."),
]
_ThreadsBatch = Annotated[
    int | None,
    _option(
        "--threads-batch",
        "-tb",
        panel=_ENGINE,
        metavar="N",
        help="Threads for prefill. Default: as --threads.",
    ),
]
_Batch = Annotated[
    int | None,
    _option(
        "--batch", "-b", "--batch-size", panel=_ENGINE, metavar="N", help="Tokens in a batch. Default: 2048."
    ),
]
_Ubatch = Annotated[
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
_FlashAttn = Annotated[
    str | None,
    _option("--flash-attn", "-fa", panel=_ENGINE, metavar="WHEN", help="on, off or auto. Default: auto."),
]
_TypeK = Annotated[
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
_TypeV = Annotated[
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
_GpuLayers = Annotated[
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
_Ctx = Annotated[
    int | None,
    _option(
        "--ctx",
        "-c",
        "--ctx-size",
        panel=_ENGINE,
        metavar="N",
        help="Context size. Default: what the cells need.",
    ),
]
_LoadMode = Annotated[
    str | None,
    _option(
        "--load-mode", panel=_ENGINE, metavar="MODE", help=f"{', '.join(options.LOAD_MODES)}. Default: auto."
    ),
]
_Repack = Annotated[
    bool | None,
    _flag(
        "--repack/--no-repack",
        panel=_ENGINE,
        help="Let the engine lay weights out anew for this CPU. Default: repack.",
    ),
]
_NoSave = Annotated[bool, typer.Option("--no-save", help="Do not save the run.")]


def profile(
    models: _Models = None,
    prompt_tokens: _PromptTokens = None,
    output_tokens: _OutputTokens = None,
    tokens: _Tokens = None,
    seed: _Seed = None,
    cold: _Cold = False,
    like: _Like = None,
    repetitions: _Repetitions = None,
    precision: _Precision = None,
    budget: _Budget = None,
    force: _Force = False,
    threads: _Threads = None,
    threads_batch: _ThreadsBatch = None,
    batch: _Batch = None,
    ubatch: _Ubatch = None,
    flash_attn: _FlashAttn = None,
    type_k: _TypeK = None,
    type_v: _TypeV = None,
    gpu_layers: _GpuLayers = None,
    ctx: _Ctx = None,
    load_mode: _LoadMode = None,
    repack: _Repack = None,
    form: Format = None,
    output: Output = None,
    no_save: _NoSave = False,
    quiet: Quiet = False,
) -> None:
    """Time load, prefill and decode of each MODEL apart, across prompt lengths."""
    from probes.plan import Asked
    from profiler_cli.measuring import Wishes, profile_models

    asked = Asked(
        prompt_tokens=options.optional(options.parse_lengths, prompt_tokens),
        output_tokens=output_tokens,
        threads=threads,
        threads_batch=threads_batch,
        n_batch=batch,
        n_ubatch=ubatch,
        n_ctx=ctx,
        flash_attn=options.optional_choice(flash_attn, "--flash-attn", options.FLASH_CHOICES),
        type_k=options.optional_choice(type_k, "--type-k", options.CACHE_TYPES),
        type_v=options.optional_choice(type_v, "--type-v", options.CACHE_TYPES),
        n_gpu_layers=options.optional(options.parse_gpu_layers, gpu_layers),
        load_mode=options.optional_choice(load_mode, "--load-mode", options.LOAD_MODES),
        repack=repack,
        repetitions=repetitions,
        precision=options.optional(options.parse_share, precision),
        budget_ns=options.optional(options.parse_duration_ns, budget),
        tokens=options.optional_choice(tokens, "--tokens", options.TOKEN_KINDS),
        seed=seed,
        cold=cold,
        like=options.optional_choice(like, "--like", options.LIKES),
    )
    wishes = Wishes(form=form, output=output, quiet=quiet, save=not no_save, force=force)
    raise typer.Exit(profile_models(models or [], asked, wishes))
