"""What a checkup sees: a simulated Linux, and systems without /proc, sensors or tools."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from probes import checkup
from probes.checkup import read_checkup
from probes.records import Checkup

CPUS = "sys/devices/system/cpu"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "busiest_processes", lambda _exclude: [("busy", 0.7)])
    monkeypatch.setattr(psutil, "sensors_battery", lambda: None, raising=False)
    monkeypatch.setattr(psutil, "sensors_temperatures", dict, raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def look(root: Path, system: str = "Linux", answers: dict[str, str] | None = None) -> Checkup:
    def ask(command: Sequence[str]) -> str | None:
        return (answers or {}).get(command[0])

    return read_checkup(root, root=root, system=system, ask=ask)


def test_a_linux_that_tells_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        tmp_path,
        {
            f"{CPUS}/cpu0/cpufreq/scaling_governor": "powersave",
            f"{CPUS}/cpu1/cpufreq/scaling_governor": "performance",
            f"{CPUS}/cpu0/cpufreq/scaling_driver": "intel_pstate",
            f"{CPUS}/cpu0/cpufreq/energy_performance_preference": "balance_power",
            f"{CPUS}/intel_pstate/no_turbo": "1",
            "proc/cpuinfo": "processor : 0\nflags : fpu avx2 hypervisor\n",
            "proc/self/cgroup": "0::/job",
            "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            "sys/fs/cgroup/job/cpu.max": "150000 100000",
            "sys/fs/cgroup/job/cpu.stat": "nr_periods 40\nnr_throttled 10",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
            "run/.containerenv": "",
        },
    )
    reading = types.SimpleNamespace(current=71.0, high=80.0, critical=100.0)
    cooler = types.SimpleNamespace(current=55.0, high=80.0, critical=100.0)
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: {"coretemp": [cooler, reading], "acpitz": []})
    monkeypatch.setattr(
        psutil, "sensors_battery", lambda: types.SimpleNamespace(power_plugged=False, percent=50)
    )
    facts = look(tmp_path)
    assert facts.governor == "powersave, performance"
    assert (facts.clock_driver, facts.energy_preference) == ("intel_pstate", "balance_power")
    assert (facts.turbo, facts.on_battery) == (False, True)
    assert (facts.temperature_c, facts.temperature_limit_c) == (71.0, 80.0)
    assert (facts.cpu_quota, facts.throttled_fraction) == (1.5, 0.25)
    assert (facts.container, facts.virtual_machine) == ("podman", True)
    assert facts.cpu_features == ("fpu", "avx2", "hypervisor")
    assert facts.huge_pages == "madvise"
    assert [(one.name, one.cpus) for one in facts.neighbours] == [("busy", 0.7)]
    assert facts.unknown == {}


def test_a_linux_that_tells_nothing_has_its_reasons(tmp_path: Path) -> None:
    facts = look(tmp_path)
    assert (facts.governor, facts.turbo, facts.cpu_features, facts.temperature_c) == (None,) * 4
    assert facts.unknown.keys() == {"governor", "turbo", "cpu_features", "virtual_machine", "temperature_c"}
    assert facts.on_battery is False  # there is none
    assert (facts.cpu_quota, facts.container) == (None, None)
    assert facts.disk_free_bytes is not None


@pytest.mark.parametrize(
    ("system", "answers", "plan"),
    [
        ("Windows", {"powercfg": "Power Scheme GUID: A1841308-3541-4fab-bc81-f71556f20b4a"}, "power saver"),
        ("Windows", {"powercfg": "GUID: 12345678-0000-0000-0000-000000000000 (Mine)"}, None),
        ("Windows", {}, None),
        ("Darwin", {"pmset": "System-wide power settings:\n lowpowermode         1\n"}, "low power"),
        ("Darwin", {"pmset": " lowpowermode  0\n"}, "automatic"),
        ("Darwin", {}, None),
    ],
)
def test_other_systems_tell_their_power_plan(
    tmp_path: Path, system: str, answers: dict[str, str], plan: str | None
) -> None:
    facts = look(tmp_path, system, answers)
    assert facts.power_plan == plan
    assert ("power_plan" in facts.unknown) == (plan is None)
    for field in ("governor", "turbo", "cpu_features", "virtual_machine"):
        assert getattr(facts, field) is None
        assert facts.unknown[field].startswith(system)


def test_a_psutil_without_sensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(psutil, "sensors_battery")
    monkeypatch.delattr(psutil, "sensors_temperatures")
    facts = look(tmp_path, "Windows")
    assert (facts.on_battery, facts.temperature_c) == (None, None)
    assert {"on_battery", "temperature_c"} <= facts.unknown.keys()


def test_a_system_that_lists_no_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "busiest_processes", lambda _exclude: None)
    facts = look(tmp_path)
    assert facts.neighbours == ()
    assert facts.unknown["neighbours"] == "the system does not list its processes here"


def test_a_tool_that_is_not_there_is_no_answer() -> None:
    assert checkup._ask(["llmphase-no-such-tool"]) is None


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({".dockerenv": ""}, "docker"),
        ({"proc/sys/kernel/osrelease": "5.15.0-microsoft-standard-WSL2"}, "wsl"),
        ({"proc/1/cgroup": "1:name=systemd:/lxc/box"}, "lxc"),
    ],
)
def test_containers(tmp_path: Path, files: dict[str, str], kind: str) -> None:
    write(tmp_path, files)
    assert look(tmp_path).container == kind


def test_the_disk_is_asked_though_the_folder_is_yet_to_be_made(tmp_path: Path) -> None:
    facts = read_checkup(tmp_path / "not" / "yet", root=tmp_path, system="Linux")
    assert facts.disk_free_bytes is not None


def test_this_machine_answers(tmp_path: Path) -> None:
    facts = read_checkup(tmp_path)
    told = {field.name for field in dataclasses.fields(facts) if getattr(facts, field.name) is not None}
    assert {"page_bytes", "disk_free_bytes", "neighbours"} <= told
    assert not told & facts.unknown.keys()
