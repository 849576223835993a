"""Everything one command measured."""

from __future__ import annotations

import dataclasses

from probes.records.ceilings import DeviceCeiling, LinkFacts
from probes.records.machine import EngineFacts, MachineFacts
from probes.records.model import ModelFacts, WeightMatrices
from probes.records.samples import (
    CellResult,
    CellStatus,
    LoadSample,
    PassSample,
    RequestSample,
    SamplingSample,
    StepParts,
    TokenizeSample,
)
from probes.records.settings import Options, Resolved, Settings, Workload
from probes.records.surroundings import DeviceMemory, Disturbance, Neighbour


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """All that one load group (one model with one set of settings) gave."""

    model: ModelFacts
    settings: Settings
    resolved: Resolved | None
    """None when the load failed."""
    status: CellStatus
    reason: str | None
    loads: tuple[LoadSample, ...]
    cells: tuple[CellResult, ...]
    passes: tuple[PassSample, ...]
    tokenize: tuple[TokenizeSample, ...]
    sampling: tuple[SamplingSample, ...]
    requests: tuple[RequestSample, ...]
    engine_warnings: tuple[str, ...]
    """Warnings and errors of the engine's log, cleaned and cut."""
    peak_memory_bytes: int | None
    """Peak resident memory of the measuring process."""
    device_memory: tuple[DeviceMemory, ...]
    warnings: tuple[str, ...] = ()
    """What went wrong or was done otherwise while measuring it, beside the reasons of its cells."""
    parts: tuple[StepParts, ...] = ()
    """Of a diagnosed request on a model split between host and devices."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything one command measured: raw samples, facts, settings."""

    schema_version: int
    run_id: str
    """Sorts by time: `20261130T205545Z-1a2b3c`."""
    started_at: str
    """UTC, ISO 8601 with `Z`."""
    llmphase_version: str
    finished: bool
    """False while measuring and after an interruption."""
    options: Options
    machine: MachineFacts
    engine: EngineFacts | None
    """None until a worker has reported."""
    groups: tuple[GroupResult, ...]
    disturbances: tuple[Disturbance, ...]
    wall_ns: int
    """Of the whole measurement, from the plan to the last cell."""
    warnings: tuple[str, ...]
    """What could not be read or was out of the ordinary, each with what to do."""
    workload: Workload | None = None
    """The request that was diagnosed; None for a profile."""
    ceilings: tuple[DeviceCeiling, ...] = ()
    """Empty when they were not measured."""
    neighbours: tuple[Neighbour, ...] = ()
    """Other processes that took CPU while measuring, busiest first."""
    links: tuple[LinkFacts, ...] = ()
    """One for each RPC server asked for."""
    matrices: tuple[WeightMatrices, ...] = ()
    """Of the diagnosed model, then of what smaller quantizations would make of it: kernels of all are among
    the ceilings' rates. Empty when they were not looked up."""
