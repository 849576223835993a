"""The machine as it is before measuring: cores that this process may really use, memory, GPUs.

On Linux the kernel's files are read directly, below a root that tests can replace; elsewhere psutil
answers. What can not be known is None, with the reason in `MachineFacts.unknown`.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
from collections.abc import Collection
from pathlib import Path

from probes import cgroups
from probes.gpus import gpu_states, list_gpus
from probes.records import MachineFacts

_CPU_FOLDER = "sys/devices/system/cpu"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Cores:
    """Counts of the processor, and of the part of it that this process may use."""

    logical: int | None
    physical: int | None
    usable: int
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    total: int | None
    available: int | None
    swap_used: int | None


def read_machine_facts(
    root: Path = Path("/"), *, system: str | None = None, affinity: Collection[int] | None = None
) -> MachineFacts:
    """Read the facts of this machine, or of a simulated one.

    `root` is where Linux's /proc and /sys are looked for, `system` a name as `platform.system` gives it,
    `affinity` the logical CPUs that the process may run on; by default they are asked of the system.
    """
    system = system or platform.system()
    unknown: dict[str, str] = {}
    if system == "Linux":
        allowed = frozenset(os.sched_getaffinity(0) if affinity is None else affinity)
        cores, memory = _linux_cores(root, allowed), _linux_memory(root)
        limit = cgroups.memory_limit_bytes(cgroups.groups("memory", root))
    else:
        cores, memory, limit = _portable_cores(system), _portable_memory(), None
    listing = list_gpus(root)
    if listing.problem is not None:
        unknown["gpu_names"] = listing.problem
    facts = MachineFacts(
        os=f"{system} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        cpu_name=_cpu_name(system, root),
        logical_cpus=cores.logical,
        physical_cpus=cores.physical,
        usable_cpus=cores.usable,
        usable_cpus_reason=cores.reason,
        memory_bytes=memory.total,
        memory_available_bytes=memory.available,
        memory_limit_bytes=limit,
        swap_used_bytes=memory.swap_used,
        gpu_names=tuple(gpu.name for gpu in listing.gpus),
        unknown=unknown,
        gpus=listing.gpus,
        gpu_states=gpu_states(root=root),
    )
    unknown.update(_reasons(facts, system))
    return facts


def default_threads(machine: MachineFacts) -> int:
    """Threads to use where none are asked for: one for each usable core.

    As `common_cpu_get_num_math` of llama.cpp chooses (physical cores, no efficiency cores: all threads
    wait for the slowest at each operation), and beyond it never more than affinity and quota grant.
    """
    return max(1, machine.usable_cpus)


def _reasons(facts: MachineFacts, system: str) -> dict[str, str]:
    """Why each field that is None is not known."""
    reasons = {
        "cpu_name": f"{system} names no processor here",
        "logical_cpus": f"{system} does not list its CPUs here",
        "physical_cpus": f"{system} does not tell which CPUs share a core",
        "memory_bytes": f"{system} does not tell its memory here",
        "memory_available_bytes": f"{system} does not tell its free memory here",
        "memory_limit_bytes": "no control group limits memory" if system == "Linux" else f"{system} has none",
        "swap_used_bytes": f"{system} does not tell its swap here",
    }
    return {name: reason for name, reason in reasons.items() if getattr(facts, name) is None}


# --- cores ---------------------------------------------------------------------------------------


def _linux_cores(root: Path, allowed: frozenset[int]) -> _Cores:
    """Physical performance cores within the affinity, no more than the quota grants."""
    online = _cpu_list(_text(root / _CPU_FOLDER / "online")) or allowed
    siblings = {cpu: _siblings(root, cpu) for cpu in sorted(online)}
    performance = _performance_cpus(root, online)
    reachable = (allowed & online) or online
    chosen = (reachable & performance) or reachable
    usable = len({siblings[cpu] or frozenset({cpu}) for cpu in chosen})
    reason = _core_reason(usable, reachable, chosen, online)
    quota = cgroups.cpu_quota(cgroups.groups("cpu", root))
    if quota is not None and quota < usable:
        usable, reason = max(1, int(quota)), f"cgroup quota {quota:g} CPUs"
    known = {group for group in siblings.values() if group}
    return _Cores(logical=len(online), physical=len(known) or None, usable=usable, reason=reason)


def _core_reason(
    usable: int, reachable: frozenset[int], chosen: frozenset[int], online: frozenset[int]
) -> str:
    """What limits the usable cores, the tightest thing first."""
    if chosen != reachable:
        return f"{usable} performance cores of {len(online)} logical CPUs"
    if len(reachable) < len(online):
        return f"affinity: {len(reachable)} of {len(online)} logical CPUs"
    if usable < len(online):
        return f"{usable} cores with {len(online)} logical CPUs"
    return f"{usable} {'core' if usable == 1 else 'cores'}"


def _siblings(root: Path, cpu: int) -> frozenset[int]:
    """Logical CPUs that share a physical core with `cpu`, itself among them; empty where not told."""
    return _cpu_list(_text(root / _CPU_FOLDER / f"cpu{cpu}/topology/thread_siblings_list"))


def _performance_cpus(root: Path, online: frozenset[int]) -> frozenset[int]:
    """On hybrid processors the fast CPUs, else all.

    Intel lists them as a device of their own. Elsewhere the kernel's relative capacity, or else the top
    clock, tells: cores of less than half of the fastest one's hold the others back.
    """
    listed = _cpu_list(_text(root / "sys/devices/cpu_core/cpus"))
    if listed:
        return listed
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        strengths = {cpu: _text(root / _CPU_FOLDER / f"cpu{cpu}" / name) for cpu in online}
        if all(text.isdecimal() for text in strengths.values()):
            top = max(int(text) for text in strengths.values())
            return frozenset(cpu for cpu, text in strengths.items() if 2 * int(text) >= top)
    return online


def _cpu_list(text: str) -> frozenset[int]:
    """The kernel's list form: `0-3,8`."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal():
            cpus.update(range(int(first), int(last if last.isdecimal() else first) + 1))
    return frozenset(cpus)


def _portable_cores(system: str) -> _Cores:
    """macOS: performance cores, as sysctl tells; elsewhere physical cores within the affinity."""
    import psutil

    logical, physical = psutil.cpu_count(), psutil.cpu_count(logical=False)
    performance = _sysctl_number("hw.perflevel0.physicalcpu") if system == "Darwin" else None
    usable = performance or physical or logical or 1
    reason = f"{usable} cores"
    if performance is not None and physical is not None and performance < physical:
        reason = f"{performance} performance cores of {physical} cores"
    allowed = _portable_affinity()
    if allowed is not None and allowed < usable:
        usable, reason = allowed, f"affinity: {allowed} of {logical} logical CPUs"
    return _Cores(logical=logical, physical=physical, usable=usable, reason=reason)


def _portable_affinity() -> int | None:
    """How many logical CPUs the process may run on; None where the system has no such limit (macOS)."""
    import psutil

    process = psutil.Process()
    return len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else None


# --- memory --------------------------------------------------------------------------------------


def _linux_memory(root: Path) -> _Memory:
    """The system's memory; what is available is cut to what control groups and process limits still grant."""
    values: dict[str, int] = {}
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()[:1]
        if number and number[0].isdecimal():
            values[name] = int(number[0]) * 1024
    available = values.get("MemAvailable")
    headroom = cgroups.memory_headroom_bytes(cgroups.groups("memory", root))
    limits = [limit for limit in (available, headroom, _address_space_left(root)) if limit is not None]
    available = None if available is None else min(limits)
    swap = values["SwapTotal"] - values["SwapFree"] if {"SwapTotal", "SwapFree"} <= values.keys() else None
    return _Memory(total=values.get("MemTotal"), available=available, swap_used=swap)


def _address_space_left(root: Path) -> int | None:
    """What `ulimit -v` still grants a process like this one, the engine's libraries not counted; None without
    such a limit."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    pages = _text(root / "proc/self/statm").split()[:1]
    if limit == resource.RLIM_INFINITY or not pages or not pages[0].isdecimal():
        return None
    return max(0, limit - int(pages[0]) * resource.getpagesize())


def _portable_memory() -> _Memory:
    import psutil

    memory = psutil.virtual_memory()
    return _Memory(total=memory.total, available=memory.available, swap_used=psutil.swap_memory().used)


# --- names ---------------------------------------------------------------------------------------


def _cpu_name(system: str, root: Path) -> str | None:
    if system == "Darwin":
        return _sysctl("machdep.cpu.brand_string")
    if system != "Linux":
        return platform.processor() or None
    for line in _text(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Hardware") and value.strip():
            return value.strip()
    return _text(root / "proc/device-tree/model").strip("\0") or None


def _sysctl(name: str) -> str | None:
    """A value of macOS's sysctl; None where it does not know the name."""
    answer = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


def _sysctl_number(name: str) -> int | None:
    text = _sysctl(name)
    return int(text) if text is not None and text.isdecimal() else None


def _text(path: Path) -> str:
    """The content of a file of the kernel, trimmed; empty where there is none or it may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
