"""The way to an RPC server: round trip and transfer rates, through the engine's own protocol.

Run it in a process of its own, after `probes.remote_devices.add_servers`: the engine ends the process where a
server goes away.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from probes.errors import UnmeasurableError
from probes.kernels import Backend
from probes.records import LinkFacts
from probes.remote_devices import devices_of
from probes.rpc_protocol import rpc_error

_SMALL_BYTES = 4
_ROUND_TRIPS, _WARM_UP = 31, 3
_ROUND_TRIPS_S = 1.0
"""Over a slow network fewer round trips must do."""
_FIRST_BYTES, _STEP, _MOST_BYTES = 2**16, 8, 2**25
_LONG_ENOUGH = 10
"""Round trips that a transfer must outlast for its rate to be told from them."""
_LONG_ENOUGH_S = 0.02
_LONGEST_S = 1.0
"""No copy is begun that would take longer."""
_REPETITIONS = 3

Copying = Callable[[int], AbstractContextManager[Callable[[], None]]]


def measure_link(server: str) -> LinkFacts:
    """Measure the way to a server's first device, in a few seconds at most. Raises EngineError where it is
    not added, UnmeasurableError where it has no memory for it."""
    found = devices_of(server)
    if not found:
        raise rpc_error(server, "was not added")
    with Backend(found[0], threads=1) as backend:
        round_trip_s = _round_trip_s(backend)
        unknown: dict[str, str] = {}
        rates = {
            field: _rate(copying, round_trip_s, field, unknown)
            for field, copying in (("to_bytes_s", backend.transfer), ("from_bytes_s", backend.fetch))
        }
    return LinkFacts(
        server=server,
        round_trip_s=round_trip_s,
        to_bytes_s=rates["to_bytes_s"],
        from_bytes_s=rates["from_bytes_s"],
        unknown=unknown,
    )


def _round_trip_s(backend: Backend) -> float:
    """Median seconds of asking for one number: a request there, its answer back."""
    taken_s: list[float] = []
    with backend.fetch(_SMALL_BYTES) as ask:
        for _ in range(_WARM_UP):
            ask()
        while len(taken_s) < _ROUND_TRIPS and sum(taken_s) < _ROUND_TRIPS_S:
            taken_s.append(_seconds(ask))
    return statistics.median(taken_s)


def _rate(copying: Copying, round_trip_s: float, field: str, unknown: dict[str, str]) -> float | None:
    """Bytes per second of a copy long enough to be told from its one round trip."""
    n_bytes = _FIRST_BYTES
    try:
        while True:
            with copying(n_bytes) as copy:
                copying_s = _seconds(copy) - round_trip_s
                is_long = copying_s >= max(_LONG_ENOUGH_S, _LONG_ENOUGH * round_trip_s)
                if is_long or copying_s * _STEP > _LONGEST_S or n_bytes * _STEP > _MOST_BYTES:
                    taken_s = [copying_s]
                    while len(taken_s) < _REPETITIONS and sum(taken_s) < _LONGEST_S:
                        taken_s.append(_seconds(copy) - round_trip_s)
                    return _bytes_s(n_bytes, statistics.median(taken_s))
            n_bytes *= _STEP
    except UnmeasurableError as error:
        unknown[field] = f"{error.reason}: {error}"
        return None


def _bytes_s(n_bytes: int, seconds: float) -> float:
    if seconds <= 0:
        raise UnmeasurableError("the copy was over within one round trip", reason="too-fast")
    return n_bytes / seconds


def _seconds(run: Callable[[], None]) -> float:
    begin_s = time.perf_counter()
    run()
    return time.perf_counter() - begin_s
