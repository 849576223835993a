"""Layer by layer: what is planned before a load and what is read off after it follow the same rules."""

from __future__ import annotations

import dataclasses

import pytest
import sample_runs as sample

from probes.placement_plan import place
from probes.records import first_on_device, layer_cells, moving_bytes
from reports.offload import read_split

N_LAYERS = 6
MODEL = sample.model(
    layer_bytes=tuple(100 + layer for layer in range(N_LAYERS)),
    layer_expert_bytes=(60,) * N_LAYERS,
    output_bytes=50,
    tied_output=False,
    model_bytes=700,
    bytes_per_token=700,
)


@pytest.mark.parametrize("layers", range(N_LAYERS + 2))
@pytest.mark.parametrize("n_cpu_moe", [0, 2, 6])
def test_plan_and_report_place_alike(layers: int, n_cpu_moe: int) -> None:
    # Every expert is in use, so a token reads what a device holds.
    asked = sample.settings(n_cpu_moe=n_cpu_moe)
    gpu = sample.device(name="GPU0", kind="gpu")
    shares = place(MODEL, asked, [gpu], n_ctx=256, layers=layers)
    assert shares is not None
    assert read_split(MODEL, layers, n_cpu_moe) == tuple(float(share.weights_bytes) for share in shares)


def test_the_output_layer_goes_first_and_then_the_last_layers() -> None:
    assert [first_on_device(N_LAYERS, placed) for placed in (0, 1, 2, 7, 99)] == [7, 6, 5, 0, 0]


def test_experts_of_the_first_layers_do_not_go_along() -> None:
    assert [moving_bytes(MODEL, layer, 2) for layer in (0, 1, 2)] == [(40, 0), (41, 0), (42, 60)]
    dense = sample.model(layer_bytes=(100,))
    assert moving_bytes(dense, 0, 1) == (100, 0)
    # A run file may hold anything.
    short = dataclasses.replace(MODEL, layer_expert_bytes=MODEL.layer_expert_bytes[:1])
    assert moving_bytes(short, 2, 0) == (MODEL.layer_bytes[2], 0)


def test_a_record_that_contradicts_itself_counts_the_least() -> None:
    odd = sample.model(sliding_window_tokens=100, layer_windowed=(True,), layer_kv_elements=(10, 10, 10))
    assert layer_cells(odd, 4096, 128, swa_full=False) == (256, 256, 256)
