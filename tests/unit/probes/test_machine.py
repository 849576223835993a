"""Facts of simulated machines: Linux from files below the test's folder, others from scripted answers."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from fake_nvml import Card, FakeNvml

from probes import gpus, machine
from probes.machine import default_threads, read_machine_facts
from probes.nvml import NvidiaDriver
from probes.records import MachineFacts

GIB = 2**30
CPUS = "sys/devices/system/cpu"


@pytest.fixture(autouse=True)
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Without cards; a test may add some before it reads the facts."""
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(gpus, "nvidia_driver", functools.lru_cache(NvidiaDriver))
    return fake


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def linux(root: Path, cores: Iterable[str], **capacities: int) -> Path:
    """A Linux whose cores are given as lists of sibling CPUs: `["0,4", "1,5"]`."""
    cpus: set[int] = set()
    for siblings in cores:
        for cpu in map(int, siblings.split(",")):
            cpus.add(cpu)
            write(root, f"{CPUS}/cpu{cpu}/topology/thread_siblings_list", f"{siblings}\n")
            if capacities:
                write(root, f"{CPUS}/cpu{cpu}/cpu_capacity", f"{capacities[f'cpu{cpu}']}\n")
    write(root, f"{CPUS}/online", f"0-{max(cpus)}\n")
    return root


def read(root: Path, affinity: Iterable[int] = range(64)) -> MachineFacts:
    return read_machine_facts(root, system="Linux", affinity=frozenset(affinity))


class TestCores:
    def test_every_core_of_a_plain_machine(self, tmp_path: Path) -> None:
        facts = read(linux(tmp_path, ["0", "1", "2", "3"]))
        assert (facts.logical_cpus, facts.physical_cpus, facts.usable_cpus) == (4, 4, 4)
        assert facts.usable_cpus_reason == "4 cores"

    def test_two_threads_of_a_core_count_once(self, tmp_path: Path) -> None:
        facts = read(linux(tmp_path, ["0,4", "1,5", "2,6", "3,7"]))
        assert (facts.logical_cpus, facts.physical_cpus, facts.usable_cpus) == (8, 4, 4)
        assert facts.usable_cpus_reason == "4 cores with 8 logical CPUs"

    def test_affinity_to_both_threads_of_one_core(self, tmp_path: Path) -> None:
        facts = read(linux(tmp_path, ["0,4", "1,5", "2,6", "3,7"]), affinity={0, 4})
        assert facts.usable_cpus == 1
        assert facts.physical_cpus == 4
        assert facts.usable_cpus_reason == "affinity: 2 of 8 logical CPUs"

    def test_intel_hybrid_uses_performance_cores(self, tmp_path: Path) -> None:
        linux(tmp_path, ["0,1", "2,3", "4", "5", "6", "7"])
        write(tmp_path, "sys/devices/cpu_core/cpus", "0-3\n")
        write(tmp_path, "sys/devices/cpu_atom/cpus", "4-7\n")
        facts = read(tmp_path)
        assert (facts.logical_cpus, facts.physical_cpus, facts.usable_cpus) == (8, 6, 2)
        assert facts.usable_cpus_reason == "2 performance cores of 8 logical CPUs"

    def test_a_process_bound_to_efficiency_cores_has_those(self, tmp_path: Path) -> None:
        linux(tmp_path, ["0,1", "2,3", "4", "5", "6", "7"])
        write(tmp_path, "sys/devices/cpu_core/cpus", "0-3\n")
        assert read(tmp_path, affinity={4, 5, 6}).usable_cpus == 3

    def test_arm_tells_by_capacity(self, tmp_path: Path) -> None:
        capacities = {"cpu0": 250, "cpu1": 250, "cpu2": 870, "cpu3": 1024}
        facts = read(linux(tmp_path, ["0", "1", "2", "3"], **capacities))
        assert facts.usable_cpus == 2

    def test_or_by_top_clock(self, tmp_path: Path) -> None:
        linux(tmp_path, ["0", "1", "2"])
        for cpu, khz in enumerate((5_200_000, 5_000_000, 1_800_000)):
            write(tmp_path, f"{CPUS}/cpu{cpu}/cpufreq/cpuinfo_max_freq", f"{khz}\n")
        assert read(tmp_path).usable_cpus == 2

    @pytest.mark.parametrize(
        ("quota", "usable", "reason"),
        [
            ("150000 100000", 1, "cgroup quota 1.5 CPUs"),
            ("50000 100000", 1, "cgroup quota 0.5 CPUs"),
            ("300000 100000", 3, "cgroup quota 3 CPUs"),
            ("800000 100000", 4, "4 cores"),
            ("max 100000", 4, "4 cores"),
        ],
    )
    def test_a_quota_grants_whole_threads_only(
        self, tmp_path: Path, quota: str, usable: int, reason: str
    ) -> None:
        linux(tmp_path, ["0", "1", "2", "3"])
        write(tmp_path, "proc/self/cgroup", "0::/job\n")
        write(tmp_path, "proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        write(tmp_path, "sys/fs/cgroup/job/cpu.max", quota)
        facts = read(tmp_path)
        assert (facts.usable_cpus, facts.usable_cpus_reason) == (usable, reason)
        assert default_threads(facts) == usable

    def test_without_sysfs_the_affinity_is_what_is_known(self, tmp_path: Path) -> None:
        facts = read(tmp_path, affinity={0, 1, 2})
        assert (facts.logical_cpus, facts.physical_cpus, facts.usable_cpus) == (3, None, 3)
        assert "share a core" in facts.unknown["physical_cpus"]


class TestMemory:
    MEMINFO = (
        "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\nSwapTotal: 2048 kB\nSwapFree: 1024 kB\nHuge: x\n"
    )

    def test_of_the_system(self, tmp_path: Path) -> None:
        write(tmp_path, "proc/meminfo", self.MEMINFO)
        facts = read(tmp_path)
        assert facts.memory_bytes == 8 * GIB
        assert facts.memory_available_bytes == 4 * GIB
        assert facts.swap_used_bytes == 2**20
        assert facts.memory_limit_bytes is None
        assert facts.unknown["memory_limit_bytes"] == "no control group limits memory"

    def test_a_control_group_cuts_what_is_available(self, tmp_path: Path) -> None:
        write(tmp_path, "proc/meminfo", self.MEMINFO)
        write(tmp_path, "proc/self/cgroup", "0::/job\n")
        write(tmp_path, "proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        write(tmp_path, "sys/fs/cgroup/job/memory.max", str(2 * GIB))
        write(tmp_path, "sys/fs/cgroup/job/memory.current", str(GIB))
        facts = read(tmp_path)
        assert facts.memory_limit_bytes == 2 * GIB
        assert facts.memory_available_bytes == GIB

    def test_a_limit_of_the_process_cuts_it_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        resource = pytest.importorskip("resource")
        write(tmp_path, "proc/meminfo", self.MEMINFO)
        write(tmp_path, "proc/self/statm", f"{GIB // resource.getpagesize()} 1 1 1 0 1 0")
        monkeypatch.setattr(resource, "getrlimit", lambda _kind: (3 * GIB, resource.RLIM_INFINITY))
        assert read(tmp_path).memory_available_bytes == 2 * GIB  # 3 GiB, of which this process has 1
        monkeypatch.setattr(resource, "getrlimit", lambda _kind: (resource.RLIM_INFINITY,) * 2)
        assert read(tmp_path).memory_available_bytes == 4 * GIB

    def test_what_is_missing_is_none_with_a_reason(self, tmp_path: Path) -> None:
        write(tmp_path, "proc/meminfo", "MemTotal: 1024 kB\n")
        facts = read(tmp_path)
        missing = {name for name in facts.unknown if name.startswith(("memory", "swap"))}
        assert missing == {"memory_available_bytes", "memory_limit_bytes", "swap_used_bytes"}


class TestNames:
    @pytest.mark.parametrize(
        ("cpuinfo", "name"),
        [
            ("processor : 0\nmodel name\t: Some CPU @ 2GHz\n", "Some CPU @ 2GHz"),
            ("processor : 0\nHardware : Some SoC\n", "Some SoC"),
            ("processor : 0\n", None),
        ],
    )
    def test_of_the_processor(self, tmp_path: Path, cpuinfo: str, name: str | None) -> None:
        write(tmp_path, "proc/cpuinfo", cpuinfo)
        facts = read(tmp_path)
        assert facts.cpu_name == name
        assert ("cpu_name" in facts.unknown) == (name is None)

    def test_of_nvidia_cards(self, tmp_path: Path, nvml: FakeNvml) -> None:
        nvml.cards = [Card(), Card(name="GPU B")]
        facts = read(tmp_path)
        assert facts.gpu_names == ("GPU A", "GPU B")
        assert [state.utilization for state in facts.gpu_states] == [0.9, 0.9]
        assert "gpu_names" not in facts.unknown
        assert nvml.opened == 1

    def test_without_a_driver_there_is_a_reason(self, tmp_path: Path) -> None:
        facts = read(tmp_path)
        assert (facts.gpu_names, facts.gpus, facts.gpu_states) == ((), (), ())
        assert facts.unknown["gpu_names"] == "no NVIDIA driver answers (library not found)"

    def test_of_amd_cards_with_memory_of_their_own(self, tmp_path: Path) -> None:
        for card, vram in (("card0", 16 * GIB), ("card1", 512 * 2**20)):
            folder = f"sys/class/drm/{card}/device"
            write(tmp_path, f"{folder}/vendor", "0x1002\n")
            write(tmp_path, f"{folder}/device", "0x744c\n")
            write(tmp_path, f"{folder}/mem_info_vram_total", f"{vram}\n")
        write(tmp_path, "sys/class/drm/card2/device/vendor", "0x8086\n")
        assert read(tmp_path).gpu_names == ("AMD GPU 0x744c",)


class TestOtherSystems:
    @pytest.fixture(autouse=True)
    def _psutil(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import psutil

        monkeypatch.setattr(psutil, "cpu_count", lambda **_: 8)
        monkeypatch.setattr(machine, "_portable_affinity", lambda: None)

    def test_macos_counts_performance_cores(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = {"hw.perflevel0.physicalcpu": "6", "machdep.cpu.brand_string": "Apple Silicon"}
        monkeypatch.setattr(machine, "_sysctl", answers.get)
        facts = read_machine_facts(system="Darwin")
        assert (facts.usable_cpus, facts.physical_cpus) == (6, 8)
        assert facts.usable_cpus_reason == "6 performance cores of 8 cores"
        assert facts.cpu_name == "Apple Silicon"
        assert facts.memory_limit_bytes is None

    def test_an_older_mac_has_one_kind_of_core(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(machine, "_sysctl", lambda _: None)
        facts = read_machine_facts(system="Darwin")
        assert (facts.usable_cpus, facts.usable_cpus_reason) == (8, "8 cores")
        assert facts.unknown["cpu_name"] == "Darwin names no processor here"

    def test_windows_keeps_to_the_affinity(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(machine, "_portable_affinity", lambda: 3)
        facts = read_machine_facts(system="Windows")
        assert (facts.usable_cpus, facts.usable_cpus_reason) == (3, "affinity: 3 of 8 logical CPUs")
        assert facts.memory_bytes is not None
        assert facts.memory_bytes > 0


def test_this_machine_answers() -> None:
    facts = read_machine_facts()
    assert facts.usable_cpus >= 1
    assert facts.python.endswith(".".join(map(str, sys.version_info[:3])))
    for field in dataclasses.fields(facts):
        if getattr(facts, field.name) is None:
            assert facts.unknown[field.name]
