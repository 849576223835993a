"""From model names to a delivered report: what `llmphase profile` does, step by step."""

from __future__ import annotations

from collections.abc import Sequence

from probes.machine import default_threads, read_machine_facts
from probes.plan import Asked, Plan, build_plan
from probes.run_files import RunStore
from profiler_cli.console import note
from profiler_cli.output import Destination, deliver, report_renderer
from profiler_cli.running import Saver, check_memory, exit_code, interrupted, read_models, run_session
from profiler_cli.wishes import Wishes
from reports.text import clean
from reports.units import duration


def profile_models(names: Sequence[str], asked: Asked, wishes: Wishes) -> int:
    """Measure and deliver; returns the exit code. Raises LlmphaseError for what can not be begun."""
    quiet = wishes.quiet
    destination = Destination.choose(wishes.form, wishes.output)
    store = RunStore()
    models = read_models(names, store, quiet=quiet)
    machine = read_machine_facts()
    plan = build_plan(models, asked, default_threads(machine))
    together = check_memory(plan, machine, force=wishes.force)
    _announce(plan, quiet=quiet)
    saver = Saver(store if wishes.save else None)
    run = run_session(plan, machine, saver, together=together, quiet=quiet)
    if not run.finished:
        return interrupted(run, saver, destination)
    saver.say(run, quiet=quiet)
    deliver(report_renderer(run), destination, show_too=not quiet, quiet=quiet)
    return exit_code(run)


def _announce(plan: Plan, *, quiet: bool) -> None:
    lengths = ", ".join(f"{length:,}" for length in plan.options.prompt_tokens)
    settings = plan.groups[0].settings
    passes = plan.options.repetitions
    until = f"{passes} passes" if passes else f"until ±{100 * plan.options.precision:g} %"
    names = ", ".join(clean(group.model.name) for group in plan.groups)
    note(
        f"Measuring {names}: prompts of {lengths} tokens, {plan.options.output_tokens} output tokens, "
        f"{settings.threads} threads, {until}; at most {duration(plan.options.budget_ns / 1e9)}.",
        quiet=quiet,
    )
    for warning in plan.warnings:
        note(f"Warning: {clean(warning)}", quiet=quiet)
