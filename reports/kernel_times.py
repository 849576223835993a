"""What the weight products of one token take on one device, by its measured kernels.

Unlike a roof (`reports.roofs`), which takes each format's best rate, this takes the rate at the model's own
shapes, where small matrices run slower: it is what a run should take, not the least that it could.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from probes.records import DeviceCeiling, KernelRate, MatrixShape, ModelFacts, Resolved, WeightMatrices

_KNOWN_SHARE = 0.9
"""Of the weights, whose formats must have been measured."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KernelTimes:
    """Seconds of all weight products of one token."""

    step_s: float
    """Of a generated token: matrix-vector products, the output layer among them."""
    prompt_token_s: float
    """Of a prompt token within a whole micro-batch; only its last token goes through the output layer."""


def kernel_times(matrices: WeightMatrices, model: ModelFacts, ceiling: DeviceCeiling) -> KernelTimes | None:
    """All products of a token on this device; None where a format was not measured there."""
    vectors = [rate for rate in ceiling.rates if rate.batch == 1]
    batches = [rate for rate in ceiling.rates if rate.batch > 1]
    inner = [shape for shape in matrices.shapes if not _is_output(shape, model)]
    step, prompt = _sum(matrices.shapes, vectors), _sum(inner, batches)
    return None if step is None or prompt is None else KernelTimes(step_s=step, prompt_token_s=prompt)


def with_operations(
    times: KernelTimes | None, ceiling: DeviceCeiling, resolved: Resolved | None
) -> KernelTimes | None:
    """The same with what the graph's operations cost beside, once a step, and once a micro-batch of prompt
    tokens; None where that is not known."""
    if times is None or resolved is None or resolved.graph_nodes is None or ceiling.operation_s is None:
        return None
    graph_s = resolved.graph_nodes * ceiling.operation_s
    return KernelTimes(
        step_s=times.step_s + graph_s,
        prompt_token_s=times.prompt_token_s + graph_s / max(resolved.n_ubatch, 1),
    )


def _sum(shapes: Sequence[MatrixShape], rates: Sequence[KernelRate]) -> float | None:
    """Seconds of these products for one token. A few weights in formats that were not measured run like the
    rest; None where they are not few."""
    total_s = 0.0
    weights = known = 0
    for shape in shapes:
        weights += shape.per_token * _size(shape)
        rate = _nearest(shape, rates)
        if rate is not None:
            known += shape.per_token * _size(shape)
            total_s += shape.per_token * rate.seconds / rate.batch * _size(shape) / _size(rate)
    return total_s * weights / known if known and known >= _KNOWN_SHARE * weights else None


def _is_output(shape: MatrixShape, model: ModelFacts) -> bool:
    return model.n_vocab is not None and (shape.rows, shape.columns) == (model.n_vocab, model.n_embd)


def _nearest(shape: MatrixShape, rates: Iterable[KernelRate]) -> KernelRate | None:
    """The same shape, else the one of the same format that is nearest in size: larger ones run alike."""
    of_format = [one for one in rates if one.weight_type == shape.weight_type and _size(one) > 0]
    same = [one for one in of_format if (one.rows, one.columns) == (shape.rows, shape.columns)]
    return min(same or of_format, key=lambda one: abs(_size(one) - _size(shape)), default=None)


def _size(matrix: MatrixShape | KernelRate) -> int:
    return matrix.rows * matrix.columns
