"""How long an engine may be silent before it is taken to hang."""

from __future__ import annotations

CALL_FACTOR = 10
"""A call that takes so many times what it should is no slow call any more."""
LEAST_CALL_NS = 120 * 10**9
"""Kernels may be compiled at their first use, a disk may have to spin up, a laptop may be held down."""
SLOWEST_FILE_BYTES_S = 20 * 10**6
"""A model file that comes slower than this, over a bad network, is given up."""


class Patience:
    """Adds up the silence of one worker and knows when it is too long.

    `asked_ns` is the limit that a person gave. Without one it is ten times the longest call foreseen or
    survived so far, and never less than two minutes; for each stage of a load two minutes, and what the file
    would take at 20 MB/s: a stage may read all of it, and a device may have to be woken.
    """

    def __init__(self, asked_ns: int | None, file_bytes: int) -> None:
        self._asked_ns = asked_ns
        self._load_ns = LEAST_CALL_NS + file_bytes * 10**9 // SLOWEST_FILE_BYTES_S
        self._call_ns = LEAST_CALL_NS
        self._silent_ns = 0
        self._learns = False
        self.limit_ns = self._load_ns
        """The silence that is too long, in nanoseconds."""

    @property
    def is_over(self) -> bool:
        """Whether the silence has become too long."""
        return self._silent_ns >= self.limit_ns

    def begin_load(self) -> None:
        """A load is asked for."""
        self._begin(self._asked_ns or self._load_ns)

    def begin_pass(self, call_ns: int) -> None:
        """A pass is asked for; its longest call should take `call_ns`."""
        self._call_ns = max(self._call_ns, CALL_FACTOR * call_ns)
        self._begin(self._asked_ns or self._call_ns)
        self._learns = self._asked_ns is None

    def begin_request(self, expected_ns: int) -> None:
        """Something of many calls, and silent until its end, is asked for: it should take `expected_ns`."""
        self._begin(max(self._asked_ns or self._call_ns, CALL_FACTOR * expected_ns))

    def wait(self, duration_ns: int) -> None:
        """So much more time has passed without a word."""
        self._silent_ns += duration_ns

    def hear(self) -> None:
        """The worker said something: what it took till then, a later call may take, and more."""
        if self._learns:
            self._call_ns = max(self._call_ns, CALL_FACTOR * self._silent_ns)
            self.limit_ns = max(self.limit_ns, self._call_ns)
        self._silent_ns = 0

    def _begin(self, limit_ns: int) -> None:
        self.limit_ns = limit_ns
        self._learns = False
        self._silent_ns = 0
