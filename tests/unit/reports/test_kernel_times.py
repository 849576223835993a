"""What a token's weight products take: the sum over the model's own shapes, by their measured kernels."""

from __future__ import annotations

import pytest
import sample_runs as sample

from probes.records import DeviceCeiling, KernelRate, MatrixShape, WeightMatrices
from reports.kernel_times import KernelTimes, kernel_times, with_operations

VOCABULARY, WIDTH, INNER = 49_152, 576, 1536
"""Of the sample model."""


def shape(rows: int, columns: int, weight_type: str, per_token: int) -> MatrixShape:
    return MatrixShape(
        rows=rows, columns=columns, weight_type=weight_type, per_token=per_token, in_model=per_token
    )


def rate(rows: int, columns: int, batch: int, seconds: float, weight_type: str = "Q4_1") -> KernelRate:
    return KernelRate(
        rows=rows,
        columns=columns,
        batch=batch,
        weight_type=weight_type,
        seconds=seconds,
        weight_bytes=rows * columns * 5 // 8,
    )


def times(shapes: list[MatrixShape], *rates: KernelRate) -> KernelTimes | None:
    ceiling: DeviceCeiling = sample.ceiling(rates=rates)
    return kernel_times(
        WeightMatrices(quantization=None, shapes=tuple(shapes)),
        sample.model(n_vocab=VOCABULARY, n_embd=WIDTH),
        ceiling,
    )


def test_a_token_takes_all_products_and_a_prompt_token_not_the_output_layer() -> None:
    found = times(
        [shape(INNER, WIDTH, "Q4_1", 60), shape(VOCABULARY, WIDTH, "Q8_0", 1)],
        rate(INNER, WIDTH, 1, 50e-6),
        rate(INNER, WIDTH, 512, 10e-3),
        rate(VOCABULARY, WIDTH, 1, 2e-3, "Q8_0"),
        rate(VOCABULARY, WIDTH, 512, 1.0, "Q8_0"),
    )
    assert found is not None
    assert found.step_s == pytest.approx(60 * 50e-6 + 2e-3)
    assert found.prompt_token_s == pytest.approx(60 * 10e-3 / 512)


def test_a_shape_that_was_not_measured_runs_like_the_nearest_of_its_format() -> None:
    found = times(
        [shape(4096, 4096, "Q4_1", 10)],
        rate(2048, 2048, 1, 1e-3),
        rate(64, 64, 1, 1e-3),
        rate(2048, 2048, 512, 0.1),
    )
    assert found is not None
    assert found.step_s == pytest.approx(10 * 4 * 1e-3)
    assert found.prompt_token_s == pytest.approx(10 * 4 * 0.1 / 512)


def test_a_few_weights_in_another_format_run_like_the_rest() -> None:
    shapes = [shape(INNER, WIDTH, "Q4_1", 95), shape(INNER, WIDTH, "Q5_K", 5)]
    rates = (rate(INNER, WIDTH, 1, 1e-5), rate(INNER, WIDTH, 512, 1e-2))
    found = times(shapes, *rates)
    assert found is not None
    assert found.step_s == pytest.approx(100 * 1e-5)


def test_a_format_of_many_weights_that_was_not_measured_leaves_it_unknown() -> None:
    shapes = [shape(INNER, WIDTH, "Q4_1", 80), shape(INNER, WIDTH, "Q5_K", 20)]
    rates = (rate(INNER, WIDTH, 1, 1e-5), rate(INNER, WIDTH, 512, 1e-2))
    assert times(shapes, *rates) is None
    assert times(shapes) is None


def test_operations_come_once_a_step_and_once_a_micro_batch() -> None:
    kernels = KernelTimes(step_s=0.010, prompt_token_s=0.002)
    resolved = sample.resolved(graph_nodes=1000, n_ubatch=500)
    found = with_operations(kernels, sample.ceiling(operation_s=1e-6), resolved)
    assert found is not None
    assert found.step_s == pytest.approx(0.011)
    assert found.prompt_token_s == pytest.approx(0.002 + 0.001 / 500)
    assert with_operations(kernels, sample.ceiling(operation_s=None), resolved) is None
    assert with_operations(None, sample.ceiling(), resolved) is None
