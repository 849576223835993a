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
