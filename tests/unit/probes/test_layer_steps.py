"""Which numbers of GPU layers an axis stands for."""

from __future__ import annotations

import pytest

from probes.layer_steps import GpuLayers, LayerSteps, resolve_steps


@pytest.mark.parametrize(
    ("asked", "n_layers", "steps"),
    [
        ((None,), 30, (None,)),
        ((-1,), 30, (-1,)),
        ((10,), 30, (10,)),
        # The last step alone can double the speed: 30 repeating layers, then these with the output layer.
        ((0, 10, 20), 30, (0, 10, 20, 30, -1)),
        ((0, -1), 30, (0, 30, -1)),
        ((20, 0, 20), 30, (0, 20, 30, -1)),
        # 31 and more are all layers.
        ((31,), 30, (-1,)),
        ((0, 99), 30, (0, 30, -1)),
        ((None, 5), 30, (None, 5, 30, -1)),
        ((None, -1), 30, (None, -1)),
        # 0-all*5 of 31: 0, 7.75, 15.5, 23.25, 31
        ((LayerSteps(first=0, last=None, points=5),), 30, (0, 8, 16, 23, 30, -1)),
        ((LayerSteps(first=2, last=8, points=3),), 30, (2, 5, 8, 30, -1)),
        # A header that does not say how many there are.
        ((0, 10), None, (0, 10, -1)),
        ((LayerSteps(first=4, last=None, points=5),), None, (4, -1)),
    ],
)
def test_steps(asked: tuple[GpuLayers, ...], n_layers: int | None, steps: tuple[int | None, ...]) -> None:
    assert resolve_steps(asked, n_layers) == steps
