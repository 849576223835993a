"""Measures small models whose work is known, through the very processes and the walk that real runs take.

All models are loaded at once and measured in turn, round by round, so that a drift of the machine meets them
alike. What the samples say is judged elsewhere.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from probes.errors import UnmeasurableError
from probes.gguf_header import read_model_facts
from probes.messages import (
    BesideDone,
    CellMeasured,
    Command,
    Failed,
    Load,
    Loaded,
    PassDone,
    RunBeside,
    RunPass,
)
from probes.records import CellSample, ModelFacts, RequestSample, SelfTestRound, Settings
from probes.tiny_gguf import write_tiny_model
from probes.worker_process import WorkerProcess

LAYERS = 16
LENGTHS = (48, 160, 288)
"""None, two and four whole chunks before the tail."""
ROUNDS = 25
_FEWEST_ROUNDS = 5
_BUDGET_S = 45.0
_STEPS = 16
_CHUNK_TOKENS = 64
_CONTEXT_TOKENS = 512
_ANSWER_S = 60.0

E = TypeVar("E")


def measure_rounds(threads: int, show: Callable[[int], None]) -> tuple[SelfTestRound, ...]:
    """The rounds; of `ROUNDS` as many as fit into 45 s, at least five. `show` hears each round's number.

    Raises LlmphaseError where the engine fails, OSError where the models can not be written.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="llmphase-")))
        single = write_tiny_model(folder / "single.gguf", LAYERS)
        doubled = write_tiny_model(folder / "doubled.gguf", 2 * LAYERS)
        settings = plain_settings(threads, chunk_tokens=_CHUNK_TOKENS, n_ctx=_CONTEXT_TOKENS)
        benches = [
            Bench(stack, read_model_facts(path), settings, LENGTHS[-1] + _STEPS)
            for path in (single, doubled, *[single] * len(LENGTHS))
        ]
        begun_s = time.monotonic()
        rounds: list[SelfTestRound] = []
        for number in range(ROUNDS):
            show(number)
            rounds.append(_round(benches[0], benches[1], benches[2:], number))
            if time.monotonic() - begun_s > _BUDGET_S and len(rounds) >= _FEWEST_ROUNDS:
                break
    return tuple(rounds)


def _round(single: Bench, doubled: Bench, fresh: list[Bench], number: int) -> SelfTestRound:
    walk = single.walk(LENGTHS, _STEPS, number)
    twice = doubled.walk(LENGTHS[:1], _STEPS, number)[LENGTHS[0]]
    alone = {
        length: bench.walk((length,), 1, number)[length] for bench, length in zip(fresh, LENGTHS, strict=True)
    }
    return SelfTestRound(
        decode_ns=walk[LENGTHS[0]].decode_ns,
        doubled_decode_ns=twice.decode_ns,
        walk_prefill_ns={str(length): sample.prefill_ns for length, sample in walk.items()},
        fresh_prefill_ns={str(length): sample.prefill_ns for length, sample in alone.items()},
        request=single.request(LENGTHS[1], _STEPS),
    )


class Bench:
    """One model loaded in a process of its own, which ends with the stack. Raises LlmphaseError."""

    def __init__(
        self, stack: contextlib.ExitStack, model: ModelFacts, settings: Settings, max_tokens: int
    ) -> None:
        self._worker = stack.enter_context(WorkerProcess())
        self._ask(
            Load(
                model=model,
                settings=settings,
                tokens="text",
                seed=0,
                max_tokens=max_tokens,
                warm_up=True,
            ),
            Loaded,
        )

    def walk(self, lengths: tuple[int, ...], steps: int, number: int) -> dict[int, CellSample]:
        """One pass: a sample for each length."""
        command = RunPass(
            pass_index=number,
            lengths=lengths,
            output_tokens=steps,
            time_left_ns=int(_ANSWER_S * 1e9),
        )
        found = {
            event.prompt_tokens: event.sample
            for event in self._events(command, PassDone)
            if isinstance(event, CellMeasured)
        }
        if found.keys() != set(lengths):
            raise UnmeasurableError("a pass of the self-test ended early: repeat it", reason="self-test")
        return found

    def request(self, prompt_tokens: int, output_tokens: int) -> RequestSample:
        """One whole request, every part timed."""
        command = RunBeside(
            lengths=(),
            repetitions=1,
            request_prompt_tokens=prompt_tokens,
            request_output_tokens=output_tokens,
        )
        return self._ask(command, BesideDone).requests[0]

    def _ask(self, command: Command, kind: type[E]) -> E:
        last = None
        for event in self._events(command, kind):
            last = event
        assert isinstance(last, kind)
        return last

    def _events(self, command: Command, kind: type[E]) -> Iterator[object]:
        """Everything that comes up to the awaited event, it included."""
        self._worker.send(command)
        while True:
            event = self._worker.receive(_ANSWER_S)
            if event is None:
                raise UnmeasurableError(
                    f"the engine did not answer within {_ANSWER_S:.0f} s", reason="no-answer"
                )
            if isinstance(event, Failed):
                raise UnmeasurableError(event.message, reason=event.reason)
            yield event
            if isinstance(event, kind):
                return


def plain_settings(threads: int, *, chunk_tokens: int, n_ctx: int) -> Settings:
    """As plain as can be: what is tested is the measuring, not the engine's choices."""
    return Settings(
        n_gpu_layers=None,
        n_ctx=n_ctx,
        n_batch=chunk_tokens,
        n_ubatch=chunk_tokens,
        threads=threads,
        threads_batch=threads,
        flash_attn="auto",
        type_k="f16",
        type_v="f16",
        load_mode="auto",
        swa_full=False,
        repack=False,
    )
