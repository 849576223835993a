"""What was asked: engine settings, measuring options, the request; and what the engine made of it."""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What was asked of the engine. None leaves the choice to the engine."""

    n_gpu_layers: int | None
    """-1: all layers; None: the engine's own choice (`auto`)."""
    n_ctx: int
    n_batch: int
    n_ubatch: int
    threads: int
    threads_batch: int
    flash_attn: Literal["on", "off", "auto"]
    type_k: str
    type_v: str
    load_mode: Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"]
    swa_full: bool
    """Full-size cache for sliding-window layers."""
    repack: bool = True
    """Let the engine lay weights out anew for this CPU's instructions (llama.cpp: `--repack`)."""
    kv_offload: bool = True
    """Keep the KV cache beside the layers on their device; False: in host memory."""
    op_offload: bool = True
    """Copy host weights to a device for large batches and multiply there."""
    n_cpu_moe: int = 0
    """Layers, from the first, whose expert weights stay on the host."""
    override_tensor: tuple[str, ...] = ()
    """`PATTERN=BUFFER`: tensors whose name matches the regular expression go to that buffer type."""
    split_mode: Literal["none", "layer", "row", "tensor"] = "layer"
    """How several devices share the model."""
    tensor_split: tuple[float, ...] = ()
    """Proportions for each device; empty: by free memory."""
    devices: tuple[str, ...] = ()
    """Names of the devices to use; empty: all."""
    main_gpu: int = 0
    """Index of the device that holds everything with `split_mode` none."""
    rpc_servers: tuple[str, ...] = ()
    """`host:port` of machines whose devices are used too."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Bytes on one device or buffer type, as the engine's log reports them."""

    buffer: str
    """`CPU`, `CPU_Mapped`, `CPU_REPACK`, `CUDA0`, `CUDA_Host`, `RPC0[...]` ..."""
    model_bytes: int
    kv_bytes: int
    """KV cache and recurrent state."""
    compute_bytes: int
    output_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What the engine really did, read back after loading."""

    n_gpu_layers: int | None
    """Layers placed on devices."""
    layers_total: int | None
    """Repeating layers + 1."""
    n_ctx: int
    n_batch: int
    n_ubatch: int
    threads: int
    threads_batch: int
    flash_attn: str | None
    """`enabled`, `disabled`, or None when the engine did not say."""
    graph_splits: int | None
    graph_nodes: int | None
    cache_cut: Literal["remove", "state"]
    """How the cache is cut back: by removing positions, or by restoring the sequence state."""
    chunk_tokens: int
    """Tokens by which the walk moves: one micro-batch, or one batch where devices can pipeline."""
    placements: tuple[Placement, ...]
    backend: str
    """Comma-joined device families that hold weights: `CPU`, `CUDA`, `CUDA,CPU`."""
    description: str | None = None
    """The engine's own words for the model: `llama 256M Q4_1`. Untrusted text."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the run was to be measured."""

    prompt_tokens: tuple[int, ...]
    output_tokens: int
    repetitions: int | None
    """Passes exactly, when asked for; None: until `precision` or the budget."""
    precision: float
    """Wanted half-width of each median's interval, as a share of the median."""
    budget_ns: int
    tokens: Literal["text", "random"]
    seed: int
    cold: bool
    defaulted: tuple[str, ...]
    """Names of the settings and options that took a default."""
    cell_timeout_ns: int | None = None
    """An engine that gives no sign of life for so long is taken to hang; None: by what it should take."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the user does with the model: the request that a diagnosis is about."""

    prompt_tokens: int
    """The whole prompt, the cached part included."""
    cached_tokens: int
    """Of the prompt, what a runtime takes from its prefix cache and does not evaluate."""
    output_tokens: int
    start: Literal["cold", "warm", "loaded"]
    """Which load is part of the wait; `loaded`: none, the model is in memory already."""
    turns: int = 1
    """Turns of a chat whose history grows by prompt and output each time."""
    source: str = "tokens"
    """Where the prompt came from: a file's name, `standard input`, `tokens`. Untrusted text."""
