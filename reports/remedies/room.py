"""Levers that make room on devices for more layers: a smaller context or cache, experts on the host, smaller
weights."""

from __future__ import annotations

from collections.abc import Iterator

from reports import units
from reports.evidence import PlacementOption
from reports.phases import Estimate
from reports.remedies.base import Remedy, Situation, Tool, Trial, computed, placed
from reports.remedies.quantizations import BITS_PER_WEIGHT, NAMES, TRIED_BYTES, digit_of

_BASIS = "the measured rates of host and device at this model's own sizes"


def levers(situation: Situation) -> Iterator[Remedy | None]:
    """One for each way that places more layers than fit now."""
    for option in situation.evidence.placement_options:
        if option.way == "weights":
            yield _smaller_weights(situation, option)
        else:
            yield _more_room(situation, option)


def _more_room(situation: Situation, option: PlacementOption) -> Remedy | None:
    total = situation.evidence.layers_total
    layers = -1 if option.layers == total else option.layers
    words = "all" if layers < 0 else str(layers)
    number = "999" if layers < 0 else str(layers)
    settings: dict[str, object] = {"n_gpu_layers": layers}
    how: dict[Tool, str]
    if option.way == "context":
        tokens = int(option.setting)
        title = f"ask for a context of {units.count(tokens)} tokens: room for {option.layers} layers"
        cost = "no longer prompts or answers"
        settings["n_ctx"] = tokens
        how = {
            "llmphase": f"--ctx {tokens} --gpu-layers {words}",
            "llama.cpp": f"--ctx-size {tokens} --n-gpu-layers {number}",
            "ollama": f"PARAMETER num_ctx {tokens}",
            "lm-studio": f"Context Length: {tokens}",
        }
    elif option.way == "cache":
        title = f"keep the KV cache in q8_0: room for {option.layers} layers"
        cost = "a little accuracy at long contexts"
        settings |= {"type_k": "q8_0", "type_v": "q8_0", "flash_attn": "on"}
        how = {
            "llmphase": f"--type-k q8_0 --type-v q8_0 --flash-attn on --gpu-layers {words}",
            "llama.cpp": f"--cache-type-k q8_0 --cache-type-v q8_0 --flash-attn on --n-gpu-layers {number}",
            "ollama": "OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_FLASH_ATTENTION=1",
            "lm-studio": "K and V Cache Quantization Type: q8_0, Flash Attention on",
        }
    else:
        kept = int(option.setting)
        title = f"keep the experts of {kept} layers on the host, and all the rest on the device"
        cost = "none"
        settings["n_cpu_moe"] = kept
        how = {
            "llmphase": f"--gpu-layers all --n-cpu-moe {kept}",
            "llama.cpp": f"--n-gpu-layers 999 --n-cpu-moe {kept}",
            "lm-studio": "Force Model Expert Weights onto CPU: on, GPU Offload: all",
        }
    return computed(
        situation,
        situation.wait(**_parts(situation, option, 1.0)),
        code=f"room-by-{option.way}",
        title=title,
        basis=_BASIS,
        how=how,
        cost=cost,
        try_with=Trial(settings=settings),
    )


def _smaller_weights(situation: Situation, option: PlacementOption) -> Remedy | None:
    """The largest quantization of which all layers fit."""
    digit = digit_of(situation.evidence.quantization)
    now = BITS_PER_WEIGHT.get(digit)
    if now is None:
        return None
    fitting = [
        bits for bits in BITS_PER_WEIGHT if bits < digit and BITS_PER_WEIGHT[bits] / now <= option.setting
    ]
    if not fitting:
        return None
    size = situation.evidence.model_bytes
    is_small = size is not None and size <= TRIED_BYTES
    name, ratio = NAMES[max(fitting)], BITS_PER_WEIGHT[max(fitting)] / now
    return computed(
        situation,
        situation.wait(**_parts(situation, option, ratio)),
        code="quantization-that-fits",
        title=f"use {name}: the largest quantization of which all layers fit on the device",
        basis=f"{_BASIS}; decode reads {units.percent(ratio)} of the bytes",
        how={
            "llmphase": f"--quant {name} --gpu-layers all, or name a {name} file",
            "llama.cpp": f"take the {name} file, with --n-gpu-layers 999",
            "ollama": f"ollama pull NAME:TAG-{name.lower()}",
            "lm-studio": f"download the {name} variant, GPU Offload: all",
        },
        cost="quality, most of it below 4 bits",
        try_with=Trial(settings={"n_gpu_layers": -1}, quantization=name) if is_small else None,
    )


def _parts(situation: Situation, option: PlacementOption, ratio: float) -> dict[str, Estimate]:
    """Both phases then; of smaller weights a step reads the share that they have."""
    waits, now = situation.waits, situation.evidence.decode_step_s
    parts = {}
    if waits.decode_s is not None and now:
        decode_s = waits.decode_s * option.decode_step_s * ratio / now
        parts["decode"] = placed(situation.evidence, decode_s, waits.decode_s, situation.least_decode_s)
    if waits.prefill_s is not None and option.prefill_s is not None:
        least_s = situation.evidence.prefill_ceiling_s
        parts["prefill"] = placed(situation.evidence, option.prefill_s, waits.prefill_s, least_s)
    return parts
