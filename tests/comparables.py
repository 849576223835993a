"""Comparable files for tests: simulated timings of the default cells, and builders of single cells."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reports import stats
from reports.comparable import CellSummary, Comparable, ComparableCell, ComparedPhase

MODEL = {"name": "Demo", "quantization": "Q4_1", "model_bytes": "96595200", "n_params": "134515008"}
SETTINGS = {"backend": "CPU", "threads": "2", "n_ubatch": "512", "flash_attn": "enabled"}
MACHINE = {"cpu": "Example CPU", "usable cpus": "2", "gpus": "none", "os": "Linux 6.8"}
ENGINE = {"version": "engine 1", "commit": "abc1234", "llmphase": "0.1.0"}
DEFAULT_CELLS: tuple[tuple[ComparedPhase, int], ...] = (
    *(("prefill", n) for n in (128, 512, 2048)),
    *(("decode", n) for n in (0, 128, 512, 2048)),
)

Noise = Callable[[random.Random, int], float]
"""(generator, index of the cell) -> the logarithm of a factor."""


def cell(
    phase: ComparedPhase, tokens: int = 0, samples: Sequence[float] = (), **changes: Any
) -> ComparableCell:
    """One cell of the demo model; for load the tokens are none."""
    made = ComparableCell(
        model=MODEL,
        settings=SETTINGS,
        phase=phase,
        prompt_tokens=tokens if phase in ("prefill", "ttft") else None,
        depth_tokens={"decode": tokens, "load": None}.get(phase, 0),
        output_tokens=32 if phase == "decode" else None,
        cache_state="warm" if phase == "load" else None,
        samples_s=tuple(samples),
    )
    return dataclasses.replace(made, **changes)


def summary(median_s: float, stddev_s: float | None = None, n: int | None = 5) -> CellSummary:
    """As an export has it, without an interval."""
    return CellSummary(median_s=median_s, stddev_s=stddev_s, low_s=None, high_s=None, n=n)


def file(*cells: ComparableCell, label: str = "run", **changes: Any) -> Comparable:
    """A file of these cells on the example machine."""
    made = Comparable(
        label=label,
        source="run",
        started_at="2026-11-30T20:55:45Z",
        machine=MACHINE,
        engine=ENGINE,
        cells=cells,
    )
    return dataclasses.replace(made, **changes)


def normal(share: float) -> Noise:
    """Noise of this relative standard deviation, the same in every cell."""
    return lambda generator, _: generator.gauss(0, share)


def simulated(
    seed: int,
    noise: Noise,
    *,
    repetitions: int = 5,
    factors: Mapping[tuple[str, int], float] | None = None,
    cells: Sequence[tuple[ComparedPhase, int]] = DEFAULT_CELLS,
) -> Comparable:
    """A measured run: each cell's samples scatter around 1 s times its factor; of its passes those count that
    `reports.stats` counts."""
    generator = random.Random(seed)
    made = []
    for index, (phase, tokens) in enumerate(cells):
        factor = (factors or {}).get((phase, tokens), 1.0)
        passes = [(i, factor * math.exp(noise(generator, index))) for i in range(repetitions)]
        made.append(cell(phase, tokens, stats.counted(passes)))
    return file(*made, label=f"run {seed}")
