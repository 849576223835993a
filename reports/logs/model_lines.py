"""What llama.cpp prints of a model's header (`print_info: n_layer = 30`, older `llm_load_print_meta`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from reports.logs.numbers import size_bytes
from reports.text import clean

_COUNTS = (("n_layer", "n_layers"), ("n_expert", "n_experts"), ("n_expert_used", "n_experts_used"))
_PARAMS = re.compile(r"([\d.]+)\s*([KMBT])")
_SCALES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def model_facts(info: Mapping[str, str]) -> dict[str, Any]:
    """Facts out of the printed names and values, as far as they have come."""
    facts: dict[str, Any] = {
        name: int(info[key]) for key, name in _COUNTS if info.get(key, "").isdecimal() and int(info[key])
    }
    if info.get("n_expert", "").isdecimal():
        facts["architecture_is_moe"] = facts.get("n_experts", 0) > 1
    size = size_bytes(info.get("file size") or info.get("model size") or "")
    kind = info.get("file type") or info.get("model ftype")
    if kind:
        facts["quantization"] = clean(kind, limit=60)
    if size:
        facts["model_bytes"] = size
        active = 1.0 if facts.get("architecture_is_moe") is False else _active_share(info)
        if active is not None:
            facts["bytes_per_token"] = round(size * active)
    return facts


def _active_share(info: Mapping[str, str]) -> float | None:
    """Of a mixture of experts, the weights that a token uses over all. An expert has three matrices of the
    embedding's width times its own; what is in none is used by each token."""
    names = ("n_embd", "n_ff_exp", "n_layer", "n_expert", "n_expert_used")
    values = [int(info[name]) for name in names if info.get(name, "").isdecimal()]
    params = _params(info.get("model params", ""))
    if len(values) != len(names) or not params or values[3] < 2:
        return None
    width, inner, layers, experts, used = values
    in_experts = 3 * width * inner * layers * experts
    return 1 - in_experts * (1 - used / experts) / params if 0 < in_experts < params else None


def _params(text: str) -> float | None:
    match = _PARAMS.match(text)
    return float(match[1]) * _SCALES[match[2]] if match else None
