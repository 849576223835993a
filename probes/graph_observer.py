"""Watches the engine compute one graph: which of its pieces take how long, in which memory.

The engine's scheduler cuts a graph where the next operation belongs to another device, and computes piece by
piece. A context made with an evaluation callback asks it about every node of a piece, computes the piece, and
goes on with the next (`ggml_backend_sched_compute_splits`): what lies between the last question about one
piece and the first one about the next is its computing, and moving what the next one needs. The questions
themselves lie outside.
"""

from __future__ import annotations

import ctypes
import dataclasses
import time
from collections.abc import Collection
from typing import Any

from llama_cpp import llama_cpp as lib

from probes.ggml_library import ggml

_NUMBER_BYTES = 4
_BUFFER_OFFSET = ctypes.sizeof(ctypes.c_void_p)
"""Of `buffer` in `struct ggml_tensor`: behind the type, which is padded to a pointer's size."""


@dataclasses.dataclass(frozen=True, slots=True)
class ObservedNode:
    """One node of the graph, in the order of computing."""

    name: str
    """The engine's: `l_out-29`, `ffn_out-15`, `result_output` ... Untrusted where it is a tensor's."""
    on_host: bool | None
    """Its result lies in the host's memory; None: it is a view of another node's."""
    took_ns: int
    """Until the engine came to the next one."""
    computed_ns: int | None
    """Of `took_ns`, until its piece was computed: what follows moves results to the next piece's device. None
    where it was not waited for."""


class GraphObserver:
    """Give `callback` to a context; then `begin`, evaluate, `nodes`."""

    def __init__(self) -> None:
        self._asked: list[tuple[int, int]] = []
        self._computed_ns: dict[int, int] = {}
        self._wait_after: Collection[int] = ()
        self._room = ctypes.create_string_buffer(_NUMBER_BYTES)
        self.callback = lib.ggml_backend_sched_eval_callback(self._on_node)

    def _on_node(self, tensor: int, ask: bool, _user_data: Any) -> bool:
        if ask:
            self._asked.append((time.perf_counter_ns(), tensor))
            return len(self._asked) - 1 in self._wait_after
        self._computed_ns[len(self._asked) - 1] = time.perf_counter_ns()
        # A remote device is done when it answers, not when it has the work.
        ggml().ggml_backend_tensor_get(tensor, self._room, 0, _NUMBER_BYTES)
        return True

    def begin(self, wait_after: Collection[int]) -> None:
        """Listen anew. `wait_after` are indices of nodes after which computing is to be waited for, so that
        they end a piece."""
        self._asked = []
        self._computed_ns = {}
        self._wait_after = wait_after

    def nodes(self, end_ns: int) -> tuple[ObservedNode, ...]:
        """What was computed since `begin` until `end_ns`, before anything else is."""
        times = [at_ns for at_ns, _ in self._asked] + [end_ns]
        return tuple(
            ObservedNode(
                name=_name(tensor),
                on_host=_is_on_host(tensor),
                took_ns=times[index + 1] - at_ns,
                computed_ns=self._computed_ns[index] - at_ns if index in self._computed_ns else None,
            )
            for index, (at_ns, tensor) in enumerate(self._asked)
        )


def _name(tensor: int) -> str:
    name: bytes = ggml().ggml_get_name(tensor)
    return name.decode("utf-8", "replace")


def _is_on_host(tensor: int) -> bool | None:
    buffer = ctypes.c_void_p.from_address(tensor + _BUFFER_OFFSET).value
    return bool(ggml().ggml_backend_buffer_is_host(buffer)) if buffer else None
