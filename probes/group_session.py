"""One load group, measured through workers: loads, passes, what stands beside, and its failures."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from probes.disturbance import Sampler
from probes.errors import LlmphaseError
from probes.messages import (
    BesideDone,
    CellMeasured,
    Event,
    Facts,
    Failed,
    Load,
    Loaded,
    LoadProgress,
    PassDone,
    RunBeside,
    RunPass,
    StepBegins,
)
from probes.page_cache import cached_fraction, classify, drop
from probes.plan import PlannedGroup
from probes.records import (
    CellResult,
    CellSample,
    CellStatus,
    Disturbance,
    EngineFacts,
    GroupResult,
    LoadSample,
    Options,
    Resolved,
    Settings,
)
from probes.worker_process import WorkerCrash, WorkerProcess

_TICK_S = 1.0
"""Between two looks at what else the machine does."""
_BESIDE_REPETITIONS = 3
_EXTRA_LOADS_MAX_BYTES = 4 * 1024**3
"""Larger files are loaded once: the loads would take the budget from the phases."""
_REQUEST_MAX_TOKENS = 512
"""The whole request is replayed at the longest length up to this one: enough to check the sum of phases."""
_MAX_RESTARTS = 3
_ENGINE_SIGNALS = ("SIGSEGV", "SIGILL", "SIGBUS", "SIGABRT", "SIGFPE")
_REPACKED_BUFFERS = ("AMX", "CPU_REPACK", "CPU_AARCH64", "CPU_KLEIDIAI", "CPU_RISCV64_SPACEMIT")

E = TypeVar("E")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What is being measured right now, for a display."""

    model_name: str
    phase: str
    """`load`, `prefill`, `decode`, `beside`."""
    prompt_tokens: int | None = None
    position_tokens: int | None = None
    pass_index: int | None = None
    tokens_per_s: float | None = None
    load_share: float | None = None
    pass_estimate_ns: int | None = None
    """What one pass took before; None during the first."""


class Watch(Protocol):
    """What the session around wants to hear."""

    def doing(self, doing: Doing) -> None:
        """Something else is being measured now."""
        ...

    def disturbed(self, disturbance: Disturbance) -> None:
        """One interval of what else the machine did."""
        ...

    def engine(self, facts: EngineFacts) -> None:
        """The engine as installed."""
        ...

    def changed(self) -> None:
        """A cell is measured for the first time, or has failed: worth saving."""
        ...


class Policy(Protocol):
    """Decides when a length has been measured often enough."""

    def loose(self, cells: tuple[CellResult, ...]) -> tuple[int, ...]:
        """The lengths, of measured cells, whose medians are not tight enough yet."""
        ...


@dataclasses.dataclass(slots=True)
class _Cell:
    samples: list[CellSample] = dataclasses.field(default_factory=list)
    status: CellStatus = "skipped"
    reason: str | None = None


class GroupSession:
    """Measures one group step by step, so that several groups can take turns.

    `start`, then `step` until it returns False, then `finish`; `result` may be asked at any moment.
    An engine that fails or crashes costs the cell it was in; none of the methods raises for it.
    """

    def __init__(self, group: PlannedGroup, options: Options, policy: Policy, watch: Watch) -> None:
        self._group = group
        self._options = options
        self._policy = policy
        self._watch = watch
        self._settings: Settings = group.settings
        self._cells = {length: _Cell() for length in options.prompt_tokens}
        self._loads: list[LoadSample] = []
        self._result = GroupResult(
            model=group.model,
            settings=group.settings,
            resolved=None,
            status="skipped",
            reason="not reached",
            loads=(),
            cells=(),
            passes=(),
            tokenize=(),
            sampling=(),
            requests=(),
            engine_warnings=(),
            peak_memory_bytes=None,
            device_memory=(),
        )
        self._worker: WorkerProcess | None = None
        self._sampler: Sampler | None = None
        self._doing = Doing(model_name=group.model.name, phase="load")
        self._pass_index = 0
        self._restarts = 0
        self._last_tick_s = 0.0
        self._deadline_ns = 0

    # The steps

    def start(self, deadline_ns: int) -> None:
        """Load the model, cold when asked."""
        self._deadline_ns = deadline_ns
        self._guarded("load", self._load_measuring_worker)

    def step(self, deadline_ns: int) -> bool:
        """One pass over the lengths that still need it; False when there is nothing left to do."""
        self._deadline_ns = deadline_ns
        lengths = self._lengths_to_run() if self._worker is not None else ()
        if not lengths:
            return False
        self._guarded("walk", lambda: self._run_pass(lengths))
        return self._worker is not None

    def finish(self, deadline_ns: int) -> None:
        """What stands beside the phases, then further loads in fresh processes, as time allows."""
        self._deadline_ns = deadline_ns
        if self._worker is not None and self._time_left_ns() > 0:
            self._guarded("beside", self._run_beside)
        self.end()
        if self._result.status == "ok":
            self._guarded("load", self._load_again)

    def end(self) -> None:
        """End the worker, whatever it is doing."""
        if self._worker is not None:
            worker, self._worker, self._sampler = self._worker, None, None
            worker.end()

    def abort(self) -> None:
        """End the worker at once."""
        if self._worker is not None:
            self._worker.kill()
        self.end()

    def result(self) -> GroupResult:
        """All that is known so far."""
        return dataclasses.replace(
            self._result,
            loads=tuple(self._loads),
            cells=tuple(
                CellResult(
                    prompt_tokens=length,
                    output_tokens=self._options.output_tokens,
                    status="ok" if cell.samples else cell.status,
                    reason=cell.reason if not cell.samples else None,
                    samples=tuple(cell.samples),
                )
                for length, cell in self._cells.items()
            ),
        )

    # Loading

    def _load_measuring_worker(self) -> None:
        if self._options.cold and not self._loads:
            drop(self._group.model.files)
        self._worker = WorkerProcess()
        loaded = self._load_in(self._worker, warm_up=True)
        self._result = dataclasses.replace(
            self._result,
            settings=self._settings,
            resolved=loaded.resolved,
            status="ok",
            reason=None,
            engine_warnings=self._result.engine_warnings + loaded.engine_warnings,
        )
        what = (
            "loading alone took the time"
            if self._time_left_ns() <= 0
            else "the time was used up before this length"
        )
        self._mark_unmeasured("skipped", f"budget: {what}; give a larger --budget or fewer lengths")
        self._watch.changed()

    def _load_in(self, worker: WorkerProcess, *, warm_up: bool) -> Loaded:
        fraction = cached_fraction(self._group.model.files)
        self._sampler = Sampler(worker.pid)
        self._tell(Doing(model_name=self._group.model.name, phase="load"))
        worker.send(
            Load(
                path=self._group.model.path,
                settings=self._settings,
                tokens=self._options.tokens,
                seed=self._options.seed,
                max_tokens=max(self._options.prompt_tokens) + self._options.output_tokens,
                warm_up=warm_up,
            )
        )
        loaded = self._wait_for(worker, Loaded)
        self._loads.append(
            LoadSample(
                cache_state=classify(fraction),
                cached_fraction=fraction,
                open_ns=loaded.open_ns,
                tensors_ns=loaded.tensors_ns,
                context_ns=loaded.context_ns,
                first_touch_ns=loaded.first_touch_ns,
                disk_read_bytes=loaded.disk_read_bytes,
                started_ns=loaded.started_ns,
            )
        )
        return loaded

    def _load_again(self) -> None:
        """Two more loads, the model in the page cache by now; with `--cold`, one more cold one first."""
        if self._group.model.file_bytes > _EXTRA_LOADS_MAX_BYTES:
            return
        for cold in (True, False, False) if self._options.cold else (False, False):
            if 2 * max(load.total_ns for load in self._loads) > self._time_left_ns():
                return
            if cold:
                drop(self._group.model.files)
            with WorkerProcess() as worker:
                self._load_in(worker, warm_up=False)
            self._sampler = None

    # Passes

    def _lengths_to_run(self) -> tuple[int, ...]:
        """All lengths up to the longest one that still needs a pass and fits into the time left: the walk
        comes past the shorter ones anyway."""
        if not self._result.passes:
            return tuple(length for length, cell in self._cells.items() if cell.status != "failed")
        measured = tuple(cell for cell in self.result().cells if cell.samples)
        left_ns = self._time_left_ns() - self._reserve_ns()
        fitting = [
            length for length in self._policy.loose(measured) if _pass_cost_ns(measured, length) <= left_ns
        ]
        return tuple(
            cell.prompt_tokens for cell in measured if cell.prompt_tokens <= max(fitting, default=-1)
        )

    def _reserve_ns(self) -> int:
        """Time that the whole request and the further loads will likely take, a quarter of the budget at the
        most: kept from the passes after the first."""
        request = self._request_cell()
        loads = 0 if self._group.model.file_bytes > _EXTRA_LOADS_MAX_BYTES else 4
        expected_ns = loads * max((load.total_ns for load in self._loads), default=0)
        if request is not None:
            expected_ns += request.samples[-1].prefill_ns + sum(request.samples[-1].decode_ns)
        return min(expected_ns, self._options.budget_ns // 4)

    def _run_pass(self, lengths: tuple[int, ...]) -> None:
        worker = self._loaded_worker()
        worker.send(
            RunPass(
                pass_index=self._pass_index,
                lengths=lengths,
                output_tokens=self._options.output_tokens,
                time_left_ns=max(0, self._time_left_ns()),
            )
        )
        self._tell(dataclasses.replace(self._doing, phase="prefill", pass_index=self._pass_index))
        done = self._wait_for(worker, PassDone)
        self._pass_index += 1
        self._result = dataclasses.replace(
            self._result,
            passes=(*self._result.passes, done.sample),
            peak_memory_bytes=done.peak_memory_bytes,
            device_memory=done.device_memory,
        )
        self._doing = dataclasses.replace(self._doing, pass_estimate_ns=done.sample.wall_ns)
        self._watch.changed()

    def _take_cell(self, event: CellMeasured) -> None:
        cell = self._cells.get(event.prompt_tokens)
        if cell is None:
            return
        first = not cell.samples
        cell.samples.append(event.sample)
        if first:
            self._watch.changed()

    # Beside

    def _run_beside(self) -> None:
        worker = self._loaded_worker()
        request = self._request_cell()
        worker.send(
            RunBeside(
                lengths=tuple(length for length, cell in self._cells.items() if cell.samples),
                repetitions=_BESIDE_REPETITIONS,
                request_prompt_tokens=None if request is None else request.prompt_tokens,
                request_output_tokens=self._options.output_tokens,
            )
        )
        self._tell(dataclasses.replace(self._doing, phase="beside"))
        done = self._wait_for(worker, BesideDone)
        self._result = dataclasses.replace(
            self._result, tokenize=done.tokenize, sampling=done.sampling, requests=done.requests
        )

    def _request_cell(self) -> CellResult | None:
        """The measured cell whose request is run as a whole; None when it would not fit into the time left."""
        short = [
            cell
            for cell in self.result().cells
            if cell.samples and 0 < cell.prompt_tokens <= _REQUEST_MAX_TOKENS
        ]
        if not short:
            return None
        longest = short[-1]
        cost_ns = longest.samples[-1].prefill_ns + sum(longest.samples[-1].decode_ns)
        return longest if cost_ns <= self._time_left_ns() else None

    # Events and failures

    def _time_left_ns(self) -> int:
        return self._deadline_ns - time.perf_counter_ns()

    def _loaded_worker(self) -> WorkerProcess:
        assert self._worker is not None
        return self._worker

    def _wait_for(self, worker: WorkerProcess, kind: type[E]) -> E:
        """Handle events until the awaited one. Raises LlmphaseError for Failed, crashes, bad lines."""
        while True:
            event = worker.receive(_TICK_S)
            self._tick()
            if event is None:
                continue
            if isinstance(event, kind):
                return event
            self._handle(event)

    def _handle(self, event: Event) -> None:
        if isinstance(event, Failed):
            raise LlmphaseError(event.message, reason=event.reason)
        if isinstance(event, CellMeasured):
            self._take_cell(event)
        elif isinstance(event, Facts):
            self._watch.engine(event.engine)
        elif isinstance(event, LoadProgress):
            self._tell(dataclasses.replace(self._doing, load_share=event.share))
        elif isinstance(event, StepBegins):
            self._tell(
                dataclasses.replace(
                    self._doing,
                    phase=event.phase,
                    prompt_tokens=event.prompt_tokens,
                    position_tokens=event.position_tokens,
                    tokens_per_s=event.tokens_per_s,
                )
            )

    def _tick(self) -> None:
        now_s = time.monotonic()
        if self._sampler is not None and now_s - self._last_tick_s >= _TICK_S:
            self._last_tick_s = now_s
            self._watch.disturbed(self._sampler.sample(self._doing.phase))
            self._watch.doing(self._doing)

    def _tell(self, doing: Doing) -> None:
        self._doing = doing
        self._watch.doing(doing)

    def _guarded(self, stage: str, work: Callable[[], None]) -> None:
        """Run one stage; a failure becomes a reason on what it cost."""
        try:
            work()
        except WorkerCrash as crash:
            self._after_crash(stage, crash)
        except LlmphaseError as error:
            self._after_failure(stage, f"{error.reason}: {error}")

    def _after_failure(self, stage: str, reason: str) -> None:
        self.end()
        if stage == "load" and self._result.status != "ok":
            self._result = dataclasses.replace(self._result, status="failed", reason=reason)
            self._mark_unmeasured("failed", reason)
        elif stage == "walk":
            self._fail_current_cell(reason)
        else:
            self._result = dataclasses.replace(
                self._result, engine_warnings=(*self._result.engine_warnings, f"{stage}: {reason}")
            )
        self._watch.changed()

    def _after_crash(self, stage: str, crash: WorkerCrash) -> None:
        if self._can_do_without_repacking(crash):
            self.end()
            self._measure_without_repacking(crash)
            return
        self._after_failure(stage, f"crash: {crash}")
        alive = any(not cell.samples and cell.status != "failed" for cell in self._cells.values())
        if stage == "walk" and alive and self._restarts < _MAX_RESTARTS:
            self._restarts += 1
            self._pass_index = 0
            self._result = dataclasses.replace(self._result, passes=())
            self._guarded("load", self._load_measuring_worker)

    def _can_do_without_repacking(self, crash: WorkerCrash) -> bool:
        resolved: Resolved | None = self._result.resolved
        nothing_yet = not any(cell.samples for length, cell in self._cells.items() if length)
        repacked = resolved is not None and any(
            place.buffer in _REPACKED_BUFFERS for place in resolved.placements
        )
        return self._settings.repack and nothing_yet and repacked and crash.signal_name in _ENGINE_SIGNALS

    def _measure_without_repacking(self, crash: WorkerCrash) -> None:
        """The engine lays weights out for instructions that this machine may announce and not have: begin
        again in the plain layout, and say so."""
        assert self._result.resolved is not None
        used = [p.buffer for p in self._result.resolved.placements if p.buffer in _REPACKED_BUFFERS]
        self._settings = dataclasses.replace(self._settings, repack=False)
        self._loads.clear()
        self._pass_index = 0
        self._cells = {length: _Cell() for length in self._options.prompt_tokens}
        self._result = dataclasses.replace(
            self._result,
            status="skipped",
            passes=(),
            engine_warnings=(
                f"the engine crashed ({crash.signal_name}) in its repacked weight layout ({', '.join(used)}): "
                "measured with --no-repack instead. Give --no-repack to your runtime too",
            ),
        )
        self._guarded("load", self._load_measuring_worker)

    def _fail_current_cell(self, reason: str) -> None:
        """The cell that the failing pass was in: the first without a sample of this pass."""
        for length, cell in self._cells.items():
            done = cell.samples and cell.samples[-1].pass_index >= self._pass_index
            if not done and cell.status != "failed":
                if not cell.samples:
                    cell.status, cell.reason = (
                        "failed",
                        f"{reason} (while measuring {length:,} prompt tokens)",
                    )
                    return
                self._result = dataclasses.replace(
                    self._result,
                    engine_warnings=(*self._result.engine_warnings, f"pass {self._pass_index}: {reason}"),
                )
                return

    def _mark_unmeasured(self, status: CellStatus, reason: str) -> None:
        for cell in self._cells.values():
            if not cell.samples and cell.status != "failed":
                cell.status, cell.reason = status, reason


def _pass_cost_ns(measured: tuple[CellResult, ...], longest: int) -> int:
    """What a pass up to `longest` took last time: its whole chunks, and every tail and decode on the way."""
    last = {cell.prompt_tokens: cell.samples[-1] for cell in measured if cell.prompt_tokens <= longest}
    return last[longest].head_ns + sum(sample.tail_ns + sum(sample.decode_ns) for sample in last.values())
