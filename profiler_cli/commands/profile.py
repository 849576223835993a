"""`llmphase profile`: measure models and print the report."""

from __future__ import annotations

from typing import Annotated

import typer

from profiler_cli import options
from profiler_cli.options import Format, Output, Quiet

_MODEL_HELP = (
    "A GGUF file, folder or glob; demo; ollama:NAME[:TAG]; hf:REPO/FILE. "
    "Absent: $LLMPHASE_MODEL, else the model profiled last, else demo."
)


def _text(*names: str, help: str, metavar: str) -> typer.models.OptionInfo:
    return typer.Option(*names, help=help, metavar=metavar, show_default=False)  # type: ignore[no-any-return]


def profile(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL...", help=_MODEL_HELP, show_default=False)
    ] = None,
    prompt_tokens: Annotated[
        str | None,
        _text(
            "--prompt-tokens",
            "-p",
            help="Prompt lengths: 512,2048 or 512-8192*2 or 0-4096+512. [0,128,512,2048]",
            metavar="LIST",
        ),
    ] = None,
    output_tokens: Annotated[
        int | None, _text("--output-tokens", "-n", help="Decode steps after each prompt. [32]", metavar="N")
    ] = None,
    threads: Annotated[
        int | None, _text("--threads", "-t", help="Threads for decode. [usable cores]", metavar="N")
    ] = None,
    threads_batch: Annotated[
        int | None, _text("--threads-batch", "-tb", help="Threads for prefill. [as --threads]", metavar="N")
    ] = None,
    batch: Annotated[
        int | None, _text("--batch", "-b", "--batch-size", help="Tokens in a batch. [2048]", metavar="N")
    ] = None,
    ubatch: Annotated[
        int | None,
        _text("--ubatch", "-ub", "--ubatch-size", help="Tokens in a micro-batch. [512]", metavar="N"),
    ] = None,
    flash_attn: Annotated[
        str | None,
        _text("--flash-attn", "-fa", help="Flash attention: on, off, auto. [auto]", metavar="WHEN"),
    ] = None,
    type_k: Annotated[
        str | None,
        _text("--type-k", "-ctk", "--cache-type-k", help="Type of the K cache. [f16]", metavar="TYPE"),
    ] = None,
    type_v: Annotated[
        str | None,
        _text("--type-v", "-ctv", "--cache-type-v", help="Type of the V cache. [f16]", metavar="TYPE"),
    ] = None,
    gpu_layers: Annotated[
        str | None,
        _text(
            "--gpu-layers",
            "-ngl",
            "--n-gpu-layers",
            help="Layers on the GPU: N, all, auto. [auto]",
            metavar="N",
        ),
    ] = None,
    ctx: Annotated[
        int | None,
        _text("--ctx", "-c", "--ctx-size", help="Context size. [what the longest cell needs]", metavar="N"),
    ] = None,
    load_mode: Annotated[
        str | None,
        _text("--load-mode", help="auto, none, mmap, mlock, mmap+mlock, dio. [auto]", metavar="MODE"),
    ] = None,
    repack: Annotated[
        bool | None,
        typer.Option(
            "--repack/--no-repack", help="Lay weights out anew for this CPU. [repack]", show_default=False
        ),
    ] = None,
    repetitions: Annotated[
        int | None, _text("--repetitions", "-r", help="Exactly N passes. [until --precision]", metavar="N")
    ] = None,
    precision: Annotated[
        str | None, _text("--precision", help="Wanted half-width of each interval. [3%]", metavar="SHARE")
    ] = None,
    budget: Annotated[str | None, _text("--budget", help="Time for everything. [2m]", metavar="TIME")] = None,
    cold: Annotated[
        bool, typer.Option("--cold", help="Drop the file from the page cache before loading.")
    ] = False,
    tokens: Annotated[
        str | None, _text("--tokens", help="Prompt: text or random. [text]", metavar="KIND")
    ] = None,
    seed: Annotated[int | None, _text("--seed", help="Seed of the prompt. [0]", metavar="N")] = None,
    like: Annotated[
        str | None, _text("--like", help="Defaults of another tool: llama-bench.", metavar="TOOL")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Measure even what will likely not fit into memory.")
    ] = False,
    no_save: Annotated[bool, typer.Option("--no-save", help="Do not save the run.")] = False,
    form: Format = None,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Time load, prefill and decode of each MODEL apart, across prompt lengths."""
    from probes.plan import Asked
    from profiler_cli.measuring import Wishes, profile_models

    asked = Asked(
        prompt_tokens=options.parse_lengths(prompt_tokens) if prompt_tokens is not None else None,
        output_tokens=output_tokens,
        threads=threads,
        threads_batch=threads_batch,
        n_batch=batch,
        n_ubatch=ubatch,
        n_ctx=ctx,
        flash_attn=options.optional_choice(flash_attn, "--flash-attn", options.FLASH_CHOICES),
        type_k=options.optional_choice(type_k, "--type-k", options.CACHE_TYPES),
        type_v=options.optional_choice(type_v, "--type-v", options.CACHE_TYPES),
        n_gpu_layers=options.parse_gpu_layers(gpu_layers) if gpu_layers is not None else None,
        load_mode=options.optional_choice(load_mode, "--load-mode", options.LOAD_MODES),
        repack=repack,
        repetitions=repetitions,
        precision=options.parse_share(precision) if precision is not None else None,
        budget_ns=options.parse_duration_ns(budget) if budget is not None else None,
        tokens=options.optional_choice(tokens, "--tokens", options.TOKEN_KINDS),
        seed=seed,
        cold=cold,
        like=options.optional_choice(like, "--like", options.LIKES),
    )
    wishes = Wishes(form=form, output=output, quiet=quiet, save=not no_save, force=force)
    raise typer.Exit(profile_models(models or [], asked, wishes))
