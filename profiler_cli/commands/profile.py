"""`llmphase profile`: measure models and print the report."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from profiler_cli import options
from profiler_cli.comparison_options import ComparisonOptions, with_comparison_options
from profiler_cli.engine_options import EngineOptions, with_engine_axes
from profiler_cli.options import Output, ProfileFormat, Quiet

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
_Quant = Annotated[
    str | None,
    _option(
        "--quant",
        panel=_CELLS,
        metavar="LIST",
        help="Make and compare quantizations of each MODEL, such as Q8_0,Q4_K_M.",
    ),
]
_Requantize = Annotated[
    bool,
    _flag(
        "--requantize", panel=_CELLS, help="With --quant: from a quantized MODEL, too. Speed alone is true."
    ),
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
_Resume = Annotated[
    str | None,
    _option(
        "--resume",
        panel=_TIME,
        metavar="RUN",
        help="Measure only what this saved run lacks, with its own models and settings: an id, last, last~1.",
    ),
]
_Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="FILE",
        help="Compare with this run, export or llama-bench file right after.",
        show_default=False,
        rich_help_panel="Comparison",
    ),
]
_NoSave = Annotated[bool, typer.Option("--no-save", help="Do not save the run.")]


@with_engine_axes
@with_comparison_options
def profile(
    models: _Models = None,
    prompt_tokens: _PromptTokens = None,
    output_tokens: _OutputTokens = None,
    tokens: _Tokens = None,
    seed: _Seed = None,
    cold: _Cold = False,
    like: _Like = None,
    quant: _Quant = None,
    requantize: _Requantize = False,
    repetitions: _Repetitions = None,
    precision: _Precision = None,
    budget: _Budget = None,
    resume: _Resume = None,
    baseline: _Baseline = None,
    form: ProfileFormat = None,
    output: Output = None,
    no_save: _NoSave = False,
    quiet: Quiet = False,
    *,
    engine: EngineOptions,
    comparison: ComparisonOptions,
) -> None:
    """Time load, prefill and decode of each MODEL apart, across prompt lengths."""
    from dataclasses import replace

    from profiler_cli.comparing import Baseline
    from profiler_cli.measuring import profile_models
    from profiler_cli.quantizing import Quantizing
    from profiler_cli.resuming import require_alone, resume_run
    from profiler_cli.wishes import Wishes

    asked = replace(
        engine.read(budget),
        prompt_tokens=options.optional(options.parse_lengths, prompt_tokens),
        output_tokens=output_tokens,
        repetitions=repetitions,
        precision=options.optional(options.parse_share, precision),
        tokens=options.optional_choice(tokens, "--tokens", options.TOKEN_KINDS),
        seed=seed,
        cold=cold,
        like=options.optional_choice(like, "--like", options.LIKES),
    )
    wishes = Wishes(form=form, output=output, quiet=quiet, save=not no_save, force=engine.force)
    quantizing = Quantizing.read(quant, requantize)
    if resume is not None:
        require_alone(asked, others=bool(models or quantizing.types))
        compared = Baseline.read(baseline, comparison if baseline else replace(comparison, anyway=False))
        raise typer.Exit(resume_run(resume, asked, wishes, anyway=comparison.anyway, baseline=compared))
    compared = Baseline.read(baseline, comparison)
    raise typer.Exit(profile_models(models or [], asked, quantizing, wishes, compared))
