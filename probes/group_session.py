"""One load group, measured through workers: loads, passes, what stands beside, and its failures."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from probes.conversation import Conversation, Talker
from probes.disturbed_passes import DisturbedPasses
from probes.errors import LlmphaseError
from probes.group_commands import beside_command, load_command, load_sample
from probes.group_record import GroupRecord
from probes.loopback_servers import serving_processes
from probes.messages import (
    BesideDone,
    CellMeasured,
    Event,
    Facts,
    GoOn,
    Loaded,
    LoadProgress,
    PartsTimed,
    PassDone,
    RunParts,
    RunPass,
    StepBegins,
)
from probes.page_cache import cached_fraction, drop
from probes.part_timing import WANTED_NS
from probes.patience import Patience
from probes.plan import PlannedGroup
from probes.records import CellResult, Disturbance, EngineFacts, GroupResult, ModelFacts, Options
from probes.requests import Request, parts_ns, pass_ns, short_request, workload_request
from probes.worker_process import WorkerCrash, WorkerProcess

_BESIDE_REPETITIONS = 3
_EXTRA_LOADS = 2
_EXTRA_LOADS_MAX_BYTES = 4 * 1024**3
"""Larger files are loaded once: the loads would take the budget from the phases."""
_START_COST = 2
"""A process that loads costs about as much again as the load itself, on small models."""
_MOST_FAILURES = 3
"""In a row, without a cell or a pass in between: what remains is left out then."""
_CHEAP_SHARE = 0.2
"""Of the budget: a request that takes no longer is run again."""
_ENGINE_SIGNALS = ("SIGSEGV", "SIGILL", "SIGBUS", "SIGABRT", "SIGFPE")
_REPACKED_BUFFERS = ("AMX", "CPU_REPACK", "CPU_AARCH64", "CPU_KLEIDIAI", "CPU_RISCV64_SPACEMIT")


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
        """Something else is being measured now, or a second has passed."""
        ...

    def disturbed(self, disturbance: Disturbance) -> None:
        """One interval of what else the machine did."""
        ...

    def engine(self, facts: EngineFacts) -> None:
        """The engine as installed."""
        ...

    def changed(self) -> None:
        """A cell is measured for the first time, a pass is over, or something failed: worth saving."""
        ...


class Policy(Protocol):
    """Decides when a length has been measured often enough, and what counts as a disturbance."""

    def loose(self, cells: tuple[CellResult, ...]) -> tuple[int, ...]:
        """The lengths, of measured cells, whose medians are not tight enough yet."""
        ...

    def disturbing(self, intervals: Sequence[Disturbance]) -> tuple[str, ...]:
        """Codes of what disturbed a pass that ran during these intervals; empty: nothing."""
        ...


class GroupSession:
    """Measures one group step by step, so that several groups can take turns.

    `start`, then `step` until it returns False, then `finish`; `result` may be asked at any moment.
    An engine that fails, hangs or crashes costs the cell it was in; none of the methods raises for it.
    `earlier` is what an unfinished run has measured of the group: only the rest is measured.
    """

    def __init__(
        self,
        group: PlannedGroup,
        options: Options,
        policy: Policy,
        watch: Watch,
        earlier: GroupResult | None = None,
        begin_worker: Callable[[], Talker] = WorkerProcess,
    ) -> None:
        self._group = group
        self._begin_worker = begin_worker
        self._model = group.model
        self._workload = group.workload
        small = group.model.file_bytes <= _EXTRA_LOADS_MAX_BYTES
        self._extra_loads = _EXTRA_LOADS if small and group.further_loads else 0
        self._times_parts = group.times_parts and group.workload is not None
        self._options = options
        self._policy = policy
        self._watch = watch
        self._record = GroupRecord(group, options, earlier)
        self._disturbed = DisturbedPasses(policy.disturbing)
        self._talk: Conversation | None = None
        self._doing = Doing(model_name=_shown_name(group.model), phase="load")
        self._passes_here = 0
        """Passes of the present worker."""
        self._failures = 0
        """In a row."""
        self._call_ns = 0
        """What the longest engine call should take at the most."""
        self._beside_done = self._record.has_beside
        self._is_paused = False
        """A request has had its turn and is under way."""
        self._is_finishing = False
        self._nothing_fits = False
        """The last pass found that nothing fits into the time left."""
        self._deadline_ns = 0

    # The steps

    def start(self, deadline_ns: int) -> None:
        """Load the model, cold when asked; one that can not fit is not tried."""
        self._deadline_ns = deadline_ns
        if self._group.refusal is not None:
            self._record.fail(f"memory: {self._group.refusal}")
            self._watch.changed()
            return
        if self._time_left_ns() > 0:
            self._guarded("load", self._load_to_measure)

    def step(self, deadline_ns: int) -> bool:
        """One pass over the lengths that still need it; False when there is nothing left to do."""
        self._deadline_ns = deadline_ns
        if self._workload is not None and self._record.passes and not self._beside_done:
            self._guarded("beside", self._run_beside)
        if self._is_paused:
            self._guarded("beside", self._go_on_with_request)
            return self._talk is not None
        lengths = self._lengths_to_run() if self._talk is not None and not self._nothing_fits else ()
        if not lengths:
            return self._repeat_request()
        self._guarded("pass", lambda: self._run_pass(lengths))
        return self._talk is not None

    def finish(self, deadline_ns: int) -> None:
        """What stands beside the phases, then further loads in fresh processes, as time allows."""
        self._deadline_ns, self._is_finishing = deadline_ns, True
        if self._talk is not None and self._time_left_ns() > 0 and not self._beside_done:
            self._guarded("beside", self._run_beside)
        if self._talk is not None and self._record.is_split and self._times_parts:
            self._guarded("parts", self._time_parts)
        self.end()
        if self._record.is_loaded:
            self._guarded("further loads", self._load_again)

    def end(self) -> None:
        """End the worker."""
        if self._talk is not None:
            talk, self._talk = self._talk, None
            if self._disturbed.is_waiting:
                talk.look()
            talk.end()

    def abort(self) -> None:
        """End the worker at once, whatever it is doing."""
        if self._talk is not None:
            self._talk.kill()
        self.end()
        self._record.leave_out("interrupted before this length was measured")

    @property
    def is_complete(self) -> bool:
        """Whether an earlier run has left nothing to measure."""
        measured = self._record.measured()
        return not self._record.unmeasured_lengths and self._beside_done and not self._policy.loose(measured)

    def result(self) -> GroupResult:
        """All that is known so far."""
        return self._record.result()

    # Loading

    def _load_to_measure(self) -> None:
        if self._options.cold and not self._record.result().loads:
            self._drop_file()
        self._passes_here, self._is_paused = 0, False
        self._talk = self._begin_talk()
        loaded = self._load_in(self._talk, warm_up=True)
        self._record.take_measuring_load(loaded)
        # A batch takes no longer by the token than single steps do, and the steps of a cell are one silence.
        tokens = max(loaded.resolved.chunk_tokens, self._options.output_tokens)
        self._call_ns = tokens * (loaded.step_ns or 0)
        if self._time_left_ns() <= 0:
            self._record.leave_out("budget: loading alone took the time; give a larger --budget")
        self._watch.changed()

    def _drop_file(self) -> None:
        if not drop(self._model.files):
            self._record.warn(
                "--cold: this system has no way to let go of a file's pages, so loads begin with what is"
                " cached; restart it for a cold one"
            )

    def _begin_talk(self) -> Conversation:
        patience = Patience(self._options.cell_timeout_ns, self._model.file_bytes)
        serving = serving_processes(self._record.settings.rpc_servers)
        return Conversation(
            patience,
            self._hear,
            self._notice,
            lambda: self._doing.phase,
            self._begin_worker(),
            serving,
        )

    def _load_in(self, talk: Conversation, *, warm_up: bool) -> Loaded:
        fraction = cached_fraction(self._model.files)
        self._tell(Doing(model_name=_shown_name(self._model), phase="load"))
        talk.patience.begin_load()
        command = load_command(self._group, self._record.settings, self._options, warm_up=warm_up)
        loaded = talk.ask(command, Loaded)
        self._record.take_load(load_sample(loaded, fraction))
        return loaded

    def _load_again(self) -> None:
        """More loads with the model in the page cache by now; with `--cold`, one more cold one first."""
        if not self._extra_loads:
            return
        wanted = [True] * self._options.cold + [False] * self._extra_loads
        for cold in wanted[: max(0, len(wanted) + 1 - self._record.loads_done)]:
            if _START_COST * self._record.longest_load_ns > self._time_left_ns():
                return
            if cold:
                self._drop_file()
            with self._begin_talk() as talk:
                self._load_in(talk, warm_up=False)

    # Passes

    def _lengths_to_run(self) -> tuple[int, ...]:
        """What is not measured yet, in the first pass of a worker; then all lengths up to the longest one
        that still needs a pass and fits into the time left: the walk comes past the shorter ones anyway."""
        if self._passes_here == 0 and self._record.unmeasured_lengths:
            return self._record.unmeasured_lengths
        measured = self._record.measured()
        left_ns = self._time_left_ns() - self._reserve_ns()
        fitting = [length for length in self._policy.loose(measured) if pass_ns(measured, length) <= left_ns]
        longest = max(fitting, default=-1)
        return tuple(cell.prompt_tokens for cell in measured if cell.prompt_tokens <= longest)

    def _reserve_ns(self) -> int:
        """Time that the whole request and the further loads will likely take, a quarter of the budget at the
        most: kept from the passes after the first."""
        request = None if self._beside_done else self._request_to_run()
        expected_ns = _START_COST * self._extra_loads * self._record.longest_load_ns
        if request is not None:
            expected_ns += request.expected_ns
        least_ns = self._parts_ns()
        expected_ns += max(least_ns, WANTED_NS) if least_ns else 0
        return min(expected_ns, self._options.budget_ns // 4)

    def _run_pass(self, lengths: tuple[int, ...]) -> None:
        talk, pass_index = self._loaded(), self._passes_here
        number = self._record.begin_pass(lengths)
        self._tell(dataclasses.replace(self._doing, phase="prefill", pass_index=pass_index))
        talk.patience.begin_pass(self._call_ns)
        began_ns = time.perf_counter_ns()
        try:
            done = talk.ask(
                RunPass(
                    pass_index=pass_index,
                    lengths=lengths,
                    output_tokens=self._options.output_tokens,
                    time_left_ns=max(0, self._time_left_ns()),
                ),
                PassDone,
            )
        finally:
            self._disturbed.ended(number, began_ns, time.perf_counter_ns())
        talk.look()
        self._passes_here += 1
        self._failures = 0
        self._record.take_pass(done)
        self._nothing_fits = len(done.not_reached) == len(lengths)
        self._doing = dataclasses.replace(self._doing, pass_estimate_ns=done.sample.wall_ns)
        self._watch.changed()

    # Beside

    def _run_beside(self) -> None:
        self._beside_done = True
        request = None if self._record.result().requests else self._request_to_run()
        self._take_beside(self._ask_beside(self._record.lengths_to_tokenize, _BESIDE_REPETITIONS, request))
        self._watch.changed()

    def _go_on_with_request(self) -> None:
        self._take_beside(self._loaded().ask(GoOn(), BesideDone))

    def _take_beside(self, done: BesideDone) -> None:
        self._is_paused = done.is_paused
        self._record.take_beside(done)

    def _repeat_request(self) -> bool:
        """The workload's request again, for an interval of its wait; False when that is done or too dear."""
        requests = self._record.result().requests
        if self._talk is None or self._workload is None or not 0 < len(requests) < self._group.requests:
            return False
        last = requests[-1]
        if last.output_tokens < self._workload.output_tokens or not self._is_cheap(last.wall_ns):
            return False
        request = self._request_to_run()
        self._guarded("beside", lambda: self._take_beside(self._ask_beside((), 0, request)))
        return self._talk is not None

    def _is_cheap(self, took_ns: int) -> bool:
        left_ns = self._time_left_ns() - self._reserve_ns()
        return took_ns <= min(left_ns, _CHEAP_SHARE * self._options.budget_ns)

    def _ask_beside(self, lengths: tuple[int, ...], repetitions: int, request: Request | None) -> BesideDone:
        talk = self._loaded()
        self._tell(dataclasses.replace(self._doing, phase="beside"))
        talk.patience.begin_request(0 if request is None else request.expected_ns)
        turn_ns = None if self._is_finishing else self._group.turn_ns
        return talk.ask(beside_command(lengths, repetitions, request, turn_ns), BesideDone)

    def _request_to_run(self) -> Request | None:
        """The request to run as a whole, cut to what fits into the time left; None when nothing does."""
        measured, left_ns = self._record.measured(), self._time_left_ns()
        if self._workload is not None:
            return workload_request(self._workload, measured, left_ns)
        return short_request(measured, self._options.output_tokens, left_ns)

    def _time_parts(self) -> None:
        """Where host and devices share a request's model: what each takes. The worker is of no use
        afterwards."""
        assert self._workload is not None
        talk, left_ns, expected_ns = self._loaded(), self._time_left_ns(), self._parts_ns()
        if expected_ns > left_ns:
            return
        self._tell(dataclasses.replace(self._doing, phase="beside"))
        talk.patience.begin_request(expected_ns)
        command = RunParts(prompt_tokens=self._workload.prompt_tokens, time_left_ns=left_ns)
        self._record.take_parts(talk.ask(command, PartsTimed).parts)

    def _parts_ns(self) -> int:
        if self._workload is None or not self._record.is_split or not self._times_parts:
            return 0
        return parts_ns(self._workload, self._record.measured(), self._record.settings.n_ubatch)

    # Events

    def _time_left_ns(self) -> int:
        return self._deadline_ns - time.perf_counter_ns()

    def _loaded(self) -> Conversation:
        assert self._talk is not None
        return self._talk

    def _hear(self, event: Event) -> None:
        """Raises ProtocolError for a sample that nobody asked for."""
        if isinstance(event, CellMeasured):
            if self._record.take_cell(event.prompt_tokens, event.sample):
                self._failures = 0
                self._watch.changed()
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

    def _notice(self, disturbance: Disturbance) -> None:
        self._watch.disturbed(disturbance)
        for number, codes in self._disturbed.take(disturbance):
            self._record.label(number, codes)
        self._watch.doing(self._doing)

    def _tell(self, doing: Doing) -> None:
        self._doing = doing
        self._watch.doing(doing)

    # Failures

    def _guarded(self, stage: str, work: Callable[[], None]) -> None:
        """Run one stage; a failure becomes a reason on what it cost."""
        try:
            work()
        except LlmphaseError as error:
            if isinstance(error, WorkerCrash) and self._is_repacking_crash(error):
                self._measure_without_repacking(error)
            else:
                self._after_failure(stage, error)

    def _after_failure(self, stage: str, error: LlmphaseError) -> None:
        """Put the reason where it belongs; then a fresh worker goes on with what is left."""
        self.end()
        reason = f"{error.reason}: {error}"
        self._failures += 1
        is_first_load = stage == "load" and not self._record.is_loaded
        tries_again = is_first_load and self._failures == 1 and isinstance(error, WorkerCrash)
        if is_first_load and not tries_again:
            self._record.fail(reason)
        elif stage == "pass":
            self._record.fail_current_cell(reason)
        else:
            self._record.warn(f"{stage}: {reason}")
        self._watch.changed()
        if tries_again or (self._record.is_loaded and self._has_more()):
            self._go_on(reason)

    def _go_on(self, reason: str) -> None:
        """A fresh worker; after too many failures in a row only for more passes over what is measured."""
        if self._failures >= _MOST_FAILURES:
            if not self._record.unmeasured_lengths:
                return
            self._record.give_up(
                f"{reason} (the last of {self._failures} failures in a row: this length was not tried)"
            )
            self._failures = 0
            if not self._has_more():
                return
        self._guarded("load", self._load_to_measure)

    def _has_more(self) -> bool:
        if self._is_finishing:
            return False
        left = self._record.unmeasured_lengths or self._policy.loose(self._record.measured())
        return bool(left) and not self._nothing_fits and self._time_left_ns() > 0

    def _is_repacking_crash(self, crash: WorkerCrash) -> bool:
        """Whether the plain layout of weights may be the way out: no prompt has been evaluated yet."""
        resolved = self._record.resolved
        prompts = [cell for cell in self._record.measured() if cell.prompt_tokens > 0]
        repacked = resolved is not None and any(
            place.buffer in _REPACKED_BUFFERS for place in resolved.placements
        )
        return (
            repacked and not prompts and self._record.settings.repack and crash.signal_name in _ENGINE_SIGNALS
        )

    def _measure_without_repacking(self, crash: WorkerCrash) -> None:
        """The engine lays weights out for instructions that a machine may announce and not have: begin
        again in the plain layout, and say so."""
        self.end()
        assert self._record.resolved is not None
        used = [p.buffer for p in self._record.resolved.placements if p.buffer in _REPACKED_BUFFERS]
        self._record.settings = dataclasses.replace(self._record.settings, repack=False)
        self._record.warn(
            f"the engine crashed ({crash.signal_name}) in its repacked weight layout ({', '.join(used)}), so"
            " this was measured with --no-repack; give --no-repack to your runtime too"
        )
        self._record.forget()
        self._disturbed.forget()
        self._guarded("load", self._load_to_measure)


def _shown_name(model: ModelFacts) -> str:
    return f"{model.name} ({model.quantization})"
