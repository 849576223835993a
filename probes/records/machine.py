"""The machine, its GPUs, and the engine as installed."""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """A device that the engine build can use."""

    name: str
    """The engine's name: `CPU`, `CUDA0`, `Metal`, `RPC0`."""
    description: str
    kind: Literal["cpu", "gpu", "igpu", "accel", "meta", "unknown"]
    memory_total_bytes: int | None
    memory_free_bytes: int | None
    pci_id: str | None = None
    """Where it sits on the PCI bus, `0000:01:00.0`; None where the engine does not tell."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """The engine as installed, reported by a worker process."""

    version: str
    """For example `llama-cpp-python 0.3.36`."""
    commit: str | None
    """The llama.cpp / ggml commit inside it."""
    system_info: str
    """The engine's own feature line (`CPU : AVX2 = 1 | ...`)."""
    devices: tuple[DeviceFacts, ...]
    supports_gpu_offload: bool
    supports_mmap: bool
    supports_mlock: bool
    supports_rpc: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU of this machine, as its driver tells. None: this GPU or driver does not."""

    index: int
    """Its number on this machine: NVIDIA's first, then AMD's."""
    name: str
    """Untrusted text."""
    driver: str | None
    """For example `NVIDIA 570.86.15`."""
    pci_id: str | None
    """`0000:01:00.0`, lower case."""
    memory_total_bytes: int | None
    link_generation: int | None
    """PCI Express generation in use now: an idle GPU lowers it."""
    link_generation_max: int | None
    """The most that GPU and slot can do together."""
    link_width: int | None
    """Lanes in use."""
    link_width_max: int | None
    power_limit_w: float | None
    temperature_limit_c: float | None
    """From here on the driver lowers the clock."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """One GPU at one moment, as its driver tells. None: this GPU or driver does not."""

    index: int
    """As in `GpuFacts`."""
    utilization: float | None
    """Share of the driver's last sampling period in which kernels ran, 0 to 1."""
    clock_hz: float | None
    """Of the multiprocessors."""
    clock_max_hz: float | None
    throttle_reasons: tuple[str, ...] | None
    """Why the clock is held down now: `power-cap`, `thermal`, `hardware`, ...; being idle is none."""
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    shared_memory_bytes: int | None
    """System memory that the GPU uses as its own (spill, GTT)."""
    power_w: float | None
    temperature_c: float | None
    foreign_processes: int | None
    """Other processes that compute on it."""
    memory_utilization: float | None = None
    """Share of the same period in which its memory was read or written."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """The machine as it is before measuring. Each None has its reason in `unknown`."""

    os: str
    python: str
    cpu_name: str | None
    logical_cpus: int | None
    physical_cpus: int | None
    usable_cpus: int
    """Cores this process may really use: affinity, cgroup quota, performance cores."""
    usable_cpus_reason: str
    """What limits them, for example `2 logical CPUs`, `cgroup quota 1.5 CPUs`."""
    memory_bytes: int | None
    memory_available_bytes: int | None
    memory_limit_bytes: int | None
    """The cgroup's limit, where one is set."""
    swap_used_bytes: int | None
    gpu_names: tuple[str, ...]
    """GPUs that drivers report, usable by this engine build or not."""
    unknown: dict[str, str]
    """Field name -> why it is not known."""
    gpus: tuple[GpuFacts, ...] = ()
    """The same GPUs with all that their drivers tell."""
    gpu_states: tuple[GpuState, ...] = ()
    """What they did before measuring."""
