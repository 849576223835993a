"""Times the parts of a split model: decode steps and a prompt's first micro-batch.

Watching costs something: the engine computes piece by piece, and sends a remote device its graph anew each
time. So the same evaluations run in two contexts in turn, one that is watched and one that is not. A watched
one waits where the host is done, which tells computing from moving; after the first layer on a device, which
tells what getting there costs; and after the last layer, which tells the layers from the output.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence

from probes.engine import Engine
from probes.records import Settings, StepParts
from probes.step_parts import Marks, Node, marks, split_parts

_ROUNDS, _MOST_ROUNDS = 5, 192
_UNWATCHED = 2
"""Steps in a round, beside a watched one."""
_PROMPTS, _MOST_PROMPTS = 2, 8
_EACH_NS = 6 * 10**9
"""Of decode steps, and of prompts, there are more than the least while they take no longer together."""
WANTED_NS = 2 * _EACH_NS
"""What timing the parts makes good use of."""


class PartTimer:
    """Of a loaded model whose tokens are laid ready. The engine has two other contexts afterwards."""

    def __init__(
        self, engine: Engine, settings: Settings, now_ns: Callable[[], int], deadline_ns: int
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._now_ns = now_ns
        self._deadline_ns = deadline_ns

    def measure(self, prompt_tokens: int, room_tokens: int) -> tuple[StepParts, ...]:
        """Decode steps behind the prompt's first micro-batch, then that itself, as far as the time allows.
        `room_tokens` are laid ready and fit into the context. Raises EngineError."""
        first = max(1, min(prompt_tokens, self._settings.n_ubatch, room_tokens))
        most = min(room_tokens, first + 1 + max(_MOST_ROUNDS, _UNWATCHED))
        # Two contexts have to find room where one was.
        self._engine.open_observed_context(
            dataclasses.replace(self._settings, n_ctx=min(self._settings.n_ctx, most))
        )
        for is_observed in (True, False):
            self._engine.use_observed_context(is_observed)
            self._engine.run(self._engine.batch(0, first, logits=True))
        self._engine.save(first)
        steps = list(self._steps(first, most))
        prompts = list(self._prompts(first)) if first > 1 else []
        return tuple(part for part in (*steps, *prompts) if part is not None)

    def _steps(self, depth: int, room_tokens: int) -> Iterator[StepParts | None]:
        """One to settle the graph, then a round at a time. Watched steps go on and on, the others begin anew
        at `depth` each time."""
        if room_tokens - depth <= _UNWATCHED:
            return
        found = marks(self._watched(depth, 1, ()))
        begin_ns = self._now_ns()
        for index, position in enumerate(range(depth + 1, room_tokens)):
            if found is None or self._is_over(begin_ns, index >= _ROUNDS):
                return
            yield split_parts(
                self._watched(position, 1, found),
                found,
                whole_ns=self._unwatched_steps_ns(depth),
                tokens=1,
                position_tokens=position,
            )

    def _unwatched_steps_ns(self, depth: int) -> tuple[int, ...]:
        """Steps behind an untimed one: the devices get their graph anew after the other context's."""
        self._engine.use_observed_context(False)
        self._engine.restore(depth)
        self._unwatched_ns(depth, 1)
        return tuple(self._unwatched_ns(depth + step, 1) for step in range(1, _UNWATCHED + 1))

    def _prompts(self, tokens: int) -> Iterator[StepParts | None]:
        begin_ns = self._now_ns()
        found: Marks | None = None
        for index in range(_MOST_PROMPTS):
            if self._is_over(begin_ns, index >= _PROMPTS):
                return
            found = found or marks(self._fresh_prompt(tokens, ()))
            if found is None:
                return
            nodes = self._fresh_prompt(tokens, found)
            self._engine.use_observed_context(False)
            self._engine.clear()
            whole_ns = (self._unwatched_ns(0, tokens),)
            yield split_parts(nodes, found, whole_ns=whole_ns, tokens=tokens, position_tokens=0)

    def _fresh_prompt(self, tokens: int, wait_after: Collection[int]) -> Sequence[Node]:
        self._engine.use_observed_context(True)
        self._engine.clear()
        return self._watched(0, tokens, wait_after)

    def _watched(self, start: int, count: int, wait_after: Collection[int]) -> Sequence[Node]:
        self._engine.use_observed_context(True)
        return self._engine.run_observed(self._engine.batch(start, count, logits=True), wait_after)

    def _unwatched_ns(self, start: int, count: int) -> int:
        batch = self._engine.batch(start, count, logits=True)
        begin_ns = self._now_ns()
        self._engine.run(batch)
        return self._now_ns() - begin_ns

    def _is_over(self, begin_ns: int, is_enough: bool) -> bool:
        now_ns = self._now_ns()
        return now_ns >= self._deadline_ns or (is_enough and now_ns - begin_ns >= _EACH_NS)
