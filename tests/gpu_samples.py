"""A driver's words about a GPU, for tests to change."""

from __future__ import annotations

import dataclasses
from typing import Any

from probes.records import GpuFacts, GpuState

GIB = 2**30


def gpu(index: int = 0, **changes: Any) -> GpuFacts:
    facts = GpuFacts(
        index=index,
        name="GPU A",
        driver="NVIDIA 570",
        pci_id=None,
        memory_total_bytes=24 * GIB,
        link_generation=4,
        link_generation_max=4,
        link_width=16,
        link_width_max=16,
        power_limit_w=None,
        temperature_limit_c=None,
    )
    return dataclasses.replace(facts, **changes)


def state(index: int = 0, **changes: Any) -> GpuState:
    facts = GpuState(
        index=index,
        utilization=0.9,
        clock_hz=1.8e9,
        clock_max_hz=2e9,
        throttle_reasons=(),
        memory_used_bytes=2 * GIB,
        memory_total_bytes=24 * GIB,
        shared_memory_bytes=None,
        power_w=200.0,
        temperature_c=60.0,
        foreign_processes=0,
    )
    return dataclasses.replace(facts, **changes)
