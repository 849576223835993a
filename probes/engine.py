"""The engine as a port: what the walk and the worker need of llama.cpp, and no more.

`probes.llama_engine` is the real one; tests drive everything else through a scripted one.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, cast

from probes.clock import Clock, MonotonicClock
from probes.errors import UnmeasurableError, UsageError
from probes.records import EngineFacts, Placement, Resolved, Settings
from probes.step_parts import Node

ENGINE_VARIABLE = "LLMPHASE_ENGINE"
"""`module:factory` of another engine; the factory returns (engine, clock). For tests and developers."""


class EngineError(UnmeasurableError):
    """An engine call failed; the message ends with the engine's own last words."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OpenTimes:
    """Stages of opening a model, in nanoseconds."""

    open_ns: int
    tensors_ns: int


class Engine(Protocol):
    """One model with one context.

    A *batch* is whatever the engine needs to evaluate some tokens; it is made ahead, so that
    `run` does nothing but evaluate and wait for the end. Positions count from 0.
    """

    def facts(self) -> EngineFacts:
        """The engine as installed."""
        ...

    def connect(self, servers: Sequence[str]) -> None:
        """Add the devices of other machines (`host:port`); those added before stay. Raises EngineError."""
        ...

    def open_model(self, path: str, settings: Settings, progress: Callable[[float], None]) -> OpenTimes:
        """Load the weights. `progress` gets the share loaded, 0 to 1. Raises EngineError."""
        ...

    def open_vocabulary(self, path: str) -> None:
        """Read the vocabulary alone, for `tokenize` and `chat_text`. Raises EngineError."""
        ...

    def chat_text(self, messages: Sequence[tuple[str, str]]) -> str:
        """The text of (role, content) messages by the model's chat template, ready for an answer. Raises
        EngineError when there is no template or the engine does not know its form."""
        ...

    def reserve(self, path: str, settings: Settings) -> tuple[Placement, ...]:
        """What a load with these settings would reserve for computing, on each buffer: other bytes are 0.
        Neither weights are loaded nor caches made. Raises EngineError."""
        ...

    def open_context(self, settings: Settings) -> None:
        """Make the context: caches and compute buffers. Raises EngineError."""
        ...

    def open_observed_context(self, settings: Settings) -> None:
        """Put two contexts in the place of the present one: an ordinary one, which is in use, and one that
        tells its parts. Raises EngineError."""
        ...

    def use_observed_context(self, is_used: bool) -> None:
        """Go on in the context that tells its parts, or in the ordinary one; each has its own cache."""
        ...

    def run_observed(self, batch: Any, wait_after: Collection[int]) -> Sequence[Node]:
        """Evaluate a batch in the observed context: the graph's nodes with their times. It waits after the
        nodes at `wait_after`, too. Raises EngineError."""
        ...

    def resolved(self) -> Resolved:
        """What the engine made of the settings, read back."""
        ...

    def log_warnings(self) -> tuple[str, ...]:
        """Warnings and errors of the engine's log since the model was opened."""
        ...

    def tokenize(self, text: bytes, *, special: bool = False) -> list[int]:
        """Token ids of the text, begun as the model wants; `special` reads names of special tokens in it."""
        ...

    def text_of(self, tokens: Sequence[int]) -> bytes:
        """The text that the tokens stand for."""
        ...

    def random_tokens(self, count: int, seed: int) -> list[int]:
        """Ordinary (no control) token ids, the first one as the model begins a text."""
        ...

    def set_tokens(self, tokens: Sequence[int]) -> None:
        """Lay the tokens ready in engine memory: batches refer to them by position."""
        ...

    def put_token(self, position: int, token: int) -> None:
        """Replace one of the tokens laid ready."""
        ...

    def batch(self, start: int, count: int, *, logits: bool) -> Any:
        """Positions start .. start+count-1; `logits` asks for those of the last token."""
        ...

    def run(self, batch: Any) -> None:
        """Evaluate a batch and wait until the devices are done. Raises EngineError."""
        ...

    def clear(self) -> None:
        """Empty the cache."""
        ...

    def save(self, position: int) -> None:
        """Remember the cache as it stands at `position`, for `restore`."""
        ...

    def restore(self, position: int) -> None:
        """Cut the cache back to `position`, which was the last one saved. Raises EngineError."""
        ...

    def sample(self, chain: str) -> int:
        """Draw a token from the last logits with the `default` or the `greedy` chain."""
        ...

    def close(self) -> None:
        """Free context and model."""
        ...


def create_engine(environment: dict[str, str] | None = None) -> tuple[Engine, Clock]:
    """The engine named by LLMPHASE_ENGINE, else llama.cpp. Raises EngineError when it can not be loaded."""
    name = (os.environ if environment is None else environment).get(ENGINE_VARIABLE)
    if name:
        return _load_factory(name)()
    try:
        from probes.llama_engine import LlamaEngine
    except (ImportError, OSError, RuntimeError) as error:
        raise EngineError(
            f"the engine (llama-cpp-python) can not be loaded: {error}. Install it anew: "
            "pip install --force-reinstall --no-cache-dir llama-cpp-python",
            reason="no-engine",
        ) from error
    return LlamaEngine(), MonotonicClock()


def _load_factory(name: str) -> Callable[[], tuple[Engine, Clock]]:
    module_name, _, attribute = name.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"{ENGINE_VARIABLE}={name} names no engine ({error}). Use module:factory, or unset it.",
            reason="no-engine",
        ) from error
    return cast("Callable[[], tuple[Engine, Clock]]", factory)
