"""The machine as it is before measuring: what may disturb or slow a run, read from the system.

On Linux the kernel's files are read below a root that tests can replace; elsewhere psutil and the system's
own tools answer. What can not be known is None, with the reason in `Checkup.unknown`; nothing here raises.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from probes import cgroups
from probes.disturbance import busiest_processes
from probes.records import Checkup, Neighbour

_CPUS = "sys/devices/system/cpu"
_POWER_PLANS = {
    "8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c": "high performance",
    "381b4222-f694-41f0-9685-ff5bb260df2e": "balanced",
    "a1841308-3541-4fab-bc81-f71556f20b4a": "power saver",
}
"""Windows' own power plans, by the numbers that `powercfg` prints."""
_TOOL_TIMEOUT_S = 5.0
_CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal", "soc_thermal")
_CONTAINER_FILES = ((".dockerenv", "docker"), ("run/.containerenv", "podman"))

Ask = Callable[[Sequence[str]], str | None]
"""Runs a tool of the system; its output, None where there is no such tool."""


def read_checkup(
    folder: Path,
    *,
    root: Path = Path("/"),
    system: str | None = None,
    exclude: Collection[int] = (),
    ask: Ask | None = None,
) -> Checkup:
    """Look at this machine, or at a simulated one.

    `folder` is where runs are saved, `root` where Linux's /proc and /sys are looked for, `system` a name as
    `platform.system` gives it, `exclude` are process ids that are ours. Takes a fifth of a second: other
    processes are watched for that long.
    """
    system = system or platform.system()
    unknown: dict[str, str] = {}
    is_linux = system == "Linux"
    groups = cgroups.groups("cpu", root) if is_linux else ()
    temperature, limit = _temperature(unknown)
    features = _features(root) if is_linux else None
    facts = Checkup(
        governor=_each_cpu(root, "cpufreq/scaling_governor") if is_linux else None,
        clock_driver=_each_cpu(root, "cpufreq/scaling_driver") if is_linux else None,
        energy_preference=_each_cpu(root, "cpufreq/energy_performance_preference") if is_linux else None,
        power_plan=None if is_linux else _power_plan(system, ask or _ask),
        turbo=_turbo(root) if is_linux else None,
        on_battery=_on_battery(unknown),
        temperature_c=temperature,
        temperature_limit_c=limit,
        neighbours=_neighbours(exclude, unknown),
        cpu_quota=cgroups.cpu_quota(groups),
        throttled_fraction=_throttled(groups),
        container=_container(root) if is_linux else None,
        virtual_machine=None if features is None else "hypervisor" in features,
        cpu_features=features,
        page_bytes=mmap.PAGESIZE,
        huge_pages=_chosen(_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        disk_free_bytes=_disk_free(folder, unknown),
        unknown=unknown,
    )
    reasons = _reasons(system)
    unknown.update(
        {name: why for name, why in reasons.items() if getattr(facts, name) is None and name not in unknown}
    )
    return facts


def _reasons(system: str) -> dict[str, str]:
    if system == "Linux":
        frequency = "this kernel sets no clock (usual in virtual machines)"
        return {
            "governor": frequency,
            "turbo": frequency,
            "cpu_features": "the kernel does not list them",
            "virtual_machine": "the kernel does not list the processor's features",
        }
    reason = f"{system} does not tell"
    return {
        "governor": f"{system} has none",
        "turbo": reason,
        "power_plan": reason,
        "cpu_features": reason,
        "virtual_machine": reason,
    }


# --- clocks and power ----------------------------------------------------------------------------


def _each_cpu(root: Path, name: str) -> str | None:
    """The values over all CPUs, each once."""
    texts = [_text(cpu / name) for cpu in sorted((root / _CPUS).glob("cpu[0-9]*"))]
    return ", ".join(dict.fromkeys(filter(None, texts))) or None


def _turbo(root: Path) -> bool | None:
    """Whether clocks above the nominal one are allowed."""
    off = _text(root / _CPUS / "intel_pstate/no_turbo")
    if off in ("0", "1"):
        return off == "0"
    on = _text(root / _CPUS / "cpufreq/boost")
    return on == "1" if on in ("0", "1") else None


def _power_plan(system: str, ask: Ask) -> str | None:
    if system == "Windows":
        text = (ask(["powercfg", "/getactivescheme"]) or "").lower()
        return next((name for number, name in _POWER_PLANS.items() if number in text), None)
    if system == "Darwin":
        for line in (ask(["pmset", "-g"]) or "").splitlines():
            name, _, value = line.strip().partition(" ")
            if name in ("lowpowermode", "powermode"):
                return "low power" if value.strip() == "1" else "automatic"
    return None


def _ask(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TOOL_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _on_battery(unknown: dict[str, str]) -> bool | None:
    """False too where there is no battery."""
    import psutil

    sensor = getattr(psutil, "sensors_battery", None)
    if sensor is None:
        unknown["on_battery"] = "this system does not tell"
        return None
    try:
        battery = sensor()
    except (OSError, RuntimeError, ValueError) as error:
        unknown["on_battery"] = f"this system does not tell ({error})"
        return None
    if battery is None:
        return False
    if battery.power_plugged is None:
        unknown["on_battery"] = "the battery does not tell whether it is charged"
        return None
    return not battery.power_plugged


def _temperature(unknown: dict[str, str]) -> tuple[float | None, float | None]:
    """The hottest of the processor's sensors, and the temperature at which that one slows down."""
    import psutil

    sensors = getattr(psutil, "sensors_temperatures", None)
    found = {}
    if sensors is not None:
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            found = sensors()
    readings = [
        (entry.current, entry.high or entry.critical)
        for name in _CPU_SENSORS
        for entry in found.get(name, ())
        if entry.current and entry.current > 0
    ]
    if not readings:
        unknown["temperature_c"] = "this system shows no sensor of the processor"
        return None, None
    return max(readings, key=lambda reading: reading[0])


# --- others --------------------------------------------------------------------------------------


def _neighbours(exclude: Collection[int], unknown: dict[str, str]) -> tuple[Neighbour, ...]:
    busiest = busiest_processes({os.getpid(), *exclude})
    if busiest is None:
        unknown["neighbours"] = "the system does not list its processes here"
        return ()
    return tuple(Neighbour(name=name, cpus=cpus) for name, cpus in busiest)


def _throttled(groups: tuple[Path, ...]) -> float | None:
    """Share of its periods in which a group of ours was stopped, since it was made: the worst level."""
    counted = [level for level in cgroups.throttling(groups) if level.periods]
    return max((level.throttled / level.periods for level in counted), default=None)


def _container(root: Path) -> str | None:
    """What kind, as far as known; None: none is noticed."""
    for name, kind in _CONTAINER_FILES:
        if (root / name).exists():
            return kind
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    if "microsoft" in _text(root / "proc/sys/kernel/osrelease").lower():
        return "wsl"
    words = _text(root / "proc/1/cgroup")
    return next((kind for kind in ("docker", "kubepods", "lxc", "containerd") if kind in words), None)


# --- processor, memory, disk ---------------------------------------------------------------------


def _features(root: Path) -> tuple[str, ...] | None:
    """Instruction sets as the kernel names them (x86 `flags`, Arm `Features`)."""
    for line in _text(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return tuple(value.split())
    return None


def _chosen(text: str) -> str | None:
    """The word in brackets: `always [madvise] never`."""
    return text.partition("[")[2].partition("]")[0] or None


def _disk_free(folder: Path, unknown: dict[str, str]) -> int | None:
    """Of the disk that the folder is on, or will be."""
    for place in (folder, *folder.parents):
        try:
            return shutil.disk_usage(place).free
        except FileNotFoundError:
            continue
        except OSError as error:
            unknown["disk_free_bytes"] = f"{place} does not tell ({error.strerror or error})"
            return None
    unknown["disk_free_bytes"] = "the folder's disk is not there"
    return None


def _text(path: Path) -> str:
    """The content of a file of the kernel, trimmed; empty where there is none or it may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
