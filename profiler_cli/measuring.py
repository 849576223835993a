"""From model names to a delivered report: what `llmphase profile` does, step by step."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from probes.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_UNMEASURED, UnmeasurableError
from probes.gguf_header import read_model_facts, require_decoder
from probes.group_session import Doing
from probes.machine import default_threads, read_machine_facts
from probes.memory_plan import plan_memory, require_fits
from probes.model_sources import resolve_models
from probes.plan import Asked, Plan, build_plan
from probes.records import CellResult, MachineFacts, ModelFacts, Run
from probes.run_files import RunStore
from probes.session import Session, read_engine_facts
from profiler_cli import __version__
from profiler_cli.console import note, width_of
from profiler_cli.output import Destination, deliver
from profiler_cli.progress import Progress
from reports import measured, stats
from reports.text import clean
from reports.units import duration

_MAX_PASSES = 9
"""The fewest with which a distribution-free 95 % interval of the median leaves out the extremes: where that
is still wide, the noise is the finding."""
_TOGETHER_SHARE = 0.5
"""Several models are kept loaded, to be measured in turns, while all need no more of the free memory."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is to become of the run."""

    form: str | None
    output: str | None
    quiet: bool
    save: bool
    force: bool


class PrecisionPolicy:
    """Until `repetitions` passes where they are given, else until each median's interval is tight enough."""

    def __init__(self, precision: float, repetitions: int | None) -> None:
        self._precision = precision
        self._repetitions = repetitions

    def loose(self, cells: tuple[CellResult, ...]) -> tuple[int, ...]:
        """See Policy."""
        return tuple(cell.prompt_tokens for cell in cells if self._is_loose(cell))

    def _is_loose(self, cell: CellResult) -> bool:
        if self._repetitions is not None:
            return len(cell.samples) < self._repetitions
        phases = [pairs for pairs in (measured.prefill_samples(cell), measured.decode_samples(cell)) if pairs]
        tight = all(stats.is_precise(pairs, self._precision) for pairs in phases)
        return not tight and len(cell.samples) < _MAX_PASSES


def profile_models(names: Sequence[str], asked: Asked, wishes: Wishes) -> int:
    """Measure and deliver; returns the exit code. Raises LlmphaseError for what can not be begun."""
    destination = Destination.choose(wishes.form, wishes.output)
    store = RunStore()
    models = _read_models(names, store, quiet=wishes.quiet)
    machine = read_machine_facts()
    plan = build_plan(models, asked, default_threads(machine))
    together = _check_memory(plan, machine, force=wishes.force)
    _announce(plan, quiet=wishes.quiet)
    saver = _Saver(store if wishes.save else None, quiet=wishes.quiet)
    run = _measure(plan, machine, saver, together=together, quiet=wishes.quiet)
    return _conclude(run, saver, destination, quiet=wishes.quiet)


def _read_models(names: Sequence[str], store: RunStore, *, quiet: bool) -> list[ModelFacts]:
    last = None if names else store.last_profiled_model()
    models = []
    for source in resolve_models(names, environment=os.environ, last_profiled=last):
        facts = read_model_facts(source.path)
        require_decoder(facts)
        if not names:
            note(f"No MODEL given: taking {clean(facts.name)} ({source.why}).", quiet=quiet)
        models.append(facts)
    return models


def _check_memory(plan: Plan, machine: MachineFacts, *, force: bool) -> bool:
    """Refuse what will not fit; whether all groups together leave room to spare.

    Devices are asked for only when the host alone has no room: that takes a process of its own.
    """
    plans = [plan_memory(group.model, group.settings, machine) for group in plan.groups]
    if any(memory.fits is False for memory in plans):
        devices = read_engine_facts().devices
        for group in plan.groups:
            require_fits(plan_memory(group.model, group.settings, machine, devices), force=force)
        return False
    available = plans[0].host_available_bytes
    needed = sum(memory.host_need_bytes for memory in plans)
    return available is not None and needed <= _TOGETHER_SHARE * available


def _announce(plan: Plan, *, quiet: bool) -> None:
    lengths = ", ".join(f"{length:,}" for length in plan.options.prompt_tokens)
    settings = plan.groups[0].settings
    passes = plan.options.repetitions
    until = f"{passes} passes" if passes else f"until ±{plan.options.precision:.1%}".replace(".0%", "%")
    names = ", ".join(clean(group.model.name) for group in plan.groups)
    note(
        f"Measuring {names}: prompts of {lengths} tokens, {plan.options.output_tokens} output tokens, "
        f"{settings.threads} threads, {until}; at most {duration(plan.options.budget_ns / 1e9)}.",
        quiet=quiet,
    )
    for warning in plan.warnings:
        note(f"Warning: {clean(warning)}", quiet=quiet)


class _Saver:
    """Saves the run as it grows; where that fails, says so once and measuring goes on."""

    def __init__(self, store: RunStore | None, *, quiet: bool) -> None:
        self._store = store
        self._quiet = quiet
        self.path: Path | None = None
        self.problem: str | None = None

    def __call__(self, run: Run) -> None:
        if self._store is None:
            return
        try:
            self.path = self._store.save(run)
        except UnmeasurableError as error:
            self.problem = str(error)


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """A cancelled CI job sends SIGTERM: what was measured is saved then too."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _measure(plan: Plan, machine: MachineFacts, saver: _Saver, *, together: bool, quiet: bool) -> Run:
    options = plan.options
    progress = Progress(
        sys.stderr,
        budget_s=options.budget_ns / 1e9,
        passes=options.repetitions or stats.MIN_COUNTED,
        width=width_of(sys.stderr),
        quiet=quiet,
    )

    def show(doing: Doing) -> None:
        progress.show(doing)

    policy = PrecisionPolicy(options.precision, options.repetitions)
    with _terminate_as_interrupt():
        session = Session(plan, machine, policy, saver, show, __version__, together=together)
        try:
            return session.measure()
        finally:
            progress.close()


def _conclude(run: Run, saver: _Saver, destination: Destination, *, quiet: bool) -> int:
    if saver.problem:
        note(f"Warning: {saver.problem}")
    saved = f"saved as {run.run_id}; `llmphase report {run.run_id}` prints it"
    if not run.finished:
        cells = [cell for group in run.groups for cell in group.cells]
        done = sum(cell.status == "ok" for cell in cells)
        where = saved if saver.path else "not saved"
        note(f"Interrupted: {done} of {len(cells)} cells are measured, {where}.")
        return EXIT_INTERRUPTED
    deliver(run, destination, show_too=not quiet, quiet=quiet)
    if saver.path:
        note(f"Run {saved}.", quiet=quiet)
    return _exit_code(run)


def _exit_code(run: Run) -> int:
    """0 when at least one cell was measured: the others stand in the report with their reasons."""
    cells = [cell for group in run.groups for cell in group.cells]
    if any(cell.status == "ok" for cell in cells):
        return EXIT_DONE
    reasons = {group.reason or cell.reason for group in run.groups for cell in group.cells}
    note(f"llmphase: nothing could be measured: {clean('; '.join(sorted(filter(None, reasons))))}")
    return EXIT_UNMEASURED
