"""About how large a model would be in the usual quantizations: arithmetic on the header."""

from __future__ import annotations

import dataclasses

from probes.records import ModelFacts

_BITS_PER_WEIGHT = {"Q8_0": 8.5, "Q6_K": 6.57, "Q5_K_M": 5.7, "Q4_K_M": 4.9, "Q3_K_M": 4.0, "Q2_K": 3.16}
"""Over all tensors of an 8B model (8.03 billion weights), from the file sizes that llama.cpp's quantizing
tool lists for it (tools/quantize/quantize.cpp), largest first. Small models come out a little larger: more of
them is embedding, which is quantized less."""


def smaller_variants(model: ModelFacts) -> tuple[tuple[str, ModelFacts], ...]:
    """The usual quantizations that would be smaller than the model is, largest first, each with its facts
    scaled by its size; empty where the header does not tell the number of weights."""
    if model.n_params <= 0 or model.model_bytes <= 0:
        return ()
    sizes = {name: round(model.n_params * bits / 8) for name, bits in _BITS_PER_WEIGHT.items()}
    return tuple((name, _scaled(model, size)) for name, size in sizes.items() if size < model.model_bytes)


def _scaled(model: ModelFacts, model_bytes: int) -> ModelFacts:
    share = model_bytes / model.model_bytes
    return dataclasses.replace(
        model,
        model_bytes=model_bytes,
        layer_bytes=tuple(round(share * size) for size in model.layer_bytes),
        layer_expert_bytes=tuple(round(share * size) for size in model.layer_expert_bytes),
        output_bytes=round(share * model.output_bytes),
    )
