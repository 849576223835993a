"""`llmphase profile`: measure models and print the report."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from profiler_cli import options
from profiler_cli.engine_options import (
    Batch,
    Ctx,
    FlashAttn,
    Force,
    GpuLayers,
    LoadMode,
    Repack,
    Threads,
    ThreadsBatch,
    TypeK,
    TypeV,
    Ubatch,
    read_engine_options,
)
from profiler_cli.options import Format, Output, Quiet

_MODEL_HELP = (
    "A GGUF file, folder or glob; demo; ollama:NAME[:TAG]; hf:REPO/FILE. "
    "Without one: $LLMPHASE_MODEL, else the model profiled last, else demo."
)
_CELLS, _TIME = "What to measure", "How long and how exactly"


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
    force: Force = False,
    threads: Threads = None,
    threads_batch: ThreadsBatch = None,
    batch: Batch = None,
    ubatch: Ubatch = None,
    flash_attn: FlashAttn = None,
    type_k: TypeK = None,
    type_v: TypeV = None,
    gpu_layers: GpuLayers = None,
    ctx: Ctx = None,
    load_mode: LoadMode = None,
    repack: Repack = None,
    form: Format = None,
    output: Output = None,
    no_save: _NoSave = False,
    quiet: Quiet = False,
) -> None:
    """Time load, prefill and decode of each MODEL apart, across prompt lengths."""
    from dataclasses import replace

    from profiler_cli.measuring import profile_models
    from profiler_cli.wishes import Wishes

    engine = read_engine_options(
        threads=threads,
        threads_batch=threads_batch,
        n_batch=batch,
        n_ubatch=ubatch,
        flash_attn=flash_attn,
        type_k=type_k,
        type_v=type_v,
        gpu_layers=gpu_layers,
        n_ctx=ctx,
        load_mode=load_mode,
        repack=repack,
        budget=budget,
    )
    asked = replace(
        engine,
        prompt_tokens=options.optional(options.parse_lengths, prompt_tokens),
        output_tokens=output_tokens,
        repetitions=repetitions,
        precision=options.optional(options.parse_share, precision),
        tokens=options.optional_choice(tokens, "--tokens", options.TOKEN_KINDS),
        seed=seed,
        cold=cold,
        like=options.optional_choice(like, "--like", options.LIKES),
    )
    wishes = Wishes(form=form, output=output, quiet=quiet, save=not no_save, force=force)
    raise typer.Exit(profile_models(models or [], asked, wishes))
