"""From model names to a delivered report: what `llmphase profile` does, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from probes.inquiries import measure_links
from probes.machine import default_threads, read_machine_facts
from probes.plan import Asked, Plan, build_plan
from probes.records import ModelFacts
from probes.run_files import RunStore
from profiler_cli.console import note
from profiler_cli.options import PROFILE_FORMATS
from profiler_cli.output import Destination
from profiler_cli.quantizing import Quantizing, quantized
from profiler_cli.running import Saver, check_memory, conclude, read_models, run_session
from profiler_cli.wishes import Wishes
from reports.text import clean
from reports.units import duration

if TYPE_CHECKING:
    from profiler_cli.comparing import Baseline


def profile_models(
    names: Sequence[str],
    asked: Asked,
    quantizing: Quantizing,
    wishes: Wishes,
    baseline: Baseline | None = None,
) -> int:
    """Measure and deliver; returns the exit code. Raises LlmphaseError for what can not be begun."""
    quiet = wishes.quiet
    destination = Destination.choose(wishes.form, wishes.output, PROFILE_FORMATS)
    store = RunStore()
    models = read_models(names, store, quiet=quiet)
    machine = read_machine_facts()
    threads = default_threads(machine)
    plan = build_plan(models, asked, threads)
    if quantizing.types:  # planned before, too: what is wrong is said before minutes of quantizing
        plan = build_plan(quantized(models, quantizing, threads, quiet=quiet), asked, threads)
    plan, together = check_memory(plan, machine, force=wishes.force)
    _announce(plan, quiet=quiet)
    saver = Saver(store if wishes.save else None)
    links = measure_links(plan.groups[0].settings.rpc_servers)
    run = run_session(plan, machine, saver, together=together, links=links, quiet=quiet)
    return conclude(run, saver, destination, baseline, quiet=quiet)


def _name(model: ModelFacts) -> str:
    return f"{clean(model.name)} ({clean(model.quantization, limit=40)})"


def _announce(plan: Plan, *, quiet: bool) -> None:
    lengths = ", ".join(f"{length:,}" for length in plan.options.prompt_tokens)
    settings = plan.groups[0].settings
    passes = plan.options.repetitions
    until = f"{passes} passes" if passes else f"until ±{100 * plan.options.precision:g} %"
    models = list(dict.fromkeys(_name(group.model) for group in plan.groups))
    names = ", ".join(models)
    if len(plan.groups) > len(models):
        names = f"{len(plan.groups)} settings of {names}"
    note(
        f"Measuring {names}: prompts of {lengths} tokens, {plan.options.output_tokens} output tokens, "
        f"{settings.threads} threads, {until}; at most {duration(plan.options.budget_ns / 1e9)}.",
        quiet=quiet,
    )
    for warning in plan.warnings:
        note(f"Warning: {clean(warning)}", quiet=quiet)
