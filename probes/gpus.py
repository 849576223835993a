"""All GPUs that a driver on this machine reports: NVIDIA's through NVML, AMD's through /sys."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection
from pathlib import Path

from probes.nvml import nvidia_driver
from probes.records import GpuFacts, GpuState
from probes.sysfs_gpus import amd_devices, amd_facts, amd_states, has_nvidia_card


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GpuListing:
    """The GPUs, and why there may be none."""

    gpus: tuple[GpuFacts, ...]
    problem: str | None
    """Why a driver does not answer; None where one does."""


def list_gpus(root: Path = Path("/")) -> GpuListing:
    """What each GPU of this machine is. `root` is where Linux's /sys is looked for."""
    driver = nvidia_driver()
    nvidia = driver.facts()
    amd = amd_facts(root, first_index=len(nvidia))
    problem = driver.problem
    if problem is not None and has_nvidia_card(root):
        problem += ", though an NVIDIA card is on the PCI bus: install its driver"
    return GpuListing(gpus=(*nvidia, *amd), problem=None if amd else problem)


def gpu_states(own: Collection[int] = (), root: Path = Path("/")) -> tuple[GpuState, ...]:
    """What each of them does now; empty where no driver answers. `own` are process ids that are ours."""
    nvidia = nvidia_driver().states(own)
    return (*nvidia, *amd_states(_amd_devices(root), first_index=len(nvidia)))


@functools.lru_cache(maxsize=8)
def _amd_devices(root: Path) -> tuple[Path, ...]:
    """Looked for once: cards do not come and go while a run lasts."""
    return amd_devices(root)
