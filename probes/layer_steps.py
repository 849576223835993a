"""Numbers of GPU layers as an axis: what was asked, and the steps that a model of some size gets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

ALL = -1
"""Every layer, the output layer included, however many there are."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LayerSteps:
    """Even steps between two numbers of layers, both included."""

    first: int
    last: int | None
    """None: all."""
    points: int


GpuLayers: TypeAlias = int | LayerSteps | None
"""A number (-1: all), None (`auto`: as many as fit), or steps."""


def resolve_steps(asked: Sequence[GpuLayers], n_layers: int | None) -> tuple[int | None, ...]:
    """The settings to measure, ascending, `auto` first and all (-1) last, none twice.

    The engine counts `n_layers` repeating layers and one more for the output. Where several are asked for,
    all repeating layers, and these with the output layer, are always among them: the last step alone can
    double the speed. A number beyond the last means all.
    """
    values: set[int | None] = set()
    for item in asked:
        values.update(_spread(item, n_layers) if isinstance(item, LayerSteps) else (item,))
    total = None if n_layers is None else n_layers + 1
    settled = {
        ALL if total is not None and value is not None and value >= total else value for value in values
    }
    if len(settled) > 1 and settled != {None, ALL}:
        settled |= {ALL} if n_layers is None else {n_layers, ALL}
    return tuple(sorted(settled, key=lambda value: (value is not None, value == ALL, value or 0)))


def _spread(steps: LayerSteps, n_layers: int | None) -> list[int]:
    """Evenly spread whole numbers; up to `all` of a model with an unknown number of layers, the ends."""
    if steps.last is None and n_layers is None:
        return [steps.first, ALL]
    last = steps.last if steps.last is not None else (n_layers or 0) + 1
    width = last - steps.first
    return [steps.first + round(width * step / (steps.points - 1)) for step in range(steps.points)]
