"""What else the machine did, and what may disturb a run before it."""

from __future__ import annotations

import dataclasses

from probes.records.machine import GpuState


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """What else the machine did in one interval while we measured. None: not known here."""

    started_ns: int
    duration_ns: int
    phase: str
    """What the worker was doing: `load`, `walk`, ..."""
    foreign_cpus: float | None
    """CPUs' worth of time used by other processes."""
    steal_fraction: float | None
    throttled_fraction: float | None
    """Share of the interval in which the cgroup was throttled."""
    swap_in_bytes: int | None
    major_faults: int | None
    """Of the worker."""
    disk_read_bytes: int | None
    """Of the worker."""
    memory_available_bytes: int | None
    cpu_clock_hz: float | None
    """Of the CPU on which the worker's first thread last ran."""
    gpus: tuple[GpuState, ...] = ()
    """Each GPU that a driver reports, at the end of the interval; empty without one."""
    cpu_clock_max_hz: float | None = None
    """The highest clock of that CPU."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another process that used CPU time."""

    name: str
    """Untrusted text."""
    cpus: float
    """CPUs' worth of time."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Memory of a device during the run."""

    device: str
    used_bytes: int
    """Total minus free right after the passes; what others use is in it."""
    total_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """What may disturb or slow a run, before it. Each None that means "not known" has its reason in
    `unknown`."""

    governor: str | None
    """How the kernel chooses clocks: `performance`, `powersave` ...; several values comma-joined."""
    clock_driver: str | None
    """`intel_pstate`, `amd-pstate-epp`, `acpi-cpufreq` ...: with the first two `powersave` still boosts."""
    energy_preference: str | None
    """`performance` to `power`, where the processor chooses by itself."""
    power_plan: str | None
    """Of Windows or macOS: `high performance`, `balanced`, `power saver`, `low power`, `automatic`."""
    turbo: bool | None
    on_battery: bool | None
    """False too where there is no battery."""
    temperature_c: float | None
    """The hottest of the processor."""
    temperature_limit_c: float | None
    """At which it slows down, where told."""
    neighbours: tuple[Neighbour, ...]
    """Processes that use CPU right now."""
    cpu_quota: float | None
    """CPUs that the control group grants; None: no limit."""
    throttled_fraction: float | None
    """Share of the quota's periods in which the group was stopped so far; None: no quota at work."""
    container: str | None
    """`docker`, `podman`, `kubernetes`, `wsl` ...; None: none is noticed."""
    virtual_machine: bool | None
    cpu_features: tuple[str, ...] | None
    """Instruction sets as the kernel names them."""
    page_bytes: int
    huge_pages: str | None
    """`always`, `madvise`, `never`; None: the system has no such setting."""
    disk_free_bytes: int | None
    """Where runs are saved."""
    unknown: dict[str, str]
    """Field name -> why it is not known."""
