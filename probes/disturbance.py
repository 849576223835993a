"""What else the machine does while a worker measures: sampled by the parent, about once a second.

Counters are read at each sample and only their growth is reported. One sample must cost far less than a
millisecond, and a few where there are GPUs, so it reads a handful of the kernel's files on Linux, asks psutil
elsewhere, and never walks over all processes. `busiest_processes` does, and is for naming a neighbour once
one is noticed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from probes import cgroups, page_cache
from probes.clock import Clock, MonotonicClock
from probes.gpus import gpu_states
from probes.records import Disturbance

if TYPE_CHECKING:
    import psutil

Number = TypeVar("Number", int, float)

_NAMED_PROCESSES = 3
_LEAST_SHARE = 0.05
"""CPUs' worth of time below which a process disturbs nobody."""

# Fields of /proc/PID/stat after the command's name, see proc_pid_stat(5), counted from its field 3.
_MAJOR_FAULTS, _USER_TICKS, _SYSTEM_TICKS, _START, _CPU = 9, 11, 12, 19, 36
_BUSY_FIELDS = (0, 1, 2, 5, 6)
"""user, nice, system, irq, softirq in the first line of /proc/stat; guest time is part of user."""
_STEAL_FIELD = 7


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _System:
    """Counters of the whole machine since it started; None: not told here."""

    busy_s: float | None = None
    steal_s: float | None = None
    total_s: float | None = None
    swap_in_bytes: int | None = None
    memory_available_bytes: int | None = None
    throttling: tuple[cgroups.Throttling, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Worker:
    """Counters of the worker since it started; None: not told here, or the worker has gone."""

    cpu_s: float | None = None
    major_faults: int | None = None
    read_bytes: int | None = None
    cpu_clock_hz: float | None = None
    cpu_clock_max_hz: float | None = None
    started: float | None = None
    """Tells another process apart that got the same number."""


class Sampler:
    """Differences between one moment and the next; made when the worker starts.

    `companions` are processes that compute for the worker: servers of remote devices on this machine.
    `clock` gives the times that the samples carry, `root` is where /proc and /sys are looked for.
    """

    def __init__(
        self,
        worker_pid: int,
        *,
        companions: Collection[int] = (),
        clock: Clock | None = None,
        root: Path = Path("/"),
        use_proc: bool | None = None,
    ) -> None:
        self._pid = worker_pid
        self._companions = companions
        self._clock: Clock = clock or MonotonicClock()
        self._root = root
        self._use_proc = sys.platform.startswith("linux") if use_proc is None else use_proc
        self._cpu_groups = cgroups.groups("cpu", root) if self._use_proc else ()
        self._system, self._worker, self._own_s, self._time_ns = self._read()
        self._companions_s = self._read_companions()

    def sample(self, phase: str) -> Disturbance:
        """What happened since the sample before, or since the sampler was made.

        `phase` says what the worker was doing. Never raises for a worker that has ended: what only it
        could tell is None then.
        """
        system, worker, own_s, time_ns = self._read()
        companions_s = self._read_companions()
        if worker.started != self._worker.started:
            worker = _Worker()
        earlier, duration_ns = self._worker, time_ns - self._time_ns
        disturbance = Disturbance(
            started_ns=self._time_ns,
            duration_ns=duration_ns,
            phase=phase,
            foreign_cpus=_foreign_cpus(
                _growth(self._system.busy_s, system.busy_s),
                _growth(earlier.cpu_s, worker.cpu_s),
                own_s - self._own_s + _growth_of_all(self._companions_s, companions_s),
                duration_ns / 1e9,
            ),
            steal_fraction=_share(
                _growth(self._system.steal_s, system.steal_s), _growth(self._system.total_s, system.total_s)
            ),
            throttled_fraction=_throttled_fraction(self._system.throttling, system.throttling),
            swap_in_bytes=_growth(self._system.swap_in_bytes, system.swap_in_bytes),
            major_faults=_growth(earlier.major_faults, worker.major_faults),
            disk_read_bytes=_growth(earlier.read_bytes, worker.read_bytes),
            memory_available_bytes=system.memory_available_bytes,
            cpu_clock_hz=worker.cpu_clock_hz,
            gpus=gpu_states((self._pid,), self._root),
            cpu_clock_max_hz=worker.cpu_clock_max_hz,
        )
        self._system, self._worker, self._own_s, self._time_ns = system, worker, own_s, time_ns
        self._companions_s = companions_s
        return disturbance

    def _read(self) -> tuple[_System, _Worker, float, int]:
        time_ns = self._clock.now_ns()
        own_s = time.process_time()
        if self._use_proc:
            system = _linux_system(self._root, self._cpu_groups)
            return system, _linux_worker(self._root, self._pid), own_s, time_ns
        return _portable_system(), _portable_worker(self._pid), own_s, time_ns

    def _read_companions(self) -> dict[int, float]:
        """CPU time of those that are there and may be asked."""
        found = {
            pid: _linux_worker(self._root, pid) if self._use_proc else _portable_worker(pid)
            for pid in self._companions
        }
        return {pid: process.cpu_s for pid, process in found.items() if process.cpu_s is not None}


def busiest_processes(exclude: Collection[int], interval_s: float = 0.2) -> list[tuple[str, float]] | None:
    """Names and CPUs' worth of time of the busiest other processes, busiest first, at most three. None where
    the system does not list its processes.

    Costs a walk over all processes, twice, and `interval_s` of waiting: not for use while a worker
    measures. `exclude` are process ids that are ours. Names are untrusted text.
    """
    import psutil

    try:
        before = _cpu_seconds_by_process(exclude)
        started = time.perf_counter()
        time.sleep(interval_s)
        after = _cpu_seconds_by_process(exclude)
    except (OSError, IndexError, psutil.Error):  # no /proc, or an empty one
        return None
    elapsed = time.perf_counter() - started
    shares = {
        process: (after[process] - before[process]) / elapsed for process in after.keys() & before.keys()
    }
    named = []
    for process in sorted(shares, key=shares.__getitem__, reverse=True)[:_NAMED_PROCESSES]:
        if shares[process] < _LEAST_SHARE:
            break
        try:
            named.append((process.name(), shares[process]))
        except psutil.Error:
            named.append((f"process {process.pid}", shares[process]))
    return named


# --- differences ---------------------------------------------------------------------------------


def _growth(before: Number | None, after: Number | None) -> Number | None:
    """How far a counter rose; None where it is not told, or has begun anew."""
    if before is None or after is None or after < before:
        return None
    return after - before


def _growth_of_all(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Of the processes that are there at both times."""
    return sum(max(0.0, after[pid] - before[pid]) for pid in before.keys() & after.keys())


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else min(1.0, part / whole)


def _foreign_cpus(
    busy_s: float | None, worker_s: float | None, own_s: float, elapsed_s: float
) -> float | None:
    """CPUs' worth of time that was neither the worker's nor ours: `own_s` is this process's and companions'.

    Never below zero: the system counts in ticks (often 10 ms), our own time is exact.
    """
    if busy_s is None or worker_s is None or elapsed_s <= 0:
        return None
    return max(0.0, busy_s - worker_s - own_s) / elapsed_s


def _throttled_fraction(
    before: tuple[cgroups.Throttling, ...], after: tuple[cgroups.Throttling, ...]
) -> float | None:
    """Share of the enforcement periods in which a group of ours was stopped: of the worst level.

    Periods and not the kernel's throttled time, which adds up over all CPUs. No period: no quota at work.
    """
    if not after or len(before) != len(after):
        return None
    shares = []
    for earlier, later in zip(before, after, strict=True):
        periods = later.periods - earlier.periods
        shares.append((later.throttled - earlier.throttled) / periods if periods > 0 else 0.0)
    return min(1.0, max(0.0, *shares))


# --- counters on Linux ---------------------------------------------------------------------------


def _linux_system(root: Path, cpu_groups: tuple[Path, ...]) -> _System:
    ticks = [int(field) for field in _bytes(root / "proc/stat").partition(b"\n")[0].split()[1:9]]
    per_s = os.sysconf("SC_CLK_TCK")
    known = len(ticks) > _STEAL_FIELD
    swapped = _value(_bytes(root / "proc/vmstat"), b"pswpin ")
    available = _value(_bytes(root / "proc/meminfo"), b"MemAvailable:")
    return _System(
        busy_s=sum(ticks[field] for field in _BUSY_FIELDS) / per_s if known else None,
        steal_s=ticks[_STEAL_FIELD] / per_s if known else None,
        total_s=sum(ticks) / per_s if known else None,
        swap_in_bytes=None if swapped is None else swapped * mmap.PAGESIZE,
        memory_available_bytes=None if available is None else available * 1024,
        throttling=cgroups.throttling(cpu_groups),
    )


def _linux_worker(root: Path, pid: int) -> _Worker:
    # The command's name stands in parentheses and may itself hold spaces and parentheses.
    fields = _bytes(root / f"proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) <= _CPU:
        return _Worker()
    clocks = root / f"sys/devices/system/cpu/cpu{int(fields[_CPU])}/cpufreq"
    return _Worker(
        cpu_s=(int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / os.sysconf("SC_CLK_TCK"),
        major_faults=int(fields[_MAJOR_FAULTS]),
        read_bytes=page_cache.process_read_bytes(pid, root),
        cpu_clock_hz=_clock_hz(clocks / "scaling_cur_freq"),
        cpu_clock_max_hz=_clock_hz(clocks / "cpuinfo_max_freq"),
        started=float(fields[_START]),
    )


def _clock_hz(path: Path) -> float | None:
    """The kernel counts in kHz; virtual machines have no such file."""
    text = _bytes(path).strip()
    return int(text) * 1000.0 if text.isdigit() else None


def _value(table: bytes, name: bytes) -> int | None:
    """The number behind a name at the start of a line."""
    _, found, rest = (b"\n" + table).partition(b"\n" + name)
    number = rest[:40].split(maxsplit=1)[:1]
    return int(number[0]) if found and number and number[0].isdigit() else None


def _bytes(path: Path) -> bytes:
    """The content of a file of the kernel; empty where there is none, as when the process has gone."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


# --- counters elsewhere --------------------------------------------------------------------------


def _portable_system() -> _System:
    """psutil's counts. Its swap-in is left out: Windows has none, macOS counts reads of files in it."""
    import psutil

    times = psutil.cpu_times()
    busy_s = times.user + times.system + getattr(times, "nice", 0.0)
    return _System(busy_s=busy_s, memory_available_bytes=psutil.virtual_memory().available)


def _portable_worker(pid: int) -> _Worker:
    """psutil's counts. A clock is left out: other systems tell the nominal one."""
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return _Worker(
                cpu_s=times.user + times.system,
                major_faults=getattr(process.memory_info(), "pageins", None),
                started=process.create_time(),
            )
    except psutil.Error:  # ended, or not ours to ask
        return _Worker()


def _cpu_seconds_by_process(exclude: Collection[int]) -> dict[psutil.Process, float]:
    import psutil

    seconds = {}
    for process in psutil.process_iter():
        if process.pid in exclude:
            continue
        with contextlib.suppress(psutil.Error):  # ended in between, or not ours to ask
            times = process.cpu_times()
            seconds[process] = times.user + times.system
    return seconds
