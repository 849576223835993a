"""The clock as a port: a test gives another one."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock, the same for all processes of this machine."""

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary moment; never runs backwards."""
        ...


class MonotonicClock:
    """The system's highest-resolution monotonic clock."""

    now_ns = staticmethod(time.perf_counter_ns)
