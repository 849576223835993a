"""What the commands that measure share: models and memory before, the session itself, what is said after."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from probes.atomic_file import remove_leftovers
from probes.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_UNMEASURED, LlmphaseError, UnmeasurableError
from probes.gguf_header import read_model_facts, require_decoder
from probes.inquiries import read_engine_facts, reserve
from probes.memory_plan import MemoryPlan, plan_memory, refusal, require_fits
from probes.model_sources import resolve_models
from probes.plan import Plan, PlannedGroup
from probes.records import (
    CellResult,
    DeviceCeiling,
    DeviceFacts,
    Disturbance,
    LinkFacts,
    MachineFacts,
    ModelFacts,
    Run,
)
from probes.run_files import RunStore
from probes.run_lock import claim
from probes.session import Session
from probes.tensor_overrides import moved_weights
from profiler_cli import __version__
from profiler_cli.console import note
from profiler_cli.output import Destination, deliver, report_renderer
from profiler_cli.progress import Progress
from profiler_cli.streams import width_of
from reports import disturbed, measured, stats
from reports.text import clean

if TYPE_CHECKING:
    from profiler_cli.comparing import Baseline

_MAX_PASSES = 9
"""The fewest with which a distribution-free 95 % interval of the median leaves out the extremes: where that
is still wide, the noise is the finding."""
_TOGETHER_SHARE = 0.5
"""Several models are kept loaded, to be measured in turns, while all need no more of the free memory."""


class PrecisionPolicy:
    """Until `repetitions` passes where they are given, else until each median's interval is tight enough and
    rests on enough undisturbed passes."""

    def __init__(self, precision: float, repetitions: int | None) -> None:
        self._precision = precision
        self._repetitions = repetitions

    def loose(self, cells: tuple[CellResult, ...]) -> tuple[int, ...]:
        """See Policy."""
        return tuple(cell.prompt_tokens for cell in cells if self._is_loose(cell))

    def disturbing(self, intervals: Sequence[Disturbance]) -> tuple[str, ...]:
        """See Policy."""
        return disturbed.disturbing(intervals)

    def _is_loose(self, cell: CellResult) -> bool:
        if self._repetitions is not None:
            return len(cell.samples) < self._repetitions
        if len(cell.samples) >= _MAX_PASSES:
            return False
        if len(disturbed.quiet_samples(cell)) < stats.MIN_COUNTED:
            return True
        phases = [pairs for pairs in (measured.prefill_samples(cell), measured.decode_samples(cell)) if pairs]
        return not all(stats.is_precise(pairs, self._precision) for pairs in phases)


def read_models(names: Sequence[str], store: RunStore, *, quiet: bool) -> list[ModelFacts]:
    last = None if names else store.last_profiled_model()
    models = []
    for source in resolve_models(names, environment=os.environ, last_profiled=last):
        facts = read_model_facts(source.path)
        require_decoder(facts)
        if not names:
            note(f"No MODEL given: taking {clean(facts.name)} ({source.why}).", quiet=quiet)
        models.append(facts)
    return models


def check_memory(
    plan: Plan, machine: MachineFacts, *, force: bool, one_process: bool = False
) -> tuple[Plan, bool]:
    """The plan with what will not fit marked as refused, and whether all groups can be loaded at once and
    leave room to spare. `one_process` allows those that use remote devices to share one.

    A plan of which nothing fits is refused as a whole: raises UnmeasurableError. Devices are asked for only
    when that can change something: it takes a process of its own.
    """
    servers = plan.groups[0].settings.rpc_servers
    on_host = [plan_memory(group.model, group.settings, machine) for group in plan.groups]
    alone = len(plan.groups) == 1 and not servers and not machine.gpu_names
    if alone and on_host[0].fits is not False:
        return plan, False
    devices = read_engine_facts(servers).devices
    needs = [_need_of(group, machine, devices) for group in plan.groups]
    groups = tuple(
        group if force else dataclasses.replace(group, refusal=refusal(memory))
        for group, memory in zip(plan.groups, needs, strict=True)
    )
    if all(group.refusal for group in groups):
        require_fits(needs[0])
    # A server serves one process at a time; one process for several loads is lost to all of them if it dies.
    may_wait = one_process or not servers
    return dataclasses.replace(plan, groups=groups), may_wait and _leave_room(needs, machine)


def _need_of(group: PlannedGroup, machine: MachineFacts, devices: Sequence[DeviceFacts]) -> MemoryPlan:
    """The plan for one load; what does not fit by the estimate is planned again with what the engine would
    really reserve."""
    moved = moved_weights(group.model, group.settings)
    memory = plan_memory(group.model, group.settings, machine, devices, moved=moved)
    if memory.fits is not False or not devices:
        return memory
    settings = dataclasses.replace(group.settings, n_gpu_layers=memory.gpu_layers)
    try:
        reserved = reserve(group.model.path, settings)
    except LlmphaseError:
        return memory  # the load itself will say what is wrong, where it is tried
    return plan_memory(group.model, settings, machine, devices, reserved, moved)


def _leave_room(needs: Sequence[MemoryPlan], machine: MachineFacts) -> bool:
    """Whether all loads at once need no more than a share of what is free, on the host and on each device."""
    rooms = [(machine.memory_available_bytes, sum(memory.host_need_bytes for memory in needs))]
    for at_one_device in zip(*(memory.devices for memory in needs), strict=False):
        rooms.append((at_one_device[0].free_bytes, sum(device.need_bytes for device in at_one_device)))
    return all(free is not None and needed <= _TOGETHER_SHARE * free for free, needed in rooms)


class Saver:
    """Saves the run as it grows; where that fails, measuring goes on and it is said at the end.

    A run that is being saved is this program's alone: no other one may resume it meanwhile.
    """

    def __init__(self, store: RunStore | None) -> None:
        self._store = store
        if store is not None:
            remove_leftovers(store.folder)
        self._path: Path | None = None
        self._problem: str | None = None

    @property
    def is_saved(self) -> bool:
        """Whether the newest state of the run is on disk."""
        return self._path is not None and self._problem is None

    def claim(self, run_id: str) -> None:
        """Keep a run that is there already to this program. Raises UnmeasurableError (`in-use`)."""
        if self._store is None:
            return
        try:
            is_free = claim(self._store.folder, run_id)
        except OSError as problem:
            note(
                f"Warning: {run_id} can not be locked ({problem.strerror or problem}): let no other program"
                " resume it meanwhile, the later one would win"
            )
            return
        if not is_free:
            raise UnmeasurableError(
                f"{run_id} is being measured by another llmphase: wait until that one ends, or interrupt it",
                reason="in-use",
            )

    def __call__(self, run: Run) -> None:
        if self._store is None:
            return
        # A folder that can not be written to, saving complains of; one without locks, who resumes there.
        with contextlib.suppress(OSError):
            claim(self._store.folder, run.run_id)
        try:
            self._path = self._store.save(run)
            self._problem = None
        except UnmeasurableError as error:
            if self._problem is None:
                note(f"Warning: {error}")  # once, as soon as it is known: there is time to make room
            self._problem = str(error)

    def where(self, run: Run) -> str:
        """Where the run is, as a clause."""
        saved = f"saved as {run.run_id}; `llmphase report {run.run_id}` prints it"
        return saved if self.is_saved else "not saved"

    def say(self, run: Run, *, quiet: bool) -> None:
        """Tell where the run is. Before its report is printed: that may fail."""
        if self._path:
            note(f"Run {self.where(run)}.", quiet=quiet)


def interrupted(run: Run, saver: Saver, destination: Destination) -> int:
    """Say what an interrupted run has, and return the exit code. What is not saved is printed."""
    cells = [cell for group in run.groups for cell in group.cells]
    done = sum(cell.status == "ok" for cell in cells)
    note(f"Interrupted: {done} of {len(cells)} cells are measured, {saver.where(run)}.")
    if done and not saver.is_saved:
        deliver(report_renderer(run), destination, quiet=True)
    return EXIT_INTERRUPTED


def exit_code(run: Run) -> int:
    """0 when at least one cell was measured: the others stand in the report with their reasons."""
    cells = [cell for group in run.groups for cell in group.cells]
    if any(cell.status == "ok" for cell in cells):
        return EXIT_DONE
    reasons = {group.reason or cell.reason for group in run.groups for cell in group.cells}
    note(f"llmphase: nothing could be measured: {clean('; '.join(sorted(filter(None, reasons))))}")
    return EXIT_UNMEASURED


def conclude(
    run: Run, saver: Saver, destination: Destination, baseline: Baseline | None, *, quiet: bool
) -> int:
    """Deliver a profile, whole or interrupted, and compare it where asked; the exit code."""
    if not run.finished:
        return interrupted(run, saver, destination)
    saver.say(run, quiet=quiet)
    deliver(report_renderer(run), destination, show_too=not quiet, quiet=quiet)
    code = exit_code(run)
    return code if code or baseline is None else baseline.compare_with(run, destination, quiet=quiet)


def run_session(
    plan: Plan,
    machine: MachineFacts,
    saver: Callable[[Run], None],
    *,
    quiet: bool,
    together: bool = False,
    ceilings: tuple[DeviceCeiling, ...] = (),
    links: tuple[LinkFacts, ...] = (),
    kept_ns: int = 0,
    earlier: Run | None = None,
) -> Run:
    """Measure a plan, with progress on standard error; `kept_ns` of its budget is left for what comes
    after. An `earlier` run of the same plan is continued."""
    options = plan.options
    progress = Progress(
        sys.stderr,
        budget_s=options.budget_ns / 1e9,
        passes=options.repetitions or stats.MIN_COUNTED,
        width=width_of(sys.stderr),
        quiet=quiet,
    )
    policy = PrecisionPolicy(options.precision, options.repetitions)
    session = Session(
        plan,
        machine,
        policy,
        saver,
        progress.show,
        __version__,
        together=together,
        ceilings=ceilings,
        links=links,
        kept_ns=kept_ns,
        earlier=earlier,
    )
    try:
        return session.measure()
    finally:
        progress.close()
