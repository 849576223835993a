"""`--resume RUN`: goes on with an unfinished run, as that run's own settings say."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from probes.errors import UsageError
from probes.gguf_header import read_model_facts
from probes.inquiries import read_engine_facts
from probes.machine import read_machine_facts
from probes.plan import Asked, Plan, PlannedGroup
from probes.records import EngineFacts, MachineFacts, ModelFacts, Run, Workload
from probes.run_files import RunStore
from profiler_cli.console import note
from profiler_cli.options import PROFILE_FORMATS
from profiler_cli.output import Destination
from profiler_cli.running import Saver, check_memory, conclude, run_session
from profiler_cli.wishes import Wishes
from reports.text import clean
from reports.units import duration

if TYPE_CHECKING:
    from profiler_cli.comparing import Baseline

_MACHINE_FACTS = ("os", "cpu_name", "logical_cpus", "physical_cpus", "usable_cpus", "gpu_names")
_ENGINE_FACTS = ("version", "commit", "system_info")
_SAME_MEMORY = 0.02
"""A kernel keeps a little more or less for itself at each start."""
_KEPT = ("budget_ns", "cell_timeout_ns")
"""What may be given anew."""


def resume_run(
    name: str, asked: Asked, wishes: Wishes, *, anyway: bool, baseline: Baseline | None = None
) -> int:
    """Measure what a saved run lacks, and deliver the whole of it; the exit code. Raises LlmphaseError."""
    quiet = wishes.quiet
    destination = Destination.choose(wishes.form, wishes.output, PROFILE_FORMATS)
    store = RunStore()
    saver = Saver(store if wishes.save else None)
    run = _claimed(store, name, saver)
    plan = _plan_of(run, asked)
    machine = read_machine_facts()
    changes = tuple(_changes(run, machine))
    if changes and not anyway:
        raise UsageError(
            f"{run.run_id} was measured differently: {'; '.join(changes)}. Figures of both would not belong"
            " together: profile anew, or go on with --anyway",
            reason="changed",
        )
    if changes:
        plan = dataclasses.replace(
            plan, warnings=(*plan.warnings, f"resumed although it changed: {'; '.join(changes)}")
        )
    plan, together = check_memory(plan, machine, force=wishes.force)
    _announce(run, plan, quiet=quiet)
    run = run_session(plan, machine, saver, together=together, earlier=run, quiet=quiet)
    return conclude(run, saver, destination, baseline, quiet=quiet)


def require_alone(asked: Asked, others: bool) -> None:
    """Everything but a few options comes from the run: raises UsageError where more is given."""
    kept = {name: getattr(asked, name) for name in _KEPT}
    if others or asked != dataclasses.replace(Asked(), **kept):
        raise UsageError(
            "--resume takes models and settings from the run: leave out MODEL and every option that says what"
            " or how to measure, but --budget, --cell-timeout and --force",
            reason="resume",
        )


def _claimed(store: RunStore, name: str, saver: Saver) -> Run:
    """The run, this program's alone from now on."""
    path = store.find(name)
    saver.claim(store.load(path).run_id)
    return store.load(path)  # another program may have saved it just before


def _plan_of(run: Run, asked: Asked) -> Plan:
    """The plan that the run was measured by."""
    if run.workload is not None:
        raise UsageError(
            f"{run.run_id} is a diagnosis, and those are not resumed: run `{_diagnosing(run, run.workload)}`"
            f" again, with what other options it had; `llmphase report {run.run_id}` prints what it has",
            reason="resume",
        )
    if not run.groups:
        raise UsageError(f"{run.run_id} holds no model: profile it anew", reason="resume")
    given = {name: getattr(asked, name) for name in _KEPT if getattr(asked, name) is not None}
    return Plan(
        groups=tuple(PlannedGroup(model=group.model, settings=group.settings) for group in run.groups),
        options=dataclasses.replace(run.options, **given),
        warnings=run.warnings,
    )


def _diagnosing(run: Run, workload: Workload) -> str:
    """The command that asks for the same request. Of a prompt of one's own a run keeps the name alone."""
    model = shlex.quote(clean(run.groups[0].model.path)) if run.groups else "MODEL"
    prompt = f"-p {workload.prompt_tokens}"
    if workload.source != "tokens":
        source = "-" if workload.source == "standard input" else clean(workload.source)
        prompt = f"--prompt {shlex.quote(source)}"
    start = "" if workload.start == "loaded" else f" --{workload.start}"
    return f"llmphase diagnose {model} {prompt} -n {workload.output_tokens}{start}"


def _changes(run: Run, machine: MachineFacts) -> Iterator[str]:
    """In words, what is not as it was when the run was measured."""
    for name in _MACHINE_FACTS:
        yield from _difference(name.replace("_", " "), getattr(run.machine, name), getattr(machine, name))
    then, now = run.machine.memory_bytes, machine.memory_bytes
    if then and now and abs(now - then) > _SAME_MEMORY * then:
        yield from _difference("memory bytes", then, now)
    if run.engine is not None:
        yield from _engine_changes(run.engine, read_engine_facts(run.groups[0].settings.rpc_servers))
    for model in dict.fromkeys(group.model.path for group in run.groups):
        yield from _file_changes(next(g.model for g in run.groups if g.model.path == model))


def _engine_changes(then: EngineFacts, now: EngineFacts) -> Iterator[str]:
    for name in _ENGINE_FACTS:
        yield from _difference(f"engine {name}".replace("_", " "), getattr(then, name), getattr(now, name))
    yield from _difference("devices", _devices(then), _devices(now))


def _devices(engine: EngineFacts) -> str:
    return ", ".join(f"{device.name} ({device.description})" for device in engine.devices)


def _file_changes(then: ModelFacts) -> Iterator[str]:
    """Raises LlmphaseError for a file that has gone."""
    now = read_model_facts(Path(then.path))
    name = clean(Path(then.path).name, limit=60)
    yield from _difference(f"bytes of {name}", then.file_bytes, now.file_bytes)
    if then.file_bytes == now.file_bytes and then.modified_at != now.modified_at:
        yield f"{name} was written to since"


def _difference(what: str, then: object, now: object) -> Iterator[str]:
    if then != now:
        yield f"{what} {clean(str(then), limit=80)} is now {clean(str(now), limit=80)}"


def _announce(run: Run, plan: Plan, *, quiet: bool) -> None:
    cells = [cell for group in run.groups for cell in group.cells]
    done = sum(bool(cell.samples) for cell in cells)
    note(
        f"Resuming {run.run_id}: {done} of {len(cells)} cells are measured; at most"
        f" {duration(plan.options.budget_ns / 1e9)} more.",
        quiet=quiet,
    )
