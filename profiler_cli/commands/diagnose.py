"""`llmphase diagnose`: which phase a workload waits for, why, and what each change would save."""

from __future__ import annotations

from typing import Annotated, Any

import typer

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

_WORKLOAD, _GATE = "The workload", "Gates: exit code 1 when not met"


def _option(*names: str, help: str, metavar: str, panel: str = _WORKLOAD) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, rich_help_panel=panel)


_Model = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL", help="As for `llmphase profile`: a file, demo, ollama:NAME ...", show_default=False
    ),
]
_Prompt = Annotated[
    str | None, _option("--prompt", metavar="FILE", help="The prompt: a file, or - for standard input.")
]
_PromptTokens = Annotated[
    int | None,
    _option("--prompt-tokens", "-p", metavar="N", help="A prompt of N tokens of text, instead of your own."),
]
_System = Annotated[str | None, _option("--system", metavar="FILE", help="A system prompt before it.")]
_Chat = Annotated[
    bool, typer.Option("--chat", help="Apply the model's chat template.", rich_help_panel=_WORKLOAD)
]
_OutputTokens = Annotated[
    int | None, _option("--output-tokens", "-n", metavar="N", help="Length of the answer. Default: 256.")
]
_CachedPrefix = Annotated[
    str | None,
    _option(
        "--cached-prefix",
        metavar="N|FILE",
        help="Tokens, or a text, that the runtime has in its cache already.",
    ),
]
_Turns = Annotated[
    int, _option("--turns", metavar="N", help="Turns of a chat whose history grows. Default: 1.")
]
_Cold = Annotated[
    bool, typer.Option("--cold", help="The wait begins with a load from disk.", rich_help_panel=_WORKLOAD)
]
_Warm = Annotated[
    bool,
    typer.Option(
        "--warm", help="The wait begins with a load from the page cache.", rich_help_panel=_WORKLOAD
    ),
]
_Run = Annotated[
    str | None, _option("--run", metavar="RUN", help="Diagnose from a saved run; the model is not touched.")
]
_Budget = Annotated[str | None, _option("--budget", metavar="TIME", help="Time for everything. Default: 1m.")]
_Verify = Annotated[
    int | None,
    _option(
        "--verify", metavar="N", help="Try the N best changes (alone: 2) and show predicted beside measured."
    ),
]
_NoCeilings = Annotated[
    bool, typer.Option("--no-ceilings", help="Do not measure what the machine could do at most.")
]
_Explain = Annotated[
    bool, typer.Option("--explain", help="Print every rule, what it saw and why it fired or not.")
]
_FailOn = Annotated[
    str | None,
    _option("--fail-on", metavar="VERDICTS", help="For example prompt-bound,contended.", panel=_GATE),
]
_MaxTtft = Annotated[
    str | None, _option("--max-ttft", metavar="TIME", help="Time to first token.", panel=_GATE)
]
_MaxWait = Annotated[str | None, _option("--max-wait", metavar="TIME", help="The whole wait.", panel=_GATE)]
_MinDecode = Annotated[
    float | None, _option("--min-decode", metavar="RATE", help="Decode, tok/s.", panel=_GATE)
]
_NoSave = Annotated[bool, typer.Option("--no-save", help="Do not save the run.")]


def diagnose(
    model: _Model = None,
    prompt: _Prompt = None,
    prompt_tokens: _PromptTokens = None,
    system: _System = None,
    chat: _Chat = False,
    output_tokens: _OutputTokens = None,
    cached_prefix: _CachedPrefix = None,
    turns: _Turns = 1,
    cold: _Cold = False,
    warm: _Warm = False,
    run: _Run = None,
    budget: _Budget = None,
    verify: _Verify = None,
    no_ceilings: _NoCeilings = False,
    explain: _Explain = False,
    fail_on: _FailOn = None,
    max_ttft: _MaxTtft = None,
    max_wait: _MaxWait = None,
    min_decode: _MinDecode = None,
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
    """Say which phase this workload waits for, why, and what each change would save."""
    from profiler_cli.diagnosing import Extras, diagnose_model, diagnose_run
    from profiler_cli.questions import Gates, Question
    from profiler_cli.wishes import Wishes

    asked = read_engine_options(
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
    question = Question.read(
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        system=system,
        chat=chat,
        output_tokens=output_tokens,
        cached_prefix=cached_prefix,
        turns=turns,
        cold=cold,
        warm=warm,
    )
    gates = Gates.read(fail_on=fail_on, max_ttft=max_ttft, max_wait=max_wait, min_decode=min_decode)
    wishes = Wishes(form=form, output=output, quiet=quiet, save=not no_save, force=force)
    extras = Extras(verify=verify or 0, ceilings=not no_ceilings, explain=explain)
    if run is not None:
        raise typer.Exit(diagnose_run(run, question, gates, wishes, extras))
    raise typer.Exit(diagnose_model(model, question, asked, gates, wishes, extras))
