"""What follows from facts layer by layer, by the engine's own rules: plain arithmetic on records."""

from __future__ import annotations

from probes.records.model import ModelFacts

CONTEXT_STEP = 256
"""The engine rounds contexts and windowed caches up to a multiple of this many tokens."""


def padded(n_tokens: int) -> int:
    """Tokens rounded up to the engine's step."""
    return -(-n_tokens // CONTEXT_STEP) * CONTEXT_STEP


def layer_cells(model: ModelFacts, n_ctx: int, n_ubatch: int, *, swa_full: bool) -> tuple[int, ...]:
    """Tokens that the cache of each layer in `layer_kv_elements` holds.

    A layer that attends to the whole context holds n_ctx; unless `swa_full`, a windowed one holds the window
    and one micro-batch (llama.cpp, `llama_kv_cache_iswa`). Where it is not known which layers are windowed
    all are taken to be: the least there can be.
    """
    n_layers = len(model.layer_kv_elements)
    if model.sliding_window_tokens is None or swa_full:
        return (n_ctx,) * n_layers
    short = min(n_ctx, padded(model.sliding_window_tokens + n_ubatch))
    is_known = len(model.layer_windowed) == n_layers
    windowed = model.layer_windowed if is_known else (True,) * n_layers
    return tuple(short if is_windowed else n_ctx for is_windowed in windowed)


def first_on_device(n_layers: int, placed: int) -> int:
    """The first of `n_layers` repeating layers that lies on a device with `placed` there, the output layer
    counting as one: that one goes first, then layers from the last one down (llama.cpp,
    `llama_model_base::load_tensors`). n_layers + 1: not even the output layer does."""
    return max(0, n_layers + 1 - placed)


def moving_bytes(model: ModelFacts, layer: int, n_cpu_moe: int) -> tuple[int, int]:
    """Weight bytes of a repeating layer that go where it lies: of what every token reads, and of experts,
    which stay on the host in the first `n_cpu_moe` layers. A layer that a run file says nothing of has
    none."""
    experts = model.layer_expert_bytes[layer] if layer < len(model.layer_expert_bytes) else 0
    return model.layer_bytes[layer] - experts, 0 if layer < n_cpu_moe else experts
