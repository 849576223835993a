"""One worker, what is said to it, what it answers, and what else the machine does meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Protocol, TypeVar

from probes.disturbance import Sampler
from probes.errors import LlmphaseError, UnmeasurableError
from probes.messages import Command, Event, Failed, ProtocolError
from probes.patience import Patience
from probes.records import Disturbance

_TICK_S = 1.0
"""Between two looks at what else the machine does."""
_SHORTEST_S = 0.5
"""The system counts in ticks of 10 ms, which blur a shorter look."""

E = TypeVar("E")


class WorkerStall(UnmeasurableError):
    """The worker gave no sign of life for too long and was ended."""

    def __init__(self, silent_ns: int) -> None:
        super().__init__(
            f"the engine gave no sign of life for {silent_ns / 1e9:.0f} s and was ended; --cell-timeout sets"
            " how long to wait",
            reason="stall",
        )


class Talker(Protocol):
    """The other side: see `probes.worker_process.WorkerProcess`."""

    @property
    def pid(self) -> int: ...

    def send(self, command: Command) -> None: ...

    def receive(self, timeout_s: float) -> Event | None: ...

    def end(self) -> None: ...

    def kill(self) -> None: ...


class Conversation:
    """Talks with one worker, or at one seat of one.

    `hear` gets each event that is not the one waited for, `notice` what else the machine did about once a
    second, of which what `companions` do is none. Any failure of the worker ends it, so that nothing it says
    later is taken for an answer.
    """

    def __init__(
        self,
        patience: Patience,
        hear: Callable[[Event], None],
        notice: Callable[[Disturbance], None],
        phase: Callable[[], str],
        worker: Talker,
        companions: Collection[int] = (),
    ) -> None:
        self.patience = patience
        self._hear = hear
        self._notice = notice
        self._phase = phase
        self._worker = worker
        self._sampler = Sampler(self._worker.pid, companions=companions)
        self._looked_s = time.monotonic()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def ask(self, command: Command, kind: type[E]) -> E:
        """Give a command and wait for its answer. Raises LlmphaseError for Failed, WorkerCrash, WorkerStall,
        ProtocolError."""
        try:
            self._worker.send(command)
            return self._wait_for(kind)
        except (WorkerStall, ProtocolError):
            self._worker.kill()
            raise

    def look(self, *, at_least_s: float = _SHORTEST_S) -> None:
        """See what else the machine did, unless that was asked only just now."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= at_least_s:
            self._looked_s = now_s
            self._notice(self._sampler.sample(self._phase()))

    def end(self) -> None:
        """Ask the worker to end, then make it end."""
        self._worker.end()

    def kill(self) -> None:
        """End the worker at once."""
        self._worker.kill()

    def _wait_for(self, kind: type[E]) -> E:
        while True:
            event = self._receive()
            self.look(at_least_s=_TICK_S)
            if isinstance(event, kind):
                return event
            if isinstance(event, Failed):
                raise LlmphaseError(event.message, reason=event.reason)
            if event is not None:
                self._hear(event)

    def _receive(self) -> Event | None:
        """The next event, or None after a while. Raises WorkerStall when that was one while too many."""
        began_s = time.monotonic()
        event = self._worker.receive(_TICK_S)
        if event is not None:
            self.patience.hear()
            return event
        # A longer wait was none of the worker's: this program was stopped, or the machine asleep.
        waited_s = min(time.monotonic() - began_s, 2 * _TICK_S)
        self.patience.wait(round(waited_s * 1e9))
        if self.patience.is_over:
            raise WorkerStall(self.patience.limit_ns)
        return None
