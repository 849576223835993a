"""Which matrix products one token takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample_runs import model
from tiny_models import N_EMBD, N_EXPERTS, N_EXPERTS_USED, N_FF, N_LAYERS, N_VOCAB, TINY_MODELS

from probes.ggml_types import GGML_TYPES
from probes.gguf_header import read_model_facts
from probes.gguf_reader import TensorInfo
from probes.matrix_shapes import matrix_shapes, shapes_of
from probes.records import MatrixShape

F32, F16 = GGML_TYPES[0], GGML_TYPES[1]


def by_shape(shapes: tuple[MatrixShape, ...]) -> dict[tuple[int, int, str], int]:
    return {(shape.rows, shape.columns, shape.weight_type): shape.per_token for shape in shapes}


def test_a_llama_model_has_seven_products_a_layer_and_the_output(tmp_path: Path) -> None:
    path = TINY_MODELS["llama"](tmp_path / "llama.gguf")
    found = by_shape(matrix_shapes(read_model_facts(path)))
    # Four heads of 64 are as wide as the embedding; K and V have half of them.
    assert found[N_EMBD, N_EMBD, "F16"] == 2 * N_LAYERS  # query, attention output
    assert found[N_EMBD // 2, N_EMBD, "F16"] == 2 * N_LAYERS  # key, value
    assert found[N_FF, N_EMBD, "F16"] == 2 * N_LAYERS  # gate, up
    assert found[N_EMBD, N_FF, "F16"] == N_LAYERS  # down
    assert found[N_VOCAB, N_EMBD, "F16"] == 1  # output; the embedding table multiplies nothing
    assert len(found) == 5


def test_tensors_can_be_given_other_formats(tmp_path: Path) -> None:
    model = read_model_facts(TINY_MODELS["llama"](tmp_path / "llama.gguf"))
    types = {f"blk.{layer}.ffn_down.weight": "Q4_K" for layer in range(N_LAYERS)}
    before, after = by_shape(matrix_shapes(model)), by_shape(matrix_shapes(model, types))
    assert after.pop((N_EMBD, N_FF, "Q4_K")) == before.pop((N_EMBD, N_FF, "F16"))
    assert after == before


def test_of_experts_only_those_count_that_a_token_is_sent_to(tmp_path: Path) -> None:
    path = TINY_MODELS["moe"](tmp_path / "moe.gguf")
    shapes = matrix_shapes(read_model_facts(path))
    found = by_shape(shapes)
    assert N_EXPERTS_USED < N_EXPERTS
    (down,) = (shape for shape in shapes if (shape.rows, shape.columns) == (N_EMBD, N_FF))
    assert down.in_model == N_LAYERS * N_EXPERTS
    assert found[N_FF, N_EMBD, "F16"] == 2 * N_LAYERS * N_EXPERTS_USED
    assert found[N_EMBD, N_FF, "F16"] == N_LAYERS * N_EXPERTS_USED


@pytest.mark.parametrize(("tied", "products"), [(True, 1), (False, 0)])
def test_a_tied_embedding_is_the_output_layer_too(tied: bool, products: int) -> None:
    table = TensorInfo("token_embd.weight", (64, 1000), F16, 0)
    assert sum(shape.per_token for shape in shapes_of(model(tied_output=tied), [table])) == products


def test_norms_kernels_and_tables_are_no_products() -> None:
    tensors = [
        TensorInfo("blk.0.attn_norm.weight", (576,), F32, 0),
        TensorInfo("blk.0.ssm_conv1d.weight", (4, 512), F32, 0),
        TensorInfo("position_embd.weight", (576, 1024), F32, 0),
        TensorInfo("blk.0.ffn_up.bias", (576, 1536), F32, 0),
    ]
    assert shapes_of(model(), tensors) == ()


def test_what_moves_most_bytes_comes_first() -> None:
    tensors = [
        TensorInfo("blk.0.a.weight", (64, 64), F16, 0),  # 8 KiB each, twice: 16 KiB
        TensorInfo("blk.1.a.weight", (64, 64), F16, 0),
        TensorInfo("blk.0.b.weight", (64, 96), F32, 0),  # 24 KiB
    ]
    assert [shape.rows for shape in shapes_of(model(), tensors)] == [96, 64]
