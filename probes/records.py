"""Frozen records of facts: what was asked, what the engine resolved, what was measured.

Standard library only. Durations are integer nanoseconds (`_ns`), sizes are bytes (`_bytes`),
lengths are tokens (`_tokens`). None means "not known"; zero is a number. A change is made with
`dataclasses.replace`. All records are saved in run files by `probes.run_files`, so each field keeps
to None, bool, int, float, str, another record, `tuple[X, ...]` or `dict[str, X]`.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

SCHEMA_VERSION = 2
"""Version of the run file. Raise it with an upgrade step in `probes.run_files`."""

CellStatus = Literal["ok", "failed", "skipped"]
CacheState = Literal["cold", "warm", "partial", "unknown"]
"""How much of the file was in the page cache before a load: cold < 5 %, warm > 95 %."""

ModelKind = Literal[
    "decoder", "encoder", "encoder-decoder", "diffusion", "vocabulary", "projector", "adapter"
]
AttentionKind = Literal["full", "sliding-window", "recurrent", "hybrid"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The file that a variant was made from."""

    path: str
    quantization: str
    """Its label."""
    is_quantized: bool
    """It holds quantized weights itself: speed is that of the variant's type, quality is not."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What the header of a model file says."""

    path: str
    """The file that is opened: for a split model its first part."""
    files: tuple[str, ...]
    """All parts, in order."""
    name: str
    """`general.name`, else the file's stem. Untrusted text."""
    architecture: str
    """`general.architecture`, for example `llama`."""
    kind: ModelKind
    attention: AttentionKind
    quantization: str
    """Label such as `Q4_K - Medium`, from `general.file_type`, else the commonest tensor type."""
    file_bytes: int
    """Size of all parts on disk."""
    model_bytes: int
    """Size of all tensors: what is loaded."""
    n_params: int
    """Number of weights."""
    n_layers: int | None
    """Repeating blocks; the engine counts one more for the output layer."""
    n_ctx_train: int | None
    """Context length the model was trained for, in tokens."""
    n_vocab: int | None
    n_embd: int | None
    n_experts: int | None
    n_experts_used: int | None
    sliding_window_tokens: int | None
    tied_output: bool
    """True when the output layer reuses the token embedding."""
    bytes_per_token: int
    """Weight bytes read to generate one token: of the embedding table one row, of experts the share used."""
    kv_elements_per_token: int | None
    """Elements of K and V together that one token adds to the cache, over all layers with a cache."""
    bytes_by_type: dict[str, int]
    """Tensor bytes by ggml type name."""
    has_chat_template: bool
    modified_at: float
    """Modification time of the first part, seconds since the epoch."""
    n_heads: int | None = None
    """Query heads of the first layer."""
    layer_bytes: tuple[int, ...] = ()
    """Tensor bytes of each repeating layer; empty: not known."""
    layer_expert_bytes: tuple[int, ...] = ()
    """Of these, the bytes of experts."""
    layer_kv_elements: tuple[int, ...] = ()
    """Elements of K and V that one token adds, by layer; empty: not known or none."""
    output_bytes: int = 0
    """What the output layer takes to a device: its matrix and norm; a tied embedding is copied there."""
    made_from: Origin | None = None
    """Of a variant that was made for comparison; None: the file is the user's own."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """A device that the engine build can use."""

    name: str
    """The engine's name: `CPU`, `CUDA0`, `Metal`, `RPC0`."""
    description: str
    kind: Literal["cpu", "gpu", "igpu", "accel", "meta", "unknown"]
    memory_total_bytes: int | None
    memory_free_bytes: int | None
    pci_id: str | None = None
    """Where it sits on the PCI bus, `0000:01:00.0`; None where the engine does not tell."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """The engine as installed, reported by a worker process."""

    version: str
    """For example `llama-cpp-python 0.3.36`."""
    commit: str | None
    """The llama.cpp / ggml commit inside it."""
    system_info: str
    """The engine's own feature line (`CPU : AVX2 = 1 | ...`)."""
    devices: tuple[DeviceFacts, ...]
    supports_gpu_offload: bool
    supports_mmap: bool
    supports_mlock: bool
    supports_rpc: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU of this machine, as its driver tells. None: this GPU or driver does not."""

    index: int
    """Its number on this machine: NVIDIA's first, then AMD's."""
    name: str
    """Untrusted text."""
    driver: str | None
    """For example `NVIDIA 570.86.15`."""
    pci_id: str | None
    """`0000:01:00.0`, lower case."""
    memory_total_bytes: int | None
    link_generation: int | None
    """PCI Express generation in use now: an idle GPU lowers it."""
    link_generation_max: int | None
    """The most that GPU and slot can do together."""
    link_width: int | None
    """Lanes in use."""
    link_width_max: int | None
    power_limit_w: float | None
    temperature_limit_c: float | None
    """From here on the driver lowers the clock."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """One GPU at one moment, as its driver tells. None: this GPU or driver does not."""

    index: int
    """As in `GpuFacts`."""
    utilization: float | None
    """Share of the driver's last sampling period in which kernels ran, 0 to 1."""
    clock_hz: float | None
    """Of the multiprocessors."""
    clock_max_hz: float | None
    throttle_reasons: tuple[str, ...] | None
    """Why the clock is held down now: `power-cap`, `thermal`, `hardware`, ...; being idle is none."""
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    shared_memory_bytes: int | None
    """System memory that the GPU uses as its own (spill, GTT)."""
    power_w: float | None
    temperature_c: float | None
    foreign_processes: int | None
    """Other processes that compute on it."""
    memory_utilization: float | None = None
    """Share of the same period in which its memory was read or written."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """The machine as it is before measuring. Each None has its reason in `unknown`."""

    os: str
    python: str
    cpu_name: str | None
    logical_cpus: int | None
    physical_cpus: int | None
    usable_cpus: int
    """Cores this process may really use: affinity, cgroup quota, performance cores."""
    usable_cpus_reason: str
    """What limits them, for example `2 logical CPUs`, `cgroup quota 1.5 CPUs`."""
    memory_bytes: int | None
    memory_available_bytes: int | None
    memory_limit_bytes: int | None
    """The cgroup's limit, where one is set."""
    swap_used_bytes: int | None
    gpu_names: tuple[str, ...]
    """GPUs that drivers report, usable by this engine build or not."""
    unknown: dict[str, str]
    """Field name -> why it is not known."""
    gpus: tuple[GpuFacts, ...] = ()
    """The same GPUs with all that their drivers tell."""
    gpu_states: tuple[GpuState, ...] = ()
    """What they did before measuring."""


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
class LoadSample:
    """One load in a fresh process."""

    cache_state: CacheState
    cached_fraction: float | None
    """Share of the file in the page cache before; None when it can not be known."""
    open_ns: int
    """From the call to the first tensor: header, vocabulary, buffers."""
    tensors_ns: int
    context_ns: int
    first_touch_ns: int
    """The first single-token evaluation: pages that mmap left on disk are read here."""
    disk_read_bytes: int | None
    """Bytes this process read from storage during the load."""
    started_ns: int

    @property
    def total_ns(self) -> int:
        """All stages together, first touch included."""
        return self.open_ns + self.tensors_ns + self.context_ns + self.first_touch_ns


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CellSample:
    """One pass over one cell."""

    pass_index: int
    """0 is the first pass in the process: kept and labelled."""
    started_ns: int
    head_ns: int
    """Whole chunks before the tail."""
    tail_ns: int
    """The last chunk, which asks for logits. 0 when the prompt is empty."""
    decode_ns: tuple[int, ...]
    """Each decode step, first step first."""
    disturbed: tuple[str, ...] = ()
    """What else took the machine while its pass ran: `foreign-cpu`, `steal`, `throttled`, `swap-in`. Empty:
    nothing, or the pass was too short to tell."""

    @property
    def prefill_ns(self) -> int:
        """The whole prompt: the micro-batches that a fresh prompt of this length runs."""
        return self.head_ns + self.tail_ns


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """One prompt length of a load group."""

    prompt_tokens: int
    """0: decode at an empty cache."""
    output_tokens: int
    status: CellStatus
    reason: str | None
    """Why it is failed or skipped: a code, then words: `budget: ...`, `crash: ...`, `memory: ...`."""
    samples: tuple[CellSample, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PassSample:
    """One walk over the lengths, as a whole."""

    pass_index: int
    started_ns: int
    wall_ns: int
    engine_ns: int
    """Time inside engine calls; wall minus engine is our own cost."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeSample:
    """Tokenizing a text of about one cell's prompt."""

    prompt_tokens: int
    """Of the cell."""
    text_bytes: int
    duration_ns: int
    evaluated_tokens: int | None = None
    """Tokens that came out: text and tokens do not always convert back one to one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSample:
    """One draw of the next token from ready logits."""

    chain: Literal["default", "greedy"]
    duration_ns: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RequestSample:
    """One whole request run as a user's would be, each part timed, the wall around all of it."""

    prompt_tokens: int
    output_tokens: int
    tokenize_ns: int
    prefill_ns: int
    decode_ns: int
    sampling_ns: int
    ttft_ns: int
    """From the text to the first sampled token, the load not included."""
    wall_ns: int
    cached_tokens: int = 0
    """Of the prompt, in the cache before the request began: not evaluated, not timed."""

    @property
    def unaccounted_ns(self) -> int:
        """Wall minus the phases."""
        return self.wall_ns - self.tokenize_ns - self.prefill_ns - self.decode_ns - self.sampling_ns


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """What else the machine did in one interval while we measured. None: not known here."""

    started_ns: int
    duration_ns: int
    phase: str
    """What the worker was doing: `load`, `walk`, ..."""
    foreign_cpus: float | None
    """CPUs' worth of time used by other processes."""
    steal_fraction: float | None
    throttled_fraction: float | None
    """Share of the interval in which the cgroup was throttled."""
    swap_in_bytes: int | None
    major_faults: int | None
    """Of the worker."""
    disk_read_bytes: int | None
    """Of the worker."""
    memory_available_bytes: int | None
    cpu_clock_hz: float | None
    """Of the CPU on which the worker's first thread last ran."""
    gpus: tuple[GpuState, ...] = ()
    """Each GPU that a driver reports, at the end of the interval; empty without one."""
    cpu_clock_max_hz: float | None = None
    """The highest clock of that CPU."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another process that used CPU time."""

    name: str
    """Untrusted text."""
    cpus: float
    """CPUs' worth of time."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """What may disturb or slow a run, before it. Each None that means "not known" has its reason in
    `unknown`."""

    governor: str | None
    """How the kernel chooses clocks: `performance`, `powersave` ...; several values comma-joined."""
    clock_driver: str | None
    """`intel_pstate`, `amd-pstate-epp`, `acpi-cpufreq` ...: with the first two `powersave` still boosts."""
    energy_preference: str | None
    """`performance` to `power`, where the processor chooses by itself."""
    power_plan: str | None
    """Of Windows or macOS: `high performance`, `balanced`, `power saver`, `low power`, `automatic`."""
    turbo: bool | None
    on_battery: bool | None
    """False too where there is no battery."""
    temperature_c: float | None
    """The hottest of the processor."""
    temperature_limit_c: float | None
    """At which it slows down, where told."""
    neighbours: tuple[Neighbour, ...]
    """Processes that use CPU right now."""
    cpu_quota: float | None
    """CPUs that the control group grants; None: no limit."""
    throttled_fraction: float | None
    """Share of the quota's periods in which the group was stopped so far; None: no quota at work."""
    container: str | None
    """`docker`, `podman`, `kubernetes`, `wsl` ...; None: none is noticed."""
    virtual_machine: bool | None
    cpu_features: tuple[str, ...] | None
    """Instruction sets as the kernel names them."""
    page_bytes: int
    huge_pages: str | None
    """`always`, `madvise`, `never`; None: the system has no such setting."""
    disk_free_bytes: int | None
    """Where runs are saved."""
    unknown: dict[str, str]
    """Field name -> why it is not known."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SelfTestRound:
    """One round over small models of known work, all of them in turn."""

    decode_ns: tuple[int, ...]
    """Steps of the single model."""
    doubled_decode_ns: tuple[int, ...]
    """Steps of the one with twice the layers, at the same depths."""
    walk_prefill_ns: dict[str, int]
    """Prompt length in tokens -> prefill, all lengths from one walk."""
    fresh_prefill_ns: dict[str, int]
    """The same lengths, each evaluated alone in a process of its own."""
    request: RequestSample


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Memory of a device during the run."""

    device: str
    used_bytes: int
    """Total minus free right after the passes; what others use is in it."""
    total_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """All that one load group (one model with one set of settings) gave."""

    model: ModelFacts
    settings: Settings
    resolved: Resolved | None
    """None when the load failed."""
    status: CellStatus
    reason: str | None
    loads: tuple[LoadSample, ...]
    cells: tuple[CellResult, ...]
    passes: tuple[PassSample, ...]
    tokenize: tuple[TokenizeSample, ...]
    sampling: tuple[SamplingSample, ...]
    requests: tuple[RequestSample, ...]
    engine_warnings: tuple[str, ...]
    """Warnings and errors of the engine's log, cleaned and cut."""
    peak_memory_bytes: int | None
    """Peak resident memory of the measuring process."""
    device_memory: tuple[DeviceMemory, ...]
    warnings: tuple[str, ...] = ()
    """What went wrong or was done otherwise while measuring it, beside the reasons of its cells."""


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KernelRate:
    """One matrix product run with the engine's own kernels on one device."""

    rows: int
    """Rows of the weight matrix (n_out)."""
    columns: int
    """Columns of the weight matrix (n_in)."""
    batch: int
    """Columns of the other factor: 1 is matrix-vector (decode), more is matrix-matrix (prefill)."""
    weight_type: str
    """ggml type name of the weights."""
    seconds: float
    """Median for one product."""
    weight_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCeiling:
    """What one device can do at most, measured with the engine's own kernels."""

    device: str
    threads: int | None
    """Of a CPU device; None elsewhere."""
    memory_bytes_s: float | None
    """Weight bytes per second of large matrix-vector products."""
    compute_flops_s: float | None
    """2 * rows * columns * batch per second of large matrix-matrix products."""
    operation_s: float | None
    """Cost of one graph operation that moves next to nothing."""
    transfer_bytes_s: float | None
    """Host to device; None for the host itself."""
    rates: tuple[KernelRate, ...]
    """The products behind the figures, large and of the model's own shapes."""
    unknown: dict[str, str]
    """Field name -> why it is not known."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LinkFacts:
    """The way to one RPC server, measured through the engine's own protocol before the first load."""

    server: str
    """`host:port`, as asked for."""
    round_trip_s: float | None
    """Median of many small requests, each answered before the next."""
    to_bytes_s: float | None
    """Bytes per second into the server's memory, the round trip taken off."""
    from_bytes_s: float | None
    """Bytes per second back."""
    unknown: dict[str, str]
    """Field name -> why it is not known; `server` where nothing could be measured."""


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
class Run:
    """Everything one command measured: raw samples, facts, settings."""

    schema_version: int
    run_id: str
    """Sorts by time: `20261130T205545Z-1a2b3c`."""
    started_at: str
    """UTC, ISO 8601 with `Z`."""
    llmphase_version: str
    finished: bool
    """False while measuring and after an interruption."""
    options: Options
    machine: MachineFacts
    engine: EngineFacts | None
    """None until a worker has reported."""
    groups: tuple[GroupResult, ...]
    disturbances: tuple[Disturbance, ...]
    wall_ns: int
    """Of the whole measurement, from the plan to the last cell."""
    warnings: tuple[str, ...]
    """What could not be read or was out of the ordinary, each with what to do."""
    workload: Workload | None = None
    """The request that was diagnosed; None for a profile."""
    ceilings: tuple[DeviceCeiling, ...] = ()
    """Empty when they were not measured."""
    neighbours: tuple[Neighbour, ...] = ()
    """Other processes that took CPU while measuring, busiest first."""
    links: tuple[LinkFacts, ...] = ()
    """One for each RPC server asked for."""
