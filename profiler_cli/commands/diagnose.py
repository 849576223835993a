"""`llmphase diagnose`: which phase a workload waits for, why, and what each change would save."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from profiler_cli.engine_options import EngineOptions, with_engine_options
from profiler_cli.options import Format, Output, Quiet

_WORKLOAD, _GATE = "The workload", "Gates: exit code 1 when not met"
_GIVEN = "Instead of measuring: what you have already"


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
_Log = Annotated[
    str | None,
    _option(
        "--log",
        metavar="FILE",
        help="Diagnose what another program printed; - reads it from here.",
        panel=_GIVEN,
    ),
]
_Facts = Annotated[
    str | None,
    _option("--facts", metavar="FILE", help="Diagnose facts given as one JSON object.", panel=_GIVEN),
]
_Gpu = Annotated[
    str | None,
    _option("--gpu", metavar="NAME", help="The GPU that was used, such as 'RTX 3090'.", panel=_GIVEN),
]
_ModelFile = Annotated[
    str | None,
    _option(
        "--model", "-m", metavar="MODEL", help="The model that was run: its header is read.", panel=_GIVEN
    ),
]
_MemoryBandwidth = Annotated[
    str | None,
    _option(
        "--memory-bandwidth",
        metavar="RATE",
        help="Of system memory, such as 50GB/s, where known.",
        panel=_GIVEN,
    ),
]
_NoSave = Annotated[bool, typer.Option("--no-save", help="Do not save the run.")]


@with_engine_options
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
    log: _Log = None,
    facts: _Facts = None,
    gpu: _Gpu = None,
    model_file: _ModelFile = None,
    memory_bandwidth: _MemoryBandwidth = None,
    budget: _Budget = None,
    verify: _Verify = None,
    no_ceilings: _NoCeilings = False,
    explain: _Explain = False,
    fail_on: _FailOn = None,
    max_ttft: _MaxTtft = None,
    max_wait: _MaxWait = None,
    min_decode: _MinDecode = None,
    form: Format = None,
    output: Output = None,
    no_save: _NoSave = False,
    quiet: Quiet = False,
    *,
    engine: EngineOptions,
) -> None:
    """Say which phase this workload waits for, why, and what each change would save."""
    from profiler_cli.diagnosing import Extras, diagnose_model, diagnose_run
    from profiler_cli.log_diagnosing import LogOptions, diagnose_given
    from profiler_cli.questions import Gates, Question
    from profiler_cli.wishes import Wishes

    gates = Gates.read(fail_on=fail_on, max_ttft=max_ttft, max_wait=max_wait, min_decode=min_decode)
    wishes = Wishes(form=form, output=output, quiet=quiet, save=not no_save, force=engine.force)
    model = LogOptions.one_model(model, model_file)
    given = LogOptions(log=log, facts=facts, gpu=gpu, model=model, memory_bandwidth=memory_bandwidth)
    given.check(
        run=run, prompt=prompt, prompt_tokens=prompt_tokens, output_tokens=output_tokens, verify=verify
    )
    if given.is_given:
        raise typer.Exit(diagnose_given(given, gates, wishes, explain=explain))
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
    extras = Extras(verify=verify or 0, ceilings=not no_ceilings, explain=explain)
    if run is not None:
        raise typer.Exit(diagnose_run(run, question, gates, wishes, extras))
    raise typer.Exit(diagnose_model(model, question, engine.read(budget), gates, wishes, extras))
