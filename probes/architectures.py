"""What llama.cpp's architectures are: which generate text, and what they remember of a context.

Source: `llm_arch_is_recurrent`, `llm_arch_is_hybrid` and `llm_arch_is_diffusion` in
`llama-arch.cpp`, `llama_model::create_memory` in `llama-model.cpp` and the files under
`src/models`, as of llama-cpp-python 0.3.36.
"""

from __future__ import annotations

RECURRENT = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})

HYBRID = frozenset(
    {
        "bailingmoe3",
        "deepseek4",
        "falcon-h1",
        "glm5-next",
        "granitehybrid",
        "jamba",
        "kimi-k3",
        "kimi-linear",
        "lfm2",
        "lfm2moe",
        "minimax-01",
        "nemotron_h",
        "nemotron_h_moe",
        "plamo2",
        "qwen35",
        "qwen35moe",
        "qwen3next",
        "qwen4exp",
    }
)

DIFFUSION = frozenset({"dream", "llada", "llada-moe", "rnd1"})

ENCODERS = frozenset(
    {
        "bert",
        "eurobert",
        "gemma-embedding",
        "jina-bert-v2",
        "jina-bert-v3",
        "llama-embed",
        "modern-bert",
        "neo-bert",
        "nomic-bert",
        "nomic-bert-moe",
        "t5encoder",
        "wavtokenizer-dec",
    }
)
"""Embedding and audio models: the engine gives them no memory to decode with."""

ENCODER_DECODERS = frozenset({"t5"})

COMPANIONS = frozenset({"dflash", "eagle3", "gemma4-assistant"})
"""Draft heads that only run beside the model whose states they read."""

PROJECTORS = frozenset({"clip"})

WINDOW_IGNORED = frozenset({"phi3"})
"""Their files name a sliding window that the engine does not use."""

CHUNKED_WINDOW_TOKENS = {"llama4": 8192}
"""Attention in chunks of a length that the engine knows and the file does not say."""

FIXED_WINDOW_TOKENS = {"smallthinker": 4096}
"""Whatever length the file says, if it says one."""

DEFAULT_WINDOW_TOKENS = {"exaone4": 4096, "gemma2": 4096}
"""Where the file does not say."""

WINDOW_PERIODS = {
    "afmoe": (4, "last"),
    "cohere2": (4, "last"),
    "cohere2moe": (4, "first"),
    "exaone-moe": (4, "last"),
    "exaone4": (4, "last"),
    "gemma2": (2, "last"),
    "gemma3": (6, "last"),
    "gemma3n": (5, "last"),
    "gpt-oss": (2, "last"),
    "laguna": (4, "first"),
    "llama4": (4, "last"),
    "mellum": (4, "last"),
    "muse-glimmer": (4, "last"),
    "olmo2": (4, "last"),
    "plamo3": (8, "last"),
    "smallthinker": (4, "first"),
}
"""Of how many layers one attends to the whole context, where the file does not say, and which of them.
Source: the calls of `load_swa_pattern` (`llama-model.cpp`) in `load_arch_hparams`."""

WINDOW_IN_EVERY_LAYER = frozenset({"lfm2"})
"""All layers that attend, whatever pattern the file names."""

EVERY_LAYER_ATTENDS = frozenset({"falcon-h1"})
"""Hybrids whose layers hold attention and a recurrent state side by side."""

KV_LAYERS_FROM_START = {"gemma3n": 20}
"""The first layers have a cache and the later ones reuse it; the engine knows the number."""

UNUSUAL_CACHES = frozenset(
    {
        "bailingmoe3",
        "deepseek32",
        "deepseek4",
        "dots3note",
        "glm-dsa",
        "glm5-next",
        "graniteswitch",
        "hrm_text",
        "hy_v4",
        "kimi-k3",
        "minimax-01",
        "minimax-m3",
        "nanbeige",
        "qwen4exp",
        "t5",
    }
)
"""Compressed caches, index caches or repeated layers: the general formula does not hold."""
