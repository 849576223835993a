"""From a workload to a delivered diagnosis: what `llmphase diagnose` does, step by step."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from probes.errors import EXIT_GATE, LlmphaseError, UnmeasurableError, UsageError
from probes.inquiries import ceilings_budget_s, measure_ceilings_of, measure_links, weight_matrices
from probes.machine import default_threads, read_machine_facts
from probes.memory_plan import plan_memory
from probes.plan import Asked, Plan, build_workload_plan
from probes.records import MachineFacts, ModelFacts, Run, Workload
from probes.run_files import RunStore
from profiler_cli.console import note
from profiler_cli.output import Destination, Render, deliver
from profiler_cli.questions import Gates, Question
from profiler_cli.running import Saver, check_memory, exit_code, interrupted, read_models, run_session
from profiler_cli.streams import is_live, write_error
from profiler_cli.verifying import verify_remedies
from profiler_cli.wishes import Wishes
from reports.text import clean
from reports.units import count, duration

if TYPE_CHECKING:
    from reports.diagnosis_report import DiagnosisReport, Verified
    from reports.remedies import Remedy


_START_S = 1.0
"""Of a process that measures ceilings."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What a diagnosis may do beside the workload."""

    verify: int
    """Remedies to try."""
    ceilings: bool
    explain: bool


def diagnose_run(name: str, question: Question, gates: Gates, wishes: Wishes, extras: Extras) -> int:
    """Diagnose from a saved run; the model is not touched. Raises LlmphaseError."""
    destination = Destination.choose(wishes.form, wishes.output)
    run = RunStore().load(name)
    if extras.verify:
        raise UsageError("--verify needs the model: leave out --run", reason="verify")
    if not any(cell.samples for group in run.groups for cell in group.cells):
        raise UnmeasurableError(f"run {run.run_id} has no measured cell to diagnose from", reason="no-cell")
    diagnosed = dataclasses.replace(run, workload=question.counted_workload())
    return conclude(_report(diagnosed, question, extras), gates, destination, quiet=wishes.quiet)


def diagnose_model(
    model: str | None, question: Question, asked: Asked, gates: Gates, wishes: Wishes, extras: Extras
) -> int:
    """Measure the workload and diagnose it; returns the exit code. Raises LlmphaseError."""
    from reports.diagnosis_report import diagnosis_of_run

    quiet = wishes.quiet
    destination = Destination.choose(wishes.form, wishes.output)
    store = RunStore()
    facts = _one_model(model, store, quiet=quiet)
    machine = read_machine_facts()
    workload, prompt = question.workload(facts)
    threads = default_threads(machine)
    plan = build_workload_plan(facts, asked, workload, prompt, threads)
    _check_context(facts, asked, workload, plan, machine)
    plan, _ = check_memory(plan, machine, force=wishes.force)
    _announce(plan, workload, question, quiet=quiet)
    saver = Saver(store if wishes.save else None)
    links = measure_links(plan.groups[0].settings.rpc_servers)
    run = run_session(
        plan,
        machine,
        _FirstVerdict(saver, quiet=quiet),
        links=links,
        kept_ns=_ceilings_ns(plan) if extras.ceilings else 0,
        quiet=quiet,
    )
    if not run.finished:
        return interrupted(run, saver, destination)
    code = exit_code(run)
    if code:
        return code
    run = _with_ceilings(run, wanted=extras.ceilings, quiet=quiet)
    saver(run)
    saver.say(run, quiet=quiet)
    verified: tuple[Verified, ...] = ()
    if extras.verify:
        verified = verify_remedies(
            run, plan, _in_order(diagnosis_of_run(run)), extras.verify, machine, quiet=quiet
        )
    report = diagnosis_of_run(run, verified=verified, explain=extras.explain, defaulted=question.defaulted)
    return conclude(report, gates, destination, quiet=quiet)


def _in_order(report: DiagnosisReport) -> list[Remedy]:
    """What to try first: the largest saving, but layers before all where they are the cause."""
    from reports.advice import PLACING

    placing = [one for one in report.remedies if report.verdict == "offload-bound" and one.code in PLACING]
    return placing + [one for one in report.remedies if one not in placing]


def _ceilings_ns(plan: Plan) -> int:
    """Of the budget, what measuring ceilings may take."""
    measuring_s = ceilings_budget_s(plan.groups[0].settings.rpc_servers)
    return min(round((measuring_s + _START_S) * 1e9), plan.options.budget_ns // 4)


def _one_model(model: str | None, store: RunStore, *, quiet: bool) -> ModelFacts:
    models = read_models([] if model is None else [model], store, quiet=quiet)
    if len(models) != 1:
        raise UsageError(f"{model} names {len(models)} models: diagnose takes one", reason="several-models")
    return models[0]


def _check_context(
    model: ModelFacts, asked: Asked, workload: Workload, plan: Plan, machine: MachineFacts
) -> None:
    """A prompt that the model was not trained for is refused with what to cut, unless --ctx asks for it."""
    needed = workload.prompt_tokens + workload.output_tokens
    if asked.n_ctx is not None or model.n_ctx_train is None or needed <= model.n_ctx_train:
        return
    largest = plan_memory(model, plan.groups[0].settings, machine).max_n_ctx
    memory = "" if largest is None else f"; the largest context that fits into memory is {count(largest)}"
    raise UsageError(
        f"the prompt ({count(workload.prompt_tokens)} tokens) and its output"
        f" ({count(workload.output_tokens)}) do not fit into the model's context of"
        f" {count(model.n_ctx_train)}: cut {count(needed - model.n_ctx_train)} tokens, or force it with"
        f" --ctx {needed}{memory}",
        reason="context",
    )


def _announce(plan: Plan, workload: Workload, question: Question, *, quiet: bool) -> None:
    start = {
        "loaded": "the model in memory already",
        "warm": "loading it first",
        "cold": "loading it from disk",
    }
    cached = f", {count(workload.cached_tokens)} of them cached" if workload.cached_tokens else ""
    default = " (the default)" if question.is_output_default else ""
    note(
        f"Diagnosing {clean(plan.groups[0].model.name)}: {count(workload.prompt_tokens)} prompt"
        f" tokens{cached}, {count(workload.output_tokens)} output tokens{default}, {start[workload.start]},"
        f" {plan.groups[0].settings.threads} threads; at most {duration(plan.options.budget_ns / 1e9)}.",
        quiet=quiet,
    )
    for warning in plan.warnings:
        note(f"Warning: {clean(warning)}", quiet=quiet)


class _FirstVerdict:
    """Saves the run as it grows, and says a first verdict as soon as one pass over all lengths is done."""

    def __init__(self, save: Callable[[Run], None], *, quiet: bool) -> None:
        self._save = save
        self._is_said = quiet

    def __call__(self, run: Run) -> None:
        self._save(run)
        if self._is_said or not run.groups or not run.groups[0].passes:
            return
        from reports.diagnosis_report import diagnosis_of_run

        self._is_said = True
        if is_live(sys.stderr):
            write_error("\r\x1b[K")
        note(f"First verdict after {duration(run.wall_ns / 1e9)}: {diagnosis_of_run(run).verdict}.")


def _with_ceilings(run: Run, *, wanted: bool, quiet: bool) -> Run:
    """The run with what the devices could do at most; where that fails, without it and with a warning."""
    if not wanted or run.engine is None:
        return run
    from reports.remedies.quantizations import smaller

    group = run.groups[0]
    try:
        matrices = weight_matrices(group.model, smaller(group.model.quantization))
        ceilings = measure_ceilings_of(group, matrices, run.machine, run.engine)
    except LlmphaseError as error:
        problem = f"ceilings were not measured: {error}"
        note(f"Warning: {clean(problem)}", quiet=quiet)
        return dataclasses.replace(run, warnings=(*run.warnings, problem))
    return dataclasses.replace(run, ceilings=ceilings, matrices=matrices)


def _report(run: Run, question: Question, extras: Extras) -> DiagnosisReport:
    from reports.diagnosis_report import diagnosis_of_run

    return diagnosis_of_run(run, explain=extras.explain, defaulted=question.defaulted)


def _renderer(report: DiagnosisReport) -> Render:
    from reports.formats import DIAGNOSIS_FORMATS

    return lambda form, style: DIAGNOSIS_FORMATS[form].render(report, style)


def conclude(report: DiagnosisReport, gates: Gates, destination: Destination, *, quiet: bool) -> int:
    """Deliver, then hold the gates: the exit code."""
    deliver(_renderer(report), destination, show_too=not quiet, quiet=quiet)
    problems = gates.broken(report.verdict, report.ttft_s, report.wait_s, report.decode_tok_s)
    for problem in problems:
        note(f"Gate not met: {problem}.")
    return EXIT_GATE if problems else 0
