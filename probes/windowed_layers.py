"""Which layers attend to a window of the last tokens alone, from a model's header."""

from __future__ import annotations

from probes import architectures as arch
from probes.gguf_reader import Header


def sliding_window(header: Header, architecture: str) -> int | None:
    """Length of the window in tokens; None where the engine uses none."""
    window = header.integer(f"{architecture}.attention.sliding_window")
    if architecture in arch.WINDOW_IGNORED or window == 0:
        return None
    if architecture == "exaone4" and header.integer(f"{architecture}.block_count") != 64:
        return None  # the engine uses the window in the largest model of this family alone
    if window is None:
        window = arch.DEFAULT_WINDOW_TOKENS.get(architecture)
    elif architecture in arch.FIXED_WINDOW_TOKENS:
        return arch.FIXED_WINDOW_TOKENS[architecture]
    return arch.CHUNKED_WINDOW_TOKENS.get(architecture, window)


def windowed_layers(header: Header, architecture: str, n_layers: int) -> tuple[bool, ...] | None:
    """Whether each layer attends to the window alone; None where neither file nor engine's table tells.

    As `llama_model_base::load_swa_pattern` and `llama_hparams::set_swa_pattern` have it: an array tells each
    layer; a number is the period, in which one layer attends to the whole context (0: none does); the layers
    that guess ahead come last and always attend to it.
    """
    if architecture in arch.WINDOW_IN_EVERY_LAYER:
        return (True,) * n_layers
    key = f"{architecture}.attention.sliding_window_pattern"
    if isinstance(header.metadata.get(key), tuple):
        listed = header.integers(key, n_layers)
        return None if listed is None else tuple(map(bool, listed))
    if key in header.array_lengths or architecture not in arch.WINDOW_PERIODS:
        return None
    period, whole = arch.WINDOW_PERIODS[architecture]
    said = header.integer(key)
    period = period if said is None else said
    n_ahead = header.integer(f"{architecture}.nextn_predict_layers") or 0
    whole_at = 0 if whole == "first" else period - 1
    return tuple(
        layer < n_layers - n_ahead and (period == 0 or layer % period != whole_at)
        for layer in range(n_layers)
    )
