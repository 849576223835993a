"""The sampler over a simulated /proc, and over this machine's own."""

from __future__ import annotations

import dataclasses
import functools
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml import Card, FakeNvml

from probes import disturbance, gpus
from probes.disturbance import Sampler, busiest_processes
from probes.nvml import NvidiaDriver
from probes.records import Disturbance

PID = 77
TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100

pytestmark = pytest.mark.skipif(not hasattr(os, "sysconf"), reason="counts in ticks as Unix systems do")


@dataclasses.dataclass
class SimulatedLinux:
    """A /proc whose counters a test moves; all of it in the units of the kernel. Also a clock."""

    root: Path
    time_ns: int = 1_000_000_000
    busy_ticks: int = 1000
    idle_ticks: int = 1000
    steal_ticks: int = 0
    worker_ticks: int = 100
    major_faults: int = 3
    read_bytes: int = 4096
    swapped_pages: int = 10
    periods: int = 50
    throttled: int = 0
    clock_khz: int | None = 3_000_000
    clock_max_khz: int = 4_000_000
    started: int = 500

    def now_ns(self) -> int:
        return self.time_ns

    def write(self) -> None:
        after_name = ["S", *["0"] * 49]
        after_name[9], after_name[11] = str(self.major_faults), str(self.worker_ticks)
        after_name[19] = str(self.started)
        after_name[36] = "1"
        times = f"{self.busy_ticks} 0 0 {self.idle_ticks} 0 0 0 {self.steal_ticks} 0 0"
        files = {
            "proc/stat": f"cpu  {times}\ncpu0 1 2 3\n",
            "proc/vmstat": f"nr_free 1\npswpin {self.swapped_pages}\npswpout 9\n",
            "proc/meminfo": "MemTotal: 8 kB\nMemAvailable:   4 kB\n",
            f"proc/{PID}/stat": f"{PID} (a (odd) name) {' '.join(after_name)}\n",
            f"proc/{PID}/io": f"rchar: 1\nread_bytes: {self.read_bytes}\n",
            "proc/self/cgroup": "0::/job\n",
            "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            "sys/fs/cgroup/job/cpu.stat": f"nr_periods {self.periods}\nnr_throttled {self.throttled}\n",
        }
        if self.clock_khz is not None:
            clocks = "sys/devices/system/cpu/cpu1/cpufreq"
            files[f"{clocks}/scaling_cur_freq"] = f"{self.clock_khz}\n"
            files[f"{clocks}/cpuinfo_max_freq"] = f"{self.clock_max_khz}\n"
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


@pytest.fixture
def linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedLinux:
    machine = SimulatedLinux(tmp_path)
    machine.write()
    monkeypatch.setattr(time, "process_time", lambda: 0.0)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    monkeypatch.setattr(gpus, "nvidia_driver", functools.lru_cache(NvidiaDriver))
    return machine


@pytest.fixture
def sampler(linux: SimulatedLinux) -> Sampler:
    return Sampler(PID, clock=linux, root=linux.root, use_proc=True)


def after(linux: SimulatedLinux, sampler: Sampler, seconds: float = 2.0) -> Disturbance:
    linux.time_ns += int(seconds * 1e9)
    linux.write()
    return sampler.sample("walk")


def test_a_quiet_interval_is_all_zeros(linux: SimulatedLinux, sampler: Sampler) -> None:
    linux.idle_ticks += 4 * TICKS_PER_S
    assert after(linux, sampler) == Disturbance(
        started_ns=1_000_000_000,
        duration_ns=2_000_000_000,
        phase="walk",
        foreign_cpus=0.0,
        steal_fraction=0.0,
        throttled_fraction=0.0,
        swap_in_bytes=0,
        major_faults=0,
        disk_read_bytes=0,
        memory_available_bytes=4096,
        cpu_clock_hz=3e9,
        gpus=(),
        cpu_clock_max_hz=4e9,
    )


def test_foreign_time_is_what_neither_the_worker_nor_we_used(
    linux: SimulatedLinux, sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "process_time", lambda: 0.5)
    linux.busy_ticks += 6 * TICKS_PER_S
    linux.worker_ticks += 3 * TICKS_PER_S
    # 6 s busy - 3 s of the worker - 0.5 s of ours, over 2 s
    assert after(linux, sampler).foreign_cpus == pytest.approx(1.25)


def test_rounding_to_ticks_never_makes_it_negative(linux: SimulatedLinux, sampler: Sampler) -> None:
    linux.worker_ticks += 1
    assert after(linux, sampler).foreign_cpus == 0.0


def test_steal_is_a_share_of_all_time(linux: SimulatedLinux, sampler: Sampler) -> None:
    linux.busy_ticks += 60
    linux.idle_ticks += 20
    linux.steal_ticks += 20
    assert after(linux, sampler).steal_fraction == pytest.approx(0.2)


def test_throttling_is_a_share_of_the_periods(linux: SimulatedLinux, sampler: Sampler) -> None:
    linux.periods, linux.throttled = 70, 5
    assert after(linux, sampler).throttled_fraction == pytest.approx(0.25)


def test_paging_and_reading(linux: SimulatedLinux, sampler: Sampler) -> None:
    linux.swapped_pages, linux.major_faults, linux.read_bytes = 12, 10, 8192
    seen = after(linux, sampler)
    assert (seen.swap_in_bytes, seen.major_faults, seen.disk_read_bytes) == (2 * mmap.PAGESIZE, 7, 4096)


def test_gpus_are_asked_at_each_sample_through_one_opened_driver(
    linux: SimulatedLinux, sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeNvml(Card(pids=(PID,)))
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(gpus, "nvidia_driver", functools.lru_cache(NvidiaDriver))
    first = after(linux, sampler)
    fake.cards[0].busy = 10
    assert [s.gpus[0].utilization for s in (first, after(linux, sampler))] == [0.9, 0.1]
    assert first.gpus[0].foreign_processes == 0  # the worker itself is no neighbour
    assert fake.opened == 1


def test_each_sample_counts_from_the_one_before(linux: SimulatedLinux, sampler: Sampler) -> None:
    linux.major_faults = 10
    assert after(linux, sampler).major_faults == 7
    second = after(linux, sampler, seconds=1.0)
    assert (second.major_faults, second.started_ns, second.duration_ns) == (0, 3_000_000_000, 1_000_000_000)


def test_a_worker_that_has_gone_leaves_its_fields_unknown(linux: SimulatedLinux, sampler: Sampler) -> None:
    linux.busy_ticks += TICKS_PER_S
    linux.time_ns += 1_000_000_000
    linux.write()
    (linux.root / f"proc/{PID}/stat").unlink()
    seen = sampler.sample("walk")
    assert (seen.foreign_cpus, seen.major_faults, seen.disk_read_bytes, seen.cpu_clock_hz) == (None,) * 4
    assert seen.steal_fraction == 0.0
    assert seen.memory_available_bytes == 4096


def test_another_process_with_the_same_number_is_not_the_worker(
    linux: SimulatedLinux, sampler: Sampler
) -> None:
    linux.started, linux.major_faults = 900, 50
    assert after(linux, sampler).major_faults is None
    linux.major_faults = 60
    assert after(linux, sampler).major_faults is None


def test_a_counter_that_began_anew_is_unknown(linux: SimulatedLinux, sampler: Sampler) -> None:
    linux.swapped_pages = 0
    assert after(linux, sampler).swap_in_bytes is None


def test_no_time_between_two_samples(linux: SimulatedLinux, sampler: Sampler) -> None:
    seen = after(linux, sampler, seconds=0)
    assert seen.foreign_cpus is None
    assert seen.steal_fraction is None


def test_a_linux_that_tells_nothing(tmp_path: Path) -> None:
    seen = Sampler(PID, root=tmp_path, use_proc=True).sample("load")
    told = {field.name for field in dataclasses.fields(seen) if getattr(seen, field.name) not in (None, ())}
    assert told == {"started_ns", "duration_ns", "phase"}


@pytest.fixture
def spinner() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield child
    child.kill()
    child.wait()


@pytest.mark.usefixtures("spinner")
@pytest.mark.parametrize("use_proc", [None, False])
def test_this_machine(use_proc: bool | None) -> None:
    sampler = Sampler(os.getpid(), use_proc=use_proc)
    time.sleep(0.3)
    seen = sampler.sample("walk")
    assert seen.foreign_cpus is not None
    assert seen.foreign_cpus > 0.0  # the spinner
    assert seen.memory_available_bytes is not None
    assert seen.duration_ns >= 300_000_000


@pytest.mark.parametrize("use_proc", [None, False])
def test_a_real_worker_that_ends(use_proc: bool | None) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    sampler = Sampler(child.pid, use_proc=use_proc)
    child.communicate(b"\n")
    seen = sampler.sample("walk")
    assert seen.foreign_cpus is None
    assert seen.major_faults is None


@pytest.mark.usefixtures("spinner")
def test_the_busiest_process_comes_first() -> None:
    busiest = busiest_processes({os.getpid()}, interval_s=0.3)
    assert busiest is not None
    shares = [share for _, share in busiest]
    assert 1 <= len(busiest) <= 3
    assert shares == sorted(shares, reverse=True)


def test_excluded_processes_are_not_named(
    spinner: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    import psutil

    monkeypatch.setattr(psutil, "process_iter", lambda: iter([psutil.Process(spinner.pid)]))
    assert busiest_processes(set(), interval_s=0.2) not in (None, [])
    assert busiest_processes({spinner.pid}, interval_s=0.0) == []


def test_processes_that_end_meanwhile_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    class Ended:
        pid = 1

        def cpu_times(self) -> None:
            raise psutil.NoSuchProcess(1)

    monkeypatch.setattr(psutil, "process_iter", lambda: iter([Ended()]))
    assert busiest_processes(set(), interval_s=0.0) == []
    assert disturbance._cpu_seconds_by_process(set()) == {}


@pytest.mark.parametrize("problem", [FileNotFoundError("/proc"), IndexError("list index out of range")])
def test_a_system_that_lists_no_processes(problem: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    def refuse() -> None:
        raise problem

    monkeypatch.setattr(psutil, "process_iter", refuse)
    assert busiest_processes(set(), interval_s=0.0) is None
