"""The matrix products that one token takes, as the model file's header tells: shapes, formats, counts."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from probes.ggml_types import GGML_TYPES, TYPE_NUMBERS
from probes.gguf_reader import TensorInfo, read_tensors
from probes.records import MatrixShape, ModelFacts

_EMBEDDING = "token_embd.weight"
_TABLES = frozenset({"per_layer_token_embd.weight", "position_embd.weight", "token_types.weight"})
"""Rows are looked up in these; they multiply nothing."""
_EXPERTS = "exps.weight"
_LEAST_SIDE = 32
"""Convolution kernels and the like are narrower: no matrix product of their own."""


def matrix_shapes(
    model: ModelFacts, types: Mapping[str, str] = MappingProxyType({})
) -> tuple[MatrixShape, ...]:
    """The shapes in a model, those that move the most bytes for a token first; `types` gives tensors, by
    name, another ggml type.

    Raises ModelFileError and UnmeasurableError as `read_header` does, KeyError for a type that is none.
    """
    tensors = read_tensors(model.files)
    return shapes_of(model, [_of_type(tensor, types.get(tensor.name)) for tensor in tensors])


def _of_type(tensor: TensorInfo, name: str | None) -> TensorInfo:
    return tensor if name is None else dataclasses.replace(tensor, type=GGML_TYPES[TYPE_NUMBERS[name]])


def shapes_of(model: ModelFacts, tensors: Iterable[TensorInfo]) -> tuple[MatrixShape, ...]:
    """The shapes among these tensors, those that move the most bytes for a token first."""
    per_token: Counter[tuple[int, int, str]] = Counter()
    in_model: Counter[tuple[int, int, str]] = Counter()
    n_bytes: Counter[tuple[int, int, str]] = Counter()
    for tensor in tensors:
        if _multiplies(tensor, model):
            columns, rows = tensor.shape[:2]
            key = (rows, columns, tensor.type.name)
            products = _products(tensor, model)
            per_token[key] += products
            in_model[key] += _slices(tensor)
            n_bytes[key] += products * tensor.n_bytes // _slices(tensor)
    return tuple(
        MatrixShape(
            rows=key[0],
            columns=key[1],
            weight_type=key[2],
            per_token=per_token[key],
            in_model=in_model[key],
        )
        for key, _ in n_bytes.most_common()
    )


def _multiplies(tensor: TensorInfo, model: ModelFacts) -> bool:
    is_table = tensor.name in _TABLES or (tensor.name == _EMBEDDING and not model.tied_output)
    is_matrix = tensor.name.endswith(".weight") and len(tensor.shape) in (2, 3)
    return is_matrix and not is_table and min(tensor.shape) > 0 and min(tensor.shape[:2]) >= _LEAST_SIDE


def _slices(tensor: TensorInfo) -> int:
    """Matrices in a tensor: experts and heads are stacked."""
    return tensor.shape[2] if len(tensor.shape) == 3 else 1


def _products(tensor: TensorInfo, model: ModelFacts) -> int:
    """How many products one token takes with the matrices in this tensor."""
    if tensor.name.endswith(_EXPERTS) and model.n_experts_used:
        return min(model.n_experts_used, _slices(tensor))
    return _slices(tensor)
