"""How much one token adds to the KV cache, from a model's header."""

from __future__ import annotations

from collections.abc import Iterable

from probes import architectures as arch
from probes.gguf_reader import Header, TensorInfo
from probes.windowed_layers import windowed_layers

MAX_LAYERS = 512
"""LLAMAMAX_LAYERS of llama.cpp; a header that claims more is not to be believed."""


def kv_elements_by_layer(
    header: Header, architecture: str, tensors: Iterable[TensorInfo]
) -> tuple[int, ...] | None:
    """Return the elements of K and V that one token adds, for each layer (0: it has no cache).

    A layer adds `n_head_kv * (key_length + value_length)`; with latent attention (MLA) only
    `n_head_kv * key_length`, since V is a part of K there; a recurrent layer adds nothing. Source:
    the constructor of `llama_kv_cache` in `llama-kv-cache.cpp`. Sliding-window layers count
    like the others: they add as much until their window is full. None when the header does not say
    enough, or the architecture keeps something else than K and V.
    """
    if architecture in arch.RECURRENT:
        return ()
    n_layers = header.integer(f"{architecture}.block_count")
    if n_layers is None or n_layers > MAX_LAYERS or architecture in arch.UNUSUAL_CACHES:
        return None
    heads = _kv_heads(header, architecture, n_layers)
    sizes = _head_sizes(header, architecture, n_layers)
    if heads is None or sizes is None:
        return None
    cached = set(_cached_layers(header, architecture, n_layers, tensors))
    elements = []
    for layer in range(n_layers):
        size = sizes[layer] if layer in cached and heads[layer] else 0
        if size is None:
            return None
        elements.append(heads[layer] * size)
    return tuple(elements)


def _kv_heads(header: Header, architecture: str, n_layers: int) -> tuple[int, ...] | None:
    """KV heads by layer; a file that does not say has as many as query heads."""
    key = f"{architecture}.attention.head_count"
    kv_key = f"{key}_kv"
    return header.integers(kv_key if kv_key in header.metadata else key, n_layers)


def _head_sizes(header: Header, architecture: str, n_layers: int) -> list[int | None] | None:
    """Elements of K and V per head, by layer; None for a layer whose size the file does not say."""
    full = _head_size(header, architecture, "")
    if f"{architecture}.attention.key_length_swa" not in header.metadata:
        return [full] * n_layers
    windowed = windowed_layers(header, architecture, n_layers)
    if windowed is None:
        return None
    short = _head_size(header, architecture, "_swa")
    return [short if is_windowed else full for is_windowed in windowed]


def _head_size(header: Header, architecture: str, suffix: str) -> int | None:
    prefix = f"{architecture}.attention."
    default = _default_head_size(header, architecture)
    key = header.integer(f"{prefix}key_length{suffix}") or default
    if header.integer(f"{prefix}key_length_mla"):
        return key
    value = header.integer(f"{prefix}value_length{suffix}") or default
    return key + value if key and value else None


def _default_head_size(header: Header, architecture: str) -> int | None:
    n_embd = header.integer(f"{architecture}.embedding_length")
    heads = header.integers(f"{architecture}.attention.head_count", 1)
    return n_embd // heads[0] if n_embd and heads and heads[0] else None


def _cached_layers(
    header: Header, architecture: str, n_layers: int, tensors: Iterable[TensorInfo]
) -> list[int]:
    """The layers that hold a KV cache of their own."""
    n_ahead = header.integer(f"{architecture}.nextn_predict_layers") or 0
    n_shared = header.integer(f"{architecture}.attention.shared_kv_layers") or 0
    limit = arch.KV_LAYERS_FROM_START.get(architecture, n_layers - n_shared)
    layers = range(max(0, min(n_layers - n_ahead, limit)))
    if architecture not in arch.HYBRID or architecture in arch.EVERY_LAYER_ATTENDS:
        return list(layers)
    recurrent = {tensor.name.split(".")[1] for tensor in tensors if ".ssm_" in tensor.name}
    return [layer for layer in layers if str(layer) not in recurrent]
