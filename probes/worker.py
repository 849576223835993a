"""The child process: one command after the other, events on its own pipe. It works for one load group, or for
several that take turns, each with an engine of its own.

The engine may write to standard output, crash or hang: none of that reaches the parent's output or
the parent itself. The worker ends when its standard input closes, so it never outlives the parent.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from probes.beside import Beside
from probes.clock import Clock
from probes.engine import Engine, create_engine
from probes.errors import LlmphaseError, UnmeasurableError
from probes.memory_plan import layers_that_fit
from probes.messages import (
    AskFacts,
    BesideDone,
    CeilingsMeasured,
    CellMeasured,
    Command,
    Event,
    Facts,
    Failed,
    GoOn,
    LinkMeasured,
    Load,
    Loaded,
    LoadProgress,
    MeasureCeilings,
    MeasureLink,
    PartsTimed,
    PassDone,
    Prepare,
    Prepared,
    Quantize,
    QuantizeProgress,
    Quit,
    Reserve,
    Reserved,
    RunBeside,
    RunParts,
    RunPass,
    StepBegins,
    TakeSeat,
    command_from_line,
    to_line,
)
from probes.page_cache import process_read_bytes
from probes.part_timing import PartTimer
from probes.prompt_text import prompt_text
from probes.records import (
    CellSample,
    DeviceCeiling,
    DeviceMemory,
    EngineFacts,
    LinkFacts,
    RequestSample,
    Resolved,
    Settings,
)
from probes.tensor_overrides import moved_weights
from probes.walk import PassPlan, Step, Walk, time_steps

_SPACING_NS = 500_000_000
"""Between two events that only serve a display."""
_SETTLED = 0.05
"""Two successive warm-up calls agree when they differ by no more than this share."""
_MAX_WARM_UP = 8
_WARM_UP_NS = 10**9
"""After so long there is no further call: what takes a device such time is computing, not waking up."""
_MOST_TOKEN_BYTES = 64
"""Of plain text, on average: real vocabularies take 1 to 7."""


class Worker:
    """Carries out commands on one engine."""

    def __init__(self, engine: Engine, clock: Clock, emit: Callable[[Event], None]) -> None:
        self._engine = engine
        self._clock = clock
        self._emit = emit
        self._last_shown_ns = -_SPACING_NS
        self._walk = Walk(engine, clock, self._on_step, self._on_cell)
        self._tokens: list[int] = []
        self._prompt: bytes | None = None
        self._settings: Settings | None = None
        self._resolved: Resolved | None = None
        self._request: Iterator[RequestSample | None] = iter(())

    def carry_out(self, command: Command) -> None:
        """Carry out one command and emit its events. Raises LlmphaseError."""
        if isinstance(command, Load):
            self._load(command)
        elif isinstance(command, RunPass):
            self._pass(command)
        elif isinstance(command, RunBeside):
            self._beside(command)
        elif isinstance(command, GoOn):
            self._emit(self._go_on())
        elif isinstance(command, RunParts):
            self._time_parts(command)
        else:
            self._answer(command)

    def close(self) -> None:
        """Free the model."""
        self._engine.close()

    def _answer(self, question: Command) -> None:
        """What can be asked without a model loaded to be measured."""
        if isinstance(question, AskFacts):
            self._engine.connect(question.servers)
            self._emit(Facts(engine=self._engine.facts()))
        elif isinstance(question, Prepare):
            self._prepare(question)
        elif isinstance(question, Reserve):
            self._engine.connect(question.settings.rpc_servers)
            self._emit(Reserved(placements=self._engine.reserve(question.path, question.settings)))
        elif isinstance(question, MeasureCeilings):
            self._engine.connect(question.servers)
            self._emit(CeilingsMeasured(ceilings=_measure_ceilings(question)))
        elif isinstance(question, MeasureLink):
            self._engine.connect((question.server,))
            self._emit(LinkMeasured(link=_measure_link(question.server)))
        elif isinstance(question, Quantize):
            self._quantize(question)

    def _prepare(self, command: Prepare) -> None:
        engine = self._engine
        engine.open_vocabulary(command.path)
        text = command.prompt
        if command.chat:
            system = [] if command.system is None else [("system", command.system)]
            text = engine.chat_text([*system, ("user", command.prompt)])
        elif command.system is not None:
            text = f"{command.system}\n\n{command.prompt}"
        tokens = engine.tokenize(text.encode(), special=True)
        prefix = [] if command.prefix is None else engine.tokenize(command.prefix.encode(), special=True)
        cached = _common_length(tokens, prefix)
        self._emit(Prepared(text=text, tokens=len(tokens), cached_tokens=min(cached, len(tokens) - 1)))

    def _load(self, command: Load) -> None:
        engine, now_ns = self._engine, self._clock.now_ns
        read_before = process_read_bytes()
        started_ns = now_ns()
        engine.connect(command.settings.rpc_servers)
        settings = self._placed(command)
        opened = engine.open_model(command.model.path, settings, self._on_load_progress)
        self._show_life()
        before_context_ns = now_ns()
        engine.open_context(settings)
        context_ns = now_ns() - before_context_ns
        self._show_life()
        self._settings = settings
        self._tokens = self._make_tokens(command)
        engine.set_tokens(self._tokens)
        self._show_life()
        first_touch_ns = self._timed(0, 1)
        self._show_life()
        read_after = process_read_bytes()
        self._resolved = engine.resolved()
        step_ns = self._warm_up(self._resolved) if command.warm_up else None
        self._emit(Facts(engine=engine.facts()))
        self._emit(
            Loaded(
                open_ns=opened.open_ns,
                tensors_ns=opened.tensors_ns,
                context_ns=context_ns,
                first_touch_ns=first_touch_ns,
                started_ns=started_ns,
                disk_read_bytes=_difference(read_before, read_after),
                resolved=self._resolved,
                engine_warnings=engine.log_warnings(),
                peak_memory_bytes=_peak_memory_bytes(),
                step_ns=step_ns,
            )
        )

    def _placed(self, command: Load) -> Settings:
        """The settings with `auto` turned into as many layers as fit: the engine's own default is all of
        them, whether they fit or not."""
        if command.settings.n_gpu_layers is not None:
            return command.settings
        model, settings = command.model, command.settings
        moved = moved_weights(model, settings)
        layers = layers_that_fit(model, settings, self._engine.facts().devices, moved)
        return dataclasses.replace(settings, n_gpu_layers=layers)

    def _make_tokens(self, command: Load) -> list[int]:
        if command.tokens == "random":
            return self._engine.random_tokens(command.max_tokens, command.seed)
        self._prompt = None if command.prompt is None else command.prompt.encode()
        own = [] if self._prompt is None else self._engine.tokenize(self._prompt, special=True)
        return (own + self._text_tokens(command))[: command.max_tokens]

    def _text_tokens(self, command: Load) -> list[int]:
        """Raises UnmeasurableError for a vocabulary that makes next to nothing of any text."""
        n_bytes = 6 * command.max_tokens
        while True:
            text = prompt_text(command.seed, n_bytes)
            tokens = self._engine.tokenize(text)
            if len(tokens) >= command.max_tokens:
                return tokens
            if len(text) > _MOST_TOKEN_BYTES * command.max_tokens:
                raise UnmeasurableError(
                    f"the model's vocabulary makes {len(tokens):,} tokens of {len(text):,} bytes of plain"
                    " text: it is damaged, or not one of text; --tokens random measures without it",
                    reason="tokenize",
                )
            n_bytes *= 2

    def _timed(self, start: int, count: int) -> int:
        """Evaluate on an empty cache; nanoseconds."""
        batch = self._engine.batch(start, count, logits=True)
        return time_steps(self._engine.run, self._clock.now_ns, [batch])[0]

    def _warm_up(self, resolved: Resolved) -> int:
        """Each phase at its own shape until it settles; nanoseconds of a decode step. On the CPU the first
        pass is itself the warm-up of prefill (it is labelled): a whole chunk of a large model can take
        minutes there. On devices a micro-batch is enough: a batch is several of the same shape."""
        step_ns = self._settle(lambda position: self._timed(position, 1), least=2)
        self._walk.expect("decode", step_ns)
        if resolved.backend != "CPU":
            count = min(resolved.n_ubatch, len(self._tokens))
            self._settle(lambda _position: self._prefill_once(count), least=1)
        self._engine.clear()
        return step_ns

    def _prefill_once(self, count: int) -> int:
        self._engine.clear()
        return self._timed(0, count)

    def _settle(self, run_once: Callable[[int], int], *, least: int) -> int:
        self._engine.clear()
        last_ns = spent_ns = 0
        for position in range(min(_MAX_WARM_UP, len(self._tokens))):
            took_ns = run_once(position)
            spent_ns += took_ns
            is_long = position + 1 >= least and spent_ns >= _WARM_UP_NS
            if is_long or abs(took_ns - last_ns) <= _SETTLED * took_ns:
                return took_ns
            last_ns = took_ns
        return last_ns

    def _pass(self, command: RunPass) -> None:
        resolved = self._loaded()
        outcome = self._walk.run_pass(
            PassPlan(
                pass_index=command.pass_index,
                lengths=command.lengths,
                output_tokens=command.output_tokens,
                chunk_tokens=resolved.chunk_tokens,
                deadline_ns=self._clock.now_ns() + command.time_left_ns,
            )
        )
        self._emit(
            PassDone(
                sample=outcome.sample,
                not_reached=outcome.not_reached,
                peak_memory_bytes=_peak_memory_bytes(),
                device_memory=_device_memory(self._engine.facts()),
            )
        )

    def _loaded(self) -> Resolved:
        if self._resolved is None:
            raise UnmeasurableError("no model is loaded", reason="protocol")
        return self._resolved

    def _beside(self, command: RunBeside) -> None:
        self._loaded()
        assert self._settings is not None
        beside = Beside(self._engine, self._clock, self._tokens, self._prompt, self._settings.n_batch)
        tokenize = [
            beside.tokenize(length)
            for length in command.lengths
            for _ in range(command.repetitions)
            if length
        ]
        sampling = beside.sample(command.repetitions)
        self._request = iter(())
        if command.request_prompt_tokens is not None:
            self._request = beside.request(
                command.request_prompt_tokens,
                command.request_cached_tokens,
                command.request_output_tokens,
                command.turn_ns,
            )
        done = self._go_on()
        self._emit(dataclasses.replace(done, tokenize=tuple(tokenize), sampling=tuple(sampling)))

    def _go_on(self) -> BesideDone:
        """A request's next turn."""
        found = list(itertools.islice(self._request, 1))
        requests = tuple(sample for sample in found if sample is not None)
        return BesideDone(tokenize=(), sampling=(), requests=requests, is_paused=found == [None])

    def _time_parts(self, command: RunParts) -> None:
        resolved = self._loaded()
        assert self._settings is not None
        now_ns = self._clock.now_ns
        timer = PartTimer(self._engine, self._settings, now_ns, now_ns() + command.time_left_ns)
        room = min(len(self._tokens), resolved.n_ctx)
        self._emit(PartsTimed(parts=timer.measure(command.prompt_tokens, room)))

    def _quantize(self, command: Quantize) -> None:
        from probes.quantizing import quantize

        self._emit(quantize(command, self._on_quantize_progress))

    def _on_quantize_progress(self, share: float) -> None:
        if self._may_show():
            self._emit(QuantizeProgress(share=share))

    def _on_load_progress(self, share: float) -> None:
        if self._may_show():
            self._emit(LoadProgress(share=share))

    def _show_life(self) -> None:
        """Between the stages of a load, so that each has its own time before it is taken to hang."""
        self._emit(LoadProgress(share=1.0))

    def _on_step(self, step: Step) -> None:
        if self._may_show():
            self._emit(
                StepBegins(
                    phase=step.phase,
                    prompt_tokens=step.prompt_tokens,
                    position_tokens=step.position_tokens,
                    tokens_per_s=step.tokens_per_s,
                )
            )

    def _may_show(self) -> bool:
        now_ns = self._clock.now_ns()
        if now_ns - self._last_shown_ns < _SPACING_NS:
            return False
        self._last_shown_ns = now_ns
        return True

    def _on_cell(self, length: int, sample: CellSample) -> None:
        self._emit(CellMeasured(prompt_tokens=length, sample=sample))


def _measure_ceilings(command: MeasureCeilings) -> tuple[DeviceCeiling, ...]:
    from probes.ceilings import measure_ceilings

    return measure_ceilings(
        command.shapes,
        threads=command.threads,
        batch_tokens=command.batch_tokens,
        weight_buffers=command.weight_buffers,
        memory_bytes=command.memory_bytes,
        formats=command.formats,
        other_shapes=command.other_shapes,
        other_buffers=command.other_buffers,
        other_threads=command.other_threads,
        budget_s=command.budget_s,
    )


def _measure_link(server: str) -> LinkFacts:
    from probes.rpc_link import measure_link

    return measure_link(server)


def _common_length(tokens: Sequence[int], prefix: Sequence[int]) -> int:
    """How many tokens at the beginning are the same."""
    pairs = enumerate(zip(tokens, prefix, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(tokens), len(prefix)))


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _peak_memory_bytes() -> int | None:
    """Peak resident memory of this process; None where the system does not tell (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _device_memory(facts: EngineFacts) -> tuple[DeviceMemory, ...]:
    return tuple(
        DeviceMemory(
            device=device.name,
            used_bytes=device.memory_total_bytes - device.memory_free_bytes,
            total_bytes=device.memory_total_bytes,
        )
        for device in facts.devices
        if device.kind != "cpu" and device.memory_total_bytes and device.memory_free_bytes is not None
    )


def _own_pipe() -> BinaryIO:
    """The parent's pipe, taken away from standard output, which from here on is standard error: whatever
    the engine prints can not mix with messages."""
    pipe = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return pipe


def _read_commands(commands: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        commands.put(line)
    os._exit(0)  # the parent has gone: nobody waits for this measurement any more


def serve(emit: Callable[[Event], None], next_line: Callable[[], bytes]) -> None:
    """Carry out commands until Quit. An error that can be told becomes a Failed event."""
    seats: dict[int, Worker] = {}
    seat = 0
    while True:
        command = command_from_line(next_line())
        if isinstance(command, TakeSeat):
            seat = command.number
            continue
        if isinstance(command, Quit):
            for worker in seats.values():
                worker.close()
            return
        try:
            if seat not in seats:
                seats[seat] = Worker(*create_engine(), emit)
            seats[seat].carry_out(command)
        except LlmphaseError as error:
            emit(Failed(reason=error.reason, message=str(error)))
        except MemoryError:
            emit(Failed(reason="memory", message="out of memory in the measuring process"))
        except Exception as error:  # told like any failure: the parent decides what it costs
            emit(Failed(reason="internal", message=f"{type(error).__name__}: {error}"))


def main(_arguments: Sequence[str] = ()) -> None:
    """Entry of the child process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interruption means
    pipe = _own_pipe()
    commands: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_commands, args=(commands,), daemon=True).start()
    serve(lambda event: _write(pipe, event), commands.get)
    os._exit(0)  # engine libraries may crash while the interpreter takes itself apart


def _write(pipe: BinaryIO, event: Event) -> None:
    data = memoryview(to_line(event))
    while data:
        data = data[pipe.write(data) or 0 :]
