"""Times the parts of a split model: a few decode steps and a prompt's first micro-batch, in an observed
context.

Each is evaluated as it is, and once more waiting after the last layer, which costs a remote device a second
message: the first tells host and devices apart, the second only what of the devices' time is the output
layer. A decode step once more waits after the first layer there, which tells what getting there costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from probes.engine import Engine
from probes.records import Settings, StepParts
from probes.step_parts import Node, first_device_layer_end, last_layer_end, split_parts

_STEPS, _MOST_STEPS = 8, 32
_PROMPTS, _MOST_PROMPTS = 2, 6
_EACH_NS = 2 * 10**9
"""Of decode steps, and of prompts, there are more than the least while they take no longer together."""


class PartTimer:
    """Of a loaded model whose tokens are laid ready. The engine's context is an observed one afterwards."""

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
        engine = self._engine
        engine.open_observed_context(self._settings)
        first = max(1, min(prompt_tokens, self._settings.n_ubatch, room_tokens))
        engine.run(engine.batch(0, first, logits=True))
        steps = list(self._steps(first, min(_MOST_STEPS, (room_tokens - first - 1) // 3)))
        prompts = list(self._prompts(first)) if first > 1 else []
        return tuple(part for part in (*steps, *prompts) if part is not None)

    def _steps(self, depth: int, most: int) -> Iterator[StepParts | None]:
        """One to settle the graph, then three at a time; each step has its own position."""
        if most < 1:
            return
        position, begin_ns = depth, self._now_ns()
        end = last_layer_end(self._run(position, 1, None))
        for index in range(most):
            if end is None or self._is_over(begin_ns, index >= _STEPS):
                return
            plain, waiting = self._run(position + 1, 1, None), self._run(position + 2, 1, end)
            first = first_device_layer_end(plain)
            entering = () if first is None else self._run(position + 3, 1, first)[: first + 1]
            position += 3
            yield split_parts(plain, waiting, end, entering=entering, tokens=1, position_tokens=position)

    def _prompts(self, tokens: int) -> Iterator[StepParts | None]:
        self._engine.clear()
        begin_ns = self._now_ns()
        end = last_layer_end(self._run(0, tokens, None))
        for index in range(_MOST_PROMPTS):
            if end is None or self._is_over(begin_ns, index >= _PROMPTS):
                return
            self._engine.clear()
            plain = self._run(0, tokens, None)
            self._engine.clear()
            waiting = self._run(0, tokens, end)
            yield split_parts(plain, waiting, end, tokens=tokens, position_tokens=0)

    def _run(self, start: int, count: int, wait_after: int | None) -> Sequence[Node]:
        batch: Any = self._engine.batch(start, count, logits=True)
        return self._engine.run_observed(batch, wait_after)

    def _is_over(self, begin_ns: int, is_enough: bool) -> bool:
        now_ns = self._now_ns()
        return now_ns >= self._deadline_ns or (is_enough and now_ns - begin_ns >= _EACH_NS)
