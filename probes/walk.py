"""The walk: the only timed loop.

One pass over ascending prompt lengths times prefill at every length and decode at every depth for
little more than the cost of the longest prefill. The cache moves forward in whole chunks (the
micro-batches that a fresh prompt runs too); a length's tail and its decode steps are run on top and
cut off again. So for every length

    prefill(L) = whole chunks before the tail + tail

where the tail is the last chunk of L and the only one that asks for logits, as in a fresh prompt.
A tail that is itself a whole chunk stays in the cache and serves the longer lengths: they then
contain the cost of one token's logits more than a fresh prompt would.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Sequence
from typing import Any

from probes.clock import Clock
from probes.engine import Engine
from probes.records import CellSample, PassSample


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PassPlan:
    """What one pass has to do."""

    pass_index: int
    lengths: tuple[int, ...]
    """Ascending, without doubles. 0: decode at an empty cache."""
    output_tokens: int
    chunk_tokens: int
    deadline_ns: int | None
    """On the walk's clock: no call is begun that would likely end later."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is about to be timed; told to the observer before the clock is read."""

    phase: str
    prompt_tokens: int
    position_tokens: int
    tokens_per_s: float | None
    """Rate of the call before, for a display."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PassOutcome:
    """A pass as a whole, and the lengths it did not reach before the deadline."""

    sample: PassSample
    not_reached: tuple[int, ...]


class Walk:
    """Runs passes on an engine whose tokens are laid ready.

    `on_step` is called before a timed call, `on_cell` after the last decode step of a length; both
    outside the timed regions.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        on_step: Callable[[Step], None],
        on_cell: Callable[[int, CellSample], None],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._on_step = on_step
        self._on_cell = on_cell
        self._engine_ns = 0
        self._ns_per_token: dict[str, float] = {}

    def expect(self, phase: str, ns_per_token: float) -> None:
        """A first guess of what a token costs, until the walk knows better."""
        self._ns_per_token.setdefault(phase, ns_per_token)

    def run_pass(self, plan: PassPlan) -> PassOutcome:
        """One pass from an empty cache. Garbage collection is off inside.

        Raises EngineError from the engine; samples of finished cells have been given to `on_cell`.
        """
        gc.collect()
        was_enabled = gc.isenabled()
        gc.disable()
        started_ns = self._clock.now_ns()
        self._engine_ns = 0
        try:
            not_reached = self._pass(plan)
        finally:
            if was_enabled:
                gc.enable()
        sample = PassSample(
            pass_index=plan.pass_index,
            started_ns=started_ns,
            wall_ns=self._clock.now_ns() - started_ns,
            engine_ns=self._engine_ns,
        )
        return PassOutcome(sample=sample, not_reached=not_reached)

    def _pass(self, plan: PassPlan) -> tuple[int, ...]:
        self._engine.clear()
        position = 0
        head_ns = 0
        for index, length in enumerate(plan.lengths):
            tail_start = max(0, (length - 1) // plan.chunk_tokens * plan.chunk_tokens)
            while position < tail_start:
                if not self._fits(length - position, plan):
                    return plan.lengths[index:]
                head_ns += self._evaluate(position, plan.chunk_tokens, length, logits=False)
                position += plan.chunk_tokens
            if not self._fits(length - position, plan):
                return plan.lengths[index:]
            longest = index == len(plan.lengths) - 1
            tail_ns = self._cell(plan, length, tail_start, head_ns, longest=longest)
            if length - tail_start == plan.chunk_tokens:
                position = length
                head_ns += tail_ns
        return ()

    def _cell(self, plan: PassPlan, length: int, tail_start: int, head_ns: int, *, longest: bool) -> int:
        """Tail, decode, cut back. Returns the tail's nanoseconds."""
        engine = self._engine
        tail_tokens = length - tail_start
        keep_tail = tail_tokens == plan.chunk_tokens
        started_ns = self._clock.now_ns()
        if not longest and not keep_tail:
            engine.save(tail_start)
        tail_ns = self._evaluate(tail_start, tail_tokens, length, logits=True) if tail_tokens else 0
        if not longest and keep_tail:
            engine.save(length)
        decode_ns = self._decode(length, plan.output_tokens)
        if not longest:
            engine.restore(length if keep_tail else tail_start)
        self._on_cell(
            length,
            CellSample(
                pass_index=plan.pass_index,
                started_ns=started_ns,
                head_ns=head_ns,
                tail_ns=tail_ns,
                decode_ns=decode_ns,
            ),
        )
        return tail_ns

    def _evaluate(self, start: int, count: int, length: int, *, logits: bool) -> int:
        batch = self._engine.batch(start, count, logits=logits)
        self._tell("prefill", length, start)
        run, now_ns = self._engine.run, self._clock.now_ns
        before_ns = now_ns()
        run(batch)
        elapsed_ns = now_ns() - before_ns
        self._account("prefill", elapsed_ns, count)
        return elapsed_ns

    def _decode(self, depth: int, steps: int) -> tuple[int, ...]:
        batches = [self._engine.batch(depth + step, 1, logits=True) for step in range(steps)]
        self._tell("decode", depth, depth)
        durations_ns = time_steps(self._engine.run, self._clock.now_ns, batches)
        self._account("decode", sum(durations_ns), steps)
        return tuple(durations_ns)

    def _account(self, phase: str, elapsed_ns: int, tokens: int) -> None:
        self._engine_ns += elapsed_ns
        if tokens:
            self._ns_per_token[phase] = elapsed_ns / tokens

    def _tell(self, phase: str, length: int, position: int) -> None:
        per_token = self._ns_per_token.get(phase)
        rate = 1e9 / per_token if per_token else None
        self._on_step(Step(phase=phase, prompt_tokens=length, position_tokens=position, tokens_per_s=rate))

    def _fits(self, prompt_tokens: int, plan: PassPlan) -> bool:
        """Whether so many more prompt tokens and the decode after them likely end before the deadline. The
        rates are those of shorter prompts, so a length that can not be reached is left at once or soon, and
        the time goes to further passes over the others."""
        if plan.deadline_ns is None:
            return True
        expected_ns = self._ns_per_token.get("prefill", 0.0) * prompt_tokens
        expected_ns += self._ns_per_token.get("decode", 0.0) * plan.output_tokens
        return self._clock.now_ns() + expected_ns <= plan.deadline_ns


def time_steps(run: Callable[[Any], None], now_ns: Callable[[], int], batches: Sequence[Any]) -> list[int]:
    """Nanoseconds of each call, the clock read just outside it and nothing else in between."""
    durations_ns = [0] * len(batches)
    for index, batch in enumerate(batches):
        before_ns = now_ns()
        run(batch)
        durations_ns[index] = now_ns() - before_ns
    return durations_ns
