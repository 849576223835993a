"""How much of a file the system holds in memory, and how to let it go: cold and warm loads apart.

Linux 6.5 and later tell by `cachestat`; before that, and on macOS, `mincore` tells for mapped pages.
Where neither does, the share is None with a reason, and the load's cache state is `unknown`.
"""

from __future__ import annotations

import ctypes
import dataclasses
import mmap
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from probes.records import CacheState

COLD_BELOW = 0.05
WARM_ABOVE = 0.95

_CACHESTAT_SYSCALL = 451
"""The same number on every Linux architecture but alpha."""
_WINDOW_BYTES = 2**30
"""mincore is asked window by window: its answer takes a byte a page."""
_LOWEST_BIT = bytes(value & 1 for value in range(256))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CacheReading:
    """The page cache's share of some files, all together."""

    fraction: float | None
    """0 to 1; None when it can not be known."""
    reason: str | None
    """Why it is not known."""

    @property
    def state(self) -> CacheState:
        """The label of a load that begins now."""
        return classify(self.fraction)


class _UnknownError(Exception):
    """The share can not be known; the text says why."""


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Statistics(ctypes.Structure):
    """Page counts of `cachestat`."""

    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def classify(fraction: float | None) -> CacheState:
    """The label of a share, as `records.CacheState` defines it."""
    if fraction is None:
        return "unknown"
    if fraction < COLD_BELOW:
        return "cold"
    return "warm" if fraction > WARM_ABOVE else "partial"


def read_cache(paths: Iterable[str | Path]) -> CacheReading:
    """The share of the files' bytes that lies in the page cache, by whole pages."""
    cached_bytes = total_bytes = 0
    try:
        for path in paths:
            cached, total = _cached_bytes(Path(path))
            cached_bytes, total_bytes = cached_bytes + cached, total_bytes + total
    except _UnknownError as problem:
        return CacheReading(fraction=None, reason=str(problem))
    except OSError as problem:
        return CacheReading(
            fraction=None, reason=f"the file could not be asked: {problem.strerror or problem}"
        )
    if total_bytes == 0:
        return CacheReading(fraction=None, reason="there are no bytes to ask about")
    return CacheReading(fraction=min(1.0, cached_bytes / total_bytes), reason=None)


def cached_fraction(paths: Iterable[str | Path]) -> float | None:
    """`read_cache` without the reason."""
    return read_cache(paths).fraction


def drop(paths: Iterable[str | Path]) -> bool:
    """Ask the system to let go of the files' pages. False where it has no such call or a file refused.

    Needs no privilege. It is a request: pages that another process maps or has not yet written stay, so
    read the share again afterwards.
    """
    if not hasattr(os, "posix_fadvise"):
        return False
    try:
        for path in paths:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(descriptor)  # pages not yet on disk can not be dropped
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
    except OSError:
        return False
    return True


def process_read_bytes(pid: int | None = None, root: Path = Path("/")) -> int | None:
    """Bytes that a process (by default this one) has fetched from storage, page faults included.

    Linux alone counts them (`read_bytes` of /proc/PID/io): other systems have no such count, or one that
    includes what came from memory. None there, for a process that has gone, and for another user's.
    """
    try:
        text = (root / "proc" / ("self" if pid is None else str(pid)) / "io").read_text(encoding="ascii")
    except OSError:
        return None
    values = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return int(values["read_bytes"]) if "read_bytes" in values else None


def _cached_bytes(path: Path) -> tuple[int, int]:
    """Bytes of the file in the cache, and all its bytes, both in whole pages."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        pages = -(-size // mmap.PAGESIZE)
        if pages == 0:
            return 0, 0
        cached = _ask_cachestat(descriptor)
        if cached is None:
            cached = _ask_mincore(descriptor, size)
    finally:
        os.close(descriptor)
    return cached * mmap.PAGESIZE, pages * mmap.PAGESIZE


def _ask_cachestat(descriptor: int) -> int | None:
    """Pages in the cache; None where the kernel has no such call or refuses it for this file."""
    if not sys.platform.startswith("linux"):
        return None
    whole, statistics = _Range(0, 0), _Statistics()
    failed = ctypes.CDLL(None).syscall(
        ctypes.c_long(_CACHESTAT_SYSCALL),
        ctypes.c_int(descriptor),
        ctypes.byref(whole),
        ctypes.byref(statistics),
        ctypes.c_uint(0),
    )
    return None if failed else int(statistics.cached)


def _ask_mincore(descriptor: int, size: int) -> int:
    """Pages in the cache, from mapping the file without touching it."""
    if sys.platform == "win32":
        raise _UnknownError("Windows does not tell what is in its file cache")
    if sys.platform.startswith("linux") and not _may_ask_mincore(descriptor):
        raise _UnknownError("the kernel tells only those who may write to the file")
    return sum(
        _resident_pages(descriptor, offset, min(_WINDOW_BYTES, size - offset))
        for offset in range(0, size, _WINDOW_BYTES)
    )


def _may_ask_mincore(descriptor: int) -> bool:
    """Whether Linux's mincore tells the truth: to anyone else than the owner and those who may write, it
    reports every page as present (since Linux 5.2, so that nobody spies on what others read).
    """
    owner = os.fstat(descriptor).st_uid
    return os.geteuid() in (0, owner) or os.access(f"/proc/self/fd/{descriptor}", os.W_OK)


def _resident_pages(descriptor: int, offset: int, length: int) -> int:
    # The mmap module gives no address of a read-only mapping, and a writable private one of a large
    # file may be refused, as it counts against the memory that the system has promised.
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    address = library.mmap(
        None,
        ctypes.c_size_t(length),
        ctypes.c_int(mmap.PROT_READ),
        ctypes.c_int(mmap.MAP_SHARED),
        ctypes.c_int(descriptor),
        ctypes.c_int64(offset),
    )
    if address in (None, ctypes.c_void_p(-1).value):
        raise _UnknownError(f"the file can not be mapped: {os.strerror(ctypes.get_errno())}")
    answer = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
    failed = library.mincore(ctypes.c_void_p(address), ctypes.c_size_t(length), answer)
    problem = ctypes.get_errno()
    library.munmap(ctypes.c_void_p(address), ctypes.c_size_t(length))
    if failed:
        raise _UnknownError(f"the kernel does not tell: {os.strerror(problem)}")
    return answer.raw.translate(_LOWEST_BIT).count(1)
