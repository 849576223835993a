"""Frozen records of facts: what was asked, what the engine resolved, what was measured.

Standard library only. Durations are integer nanoseconds (`_ns`), sizes are bytes (`_bytes`),
lengths are tokens (`_tokens`). None means "not known"; zero is a number. A change is made with
`dataclasses.replace`. All records are saved in run files by `probes.run_files`, so each field keeps
to None, bool, int, float, str, another record, `tuple[X, ...]` or `dict[str, X]`.
"""

from __future__ import annotations

from probes.records.ceilings import DeviceCeiling, KernelRate, LinkFacts
from probes.records.layers import CONTEXT_STEP, first_on_device, layer_cells, moving_bytes, padded
from probes.records.machine import DeviceFacts, EngineFacts, GpuFacts, GpuState, MachineFacts
from probes.records.model import AttentionKind, MatrixShape, ModelFacts, ModelKind, Origin, WeightMatrices
from probes.records.run import GroupResult, Run
from probes.records.samples import (
    CacheState,
    CellResult,
    CellSample,
    CellStatus,
    LoadSample,
    PassSample,
    RequestSample,
    SamplingSample,
    SelfTestRound,
    StepParts,
    TokenizeSample,
)
from probes.records.settings import Options, Placement, Resolved, Settings, Workload
from probes.records.surroundings import Checkup, DeviceMemory, Disturbance, Neighbour

SCHEMA_VERSION = 2
"""Version of the run file. Raise it with an upgrade step in `probes.run_files`."""

__all__ = [
    "CONTEXT_STEP",
    "SCHEMA_VERSION",
    "AttentionKind",
    "CacheState",
    "CellResult",
    "CellSample",
    "CellStatus",
    "Checkup",
    "DeviceCeiling",
    "DeviceFacts",
    "DeviceMemory",
    "Disturbance",
    "EngineFacts",
    "GpuFacts",
    "GpuState",
    "GroupResult",
    "KernelRate",
    "LinkFacts",
    "LoadSample",
    "MachineFacts",
    "MatrixShape",
    "ModelFacts",
    "ModelKind",
    "Neighbour",
    "Options",
    "Origin",
    "PassSample",
    "Placement",
    "RequestSample",
    "Resolved",
    "Run",
    "SamplingSample",
    "SelfTestRound",
    "Settings",
    "StepParts",
    "TokenizeSample",
    "WeightMatrices",
    "Workload",
    "first_on_device",
    "layer_cells",
    "moving_bytes",
    "padded",
]
