"""One worker process for groups that take turns on one remote server.

A server serves one client at a time, and all that a process loads is one client to it: so the groups are
loaded in the same process, each at a seat with an engine of its own.
"""

from __future__ import annotations

import dataclasses

from probes.messages import Command, Event, TakeSeat
from probes.worker_process import WorkerProcess


@dataclasses.dataclass(slots=True)
class _Room:
    """A process and who sits there."""

    process: WorkerProcess
    n_seats: int = 0
    """Given out so far."""
    n_taken: int = 0
    present: int | None = None
    """The seat that the process listens to."""


class SharedWorker:
    """Gives out seats. The process begins with the first one, and anew once it has gone."""

    def __init__(self) -> None:
        self._room: _Room | None = None

    def seat(self) -> Seat:
        """A new seat. Raises UnmeasurableError (`no-process`)."""
        if self._room is None or not self._room.process.is_running:
            self._room = _Room(WorkerProcess())
        return Seat(self._room)


class Seat:
    """Speaks to one engine of a shared process as to a `WorkerProcess` of its own. What ends the process ends
    it for all who sit there."""

    def __init__(self, room: _Room) -> None:
        self._room = room
        self._number = room.n_seats
        room.n_seats += 1
        room.n_taken += 1

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._room.process.pid

    def send(self, command: Command) -> None:
        """See WorkerProcess."""
        if self._room.present != self._number:
            self._room.process.send(TakeSeat(number=self._number))
            self._room.present = self._number
        self._room.process.send(command)

    def receive(self, timeout_s: float) -> Event | None:
        """See WorkerProcess."""
        return self._room.process.receive(timeout_s)

    def end(self) -> None:
        """Give up the seat. Its engine stays until the process ends, with the last seat."""
        self._room.n_taken -= 1
        if not self._room.n_taken:
            self._room.process.end()

    def kill(self) -> None:
        """End the process at once."""
        self._room.process.kill()
