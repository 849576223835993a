"""Evidence: every fact that a verdict may use, each optional, and where each comes from.

A fresh run, a saved one, another tool's log and a facts file all become `Evidence`, so the same rules judge
all of them. None means not known; zero is a number. Rates are per second, shares run from 0 to 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from probes.records import Neighbour

Source = Literal["measured", "header", "log", "reported", "estimated", "data sheet"]
"""`measured`: timed or counted by this program; `header`: the model file; `log`: what the engine said it did;
`reported`: another tool or a person; `estimated`: worked out from other facts; `data sheet`: the maker's."""

GPU_BACKENDS = frozenset({"cuda", "rocm", "hip", "metal", "vulkan", "sycl", "opencl", "musa", "cann"})
"""Device families of llama.cpp that run on a GPU, in lower case."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOption:
    """A way to get more layers onto devices that have no room for all of them, and what it would do."""

    way: Literal["context", "cache", "experts", "weights"]
    """A context no larger than needed; a q8_0 cache; experts of some layers on the host; smaller weights."""
    layers: int
    """On devices then, the output layer counting as one."""
    setting: float
    """The context in tokens; layers whose experts stay; the share of the weights' bytes that has room. 0 for
    the cache."""
    decode_step_s: float
    """Predicted. With smaller weights: as if the present ones had room."""
    prefill_s: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OtherKernels:
    """Seconds of a token's weight products at the model's own shapes: as they are run, and as they would be
    in another quantization or on other threads."""

    name: str
    """`Q3_K_M`, or the number of threads."""
    step_now_s: float
    """Of a generated token."""
    step_then_s: float
    prompt_token_now_s: float
    """Of a prompt token in a whole micro-batch."""
    prompt_token_then_s: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One request on one model, with all that is known about it."""

    # --- model
    model_bytes: int | None = None
    """All tensors."""
    bytes_per_token: int | None = None
    """Weight bytes read to generate one token."""
    n_layers: int | None = None
    n_experts: int | None = None
    n_experts_used: int | None = None
    quantization: str | None = None
    """Label, untrusted text."""
    architecture_is_moe: bool | None = None
    kv_bytes_per_token: float | None = None
    """What one token adds to the KV cache with the types in use."""

    # --- device
    gpu_present: bool | None = None
    """The machine has a GPU, used or not."""
    gpu_name: str | None = None
    gpu_memory_bytes: int | None = None
    """Of all devices together."""
    gpu_memory_free_bytes: int | None = None
    """Before the load, of all devices together."""
    gpu_bandwidth_bytes_s: float | None = None
    """Of one device."""
    gpu_memory_used_bytes: int | None = None
    gpu_shared_memory_bytes: int | None = None
    """System memory that the driver lends the GPU: what has spilled."""
    unified_memory: bool | None = None
    """CPU and GPU share one memory."""
    n_gpus: int | None = None
    remote_devices: int | None = None
    """Devices on other machines, reached over the network."""

    # --- host
    cpu_name: str | None = None
    logical_cpus: int | None = None
    usable_cpus: float | None = None
    """Cores this process may really use: quota (1.5 is possible), affinity, performance cores."""
    usable_cpus_reason: str | None = None
    memory_bytes: int | None = None
    """Of the machine, or the group's limit where that is lower."""
    memory_available_bytes: int | None = None
    memory_bandwidth_bytes_s: float | None = None

    # --- engine, settings and placement
    backend: str | None = None
    """Lower case: `cpu`, `cuda`, `cuda,cpu` ..."""
    engine: str | None = None
    build_lacks_device: bool | None = None
    """The machine has a GPU that the installed engine does not see."""
    n_gpu_layers_requested: int | None = None
    """-1: all."""
    layers_on_gpu: int | None = None
    layers_total: int | None = None
    """Repeating layers + 1."""
    weights_on_cpu_bytes: int | None = None
    weights_on_gpu_bytes: int | None = None
    experts_on_cpu: bool | None = None
    kv_on_cpu: bool | None = None
    graph_splits: int | None = None
    type_k: str | None = None
    type_v: str | None = None
    flash_attn: bool | None = None
    n_ctx: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    threads: int | None = None
    threads_batch: int | None = None
    load_mode: str | None = None
    speculative: bool | None = None
    sampler_top_k: int | None = None
    """0: the whole vocabulary is sampled from."""

    # --- the request, timed
    start: Literal["cold", "warm", "loaded"] | None = None
    """`loaded`: no load is part of the wait."""
    load_s: float | None = None
    first_touch_s: float | None = None
    """Of the load: the first evaluation, which reads what mmap left on disk."""
    tokenize_s: float | None = None
    n_prompt: int | None = None
    """The cached part included."""
    n_prompt_cached: int | None = None
    prefill_s: float | None = None
    n_output: int | None = None
    decode_s: float | None = None
    sampling_s: float | None = None
    total_s: float | None = None
    """As printed: it may or may not include the load."""
    prefill_tok_s: float | None = None
    """Over the tokens really evaluated."""
    decode_tok_s: float | None = None
    repeat_prefill_s: float | None = None
    """The same prompt a second time."""
    repeat_load_s: float | None = None
    decode_tok_s_at_depth: tuple[tuple[int, float], ...] | None = None
    """(tokens in the cache, tokens per second)."""

    # --- ceilings
    decode_ceiling_s: float | None = None
    """Seconds a token that the device allows at best, operations included."""
    weights_read_s: float | None = None
    """Of that, what reading the weights takes at least."""
    prefill_ceiling_s: float | None = None
    """Seconds for the evaluated prompt that the device allows at best."""
    other_quantizations: tuple[OtherKernels, ...] = ()
    """Smaller ones whose kernels were measured."""
    usable_threads: OtherKernels | None = None
    """One thread for each usable core, where the run had more or fewer and the kernels were measured so."""
    transfer_bytes_s: float | None = None
    """Host to device."""
    fitting_layers: int | None = None
    """Layers that the devices have room for, the output layer counting as one."""
    fitting_layers_step_s: float | None = None
    """Predicted seconds a token with these layers on devices; None where they are there already."""
    fitting_layers_prefill_s: float | None = None
    """The same for the evaluated prompt."""
    host_layers_share: float | None = None
    """Of a decode step of a split model, what the layers on the host take, timed within the run."""
    layers_timed: bool | None = None
    """Whether the times of other placements rest on what a layer took in both memories within the run."""
    no_layers_step_s: float | None = None
    """Predicted seconds a token with no layer on a device; None where none is."""
    no_layers_prefill_s: float | None = None

    network_step_s: float | None = None
    """Of each generated token, what the network to devices on other machines takes at the least."""

    # --- the machine during the run
    gpu_utilization: float | None = None
    gpu_memory_utilization: float | None = None
    cpu_utilization: float | None = None
    """Of all logical CPUs."""
    cpu_throttled_fraction: float | None = None
    """Share of the quota's periods in which the group was stopped."""
    steal_fraction: float | None = None
    gpu_clock_hz: float | None = None
    gpu_clock_max_hz: float | None = None
    cpu_clock_hz: float | None = None
    cpu_clock_max_hz: float | None = None
    throttled: bool | None = None
    """Power or heat holds a device's clock down."""
    throttle_reasons: tuple[str, ...] | None = None
    """Which of them, in the driver's terms: `thermal`, `power-cap` ..."""
    gpu_foreign_utilization: float | None = None
    """Of the GPUs in use, before the run: what others did there."""
    gpu_foreign_processes: int | None = None
    """Other processes that compute on them."""
    swap_in_bytes: int | None = None
    disk_read_bytes: int | None = None
    disk_read_bytes_s: float | None = None
    major_faults: int | None = None
    file_cached_fraction: float | None = None
    """Of the model file, before the load."""
    foreign_cpu: float | None = None
    """CPUs' worth of time used by other processes."""
    neighbours: tuple[Neighbour, ...] = ()
    """Busiest other processes; names are untrusted text."""

    placement_options: tuple[PlacementOption, ...] = ()
    """Where devices have no room for all layers."""

    sources: Mapping[str, Source] = dataclasses.field(default_factory=dict)
    """Field name -> where it comes from, for every fact that is known."""

    # --- what follows from several facts

    @property
    def n_evaluated(self) -> int | None:
        """Prompt tokens really evaluated: the cached prefix is not."""
        return None if self.n_prompt is None else self.n_prompt - (self.n_prompt_cached or 0)

    @property
    def decode_step_s(self) -> float | None:
        """Seconds a generated token, from the rate, else from n - 1 steps for n tokens; never 0."""
        if self.decode_tok_s:
            return 1 / self.decode_tok_s
        if not self.decode_s or self.n_output is None or self.n_output < 2:
            return None
        return self.decode_s / (self.n_output - 1)

    @property
    def prefill_token_s(self) -> float | None:
        """Seconds a prompt token, over the tokens really evaluated."""
        if self.prefill_tok_s:
            return 1 / self.prefill_tok_s
        if not self.prefill_s or not self.n_evaluated:
            return None
        return self.prefill_s / self.n_evaluated

    @property
    def read_bytes(self) -> int | None:
        """Weight bytes a generated token reads. A dense model without its own figure reads all it has; a
        mixture of experts stays unknown."""
        if self.bytes_per_token is not None or self.is_moe is not False:
            return self.bytes_per_token
        return self.model_bytes

    @property
    def is_moe(self) -> bool | None:
        """Whether a token uses only a part of the weights."""
        if self.architecture_is_moe is None and self.n_experts is not None:
            return self.n_experts > 1
        return self.architecture_is_moe

    @property
    def has_gpu(self) -> bool | None:
        """A GPU is there, by its own fact or since the engine runs on one."""
        if self.gpu_present is not None:
            return self.gpu_present
        return True if self.uses_gpu_backend else None

    @property
    def uses_gpu_backend(self) -> bool | None:
        """The engine's backend is a GPU's; None where it is not known."""
        if self.backend is None:
            return None
        families = {part.strip().rstrip("0123456789") for part in self.backend.lower().split(",")}
        return bool(families & GPU_BACKENDS)

    @property
    def shares_memory(self) -> bool:
        """GPU and CPU read the same memory: said so, or a Metal backend, which is rarely anything else."""
        if self.unified_memory is None:
            return "metal" in (self.backend or "").lower()
        return self.unified_memory

    @property
    def fully_on_gpu(self) -> bool | None:
        """Every layer is placed on devices. Only what the engine said counts, not what was asked."""
        if self.layers_on_gpu is not None and self.layers_total is not None:
            return self.layers_on_gpu >= self.layers_total
        if self.weights_on_cpu_bytes == 0 and self.weights_on_gpu_bytes:
            return True
        return None

    @property
    def host_works(self) -> bool | None:
        """Whether the CPU evaluates weights, so that its threads, clock and memory matter. None: unknown."""
        if self.layers_on_gpu == 0 or (not self.remote_devices and self._lacks_gpu):
            return True
        if self.experts_on_cpu or self.kv_on_cpu:
            return True
        if self.fully_on_gpu is not None:
            return not self.fully_on_gpu
        # What no device has room for is left to the host.
        is_left = not self.shares_memory and not self.remote_devices and bool(self.host_weights_bytes)
        return True if is_left else None

    @property
    def _lacks_gpu(self) -> bool:
        return self.has_gpu is False or self.uses_gpu_backend is False

    @property
    def host_weights_bytes(self) -> int | None:
        """Weight bytes that system memory must hold. At least what no device has room for."""
        if self.weights_on_cpu_bytes is not None:
            return self.weights_on_cpu_bytes
        if self.model_bytes is None:
            return None
        if self.has_gpu is not True or self.uses_gpu_backend is False or self.shares_memory:
            return self.model_bytes
        if self.gpu_memory_bytes is None:
            return None
        return max(0, self.model_bytes - self.gpu_memory_bytes)

    @property
    def host_read_bytes(self) -> float | None:
        """Weight bytes a token reads from system memory, the host's part in proportion."""
        read, on_host = self.read_bytes, self.host_weights_bytes
        if read is None or on_host is None:
            return None
        whole = self.model_bytes or ((self.weights_on_gpu_bytes or 0) + on_host)
        return read * min(1.0, on_host / whole) if whole else None

    @property
    def network_share(self) -> float | None:
        """Of the time of a generated token, what the network takes at the least."""
        step = self.decode_step_s
        return None if self.network_step_s is None or step is None else min(1.0, self.network_step_s / step)

    @property
    def fitting_layers_save(self) -> float | None:
        """Share of prefill and decode that placing all layers that fit would save; negative: it costs."""
        return self._saving(self.fitting_layers_step_s, self.fitting_layers_prefill_s)

    @property
    def no_layers_save(self) -> float | None:
        """Share of prefill and decode that taking all layers off devices would save, negative where it
        costs."""
        return self._saving(self.no_layers_step_s, self.no_layers_prefill_s)

    def _saving(self, step_s: float | None, prefill_s: float | None) -> float | None:
        step, decode_s = self.decode_step_s, self.decode_s
        if step_s is None or step is None or decode_s is None:
            return None
        now_prefill_s = self.prefill_s or 0.0
        now_s = now_prefill_s + decode_s
        then_s = (now_prefill_s if prefill_s is None else prefill_s) + decode_s * step_s / step
        return 1 - then_s / now_s if now_s > 0 else None

    def known(self, *names: str) -> dict[str, object]:
        """The named facts that are known, in the order given."""
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def missing(self, *names: str) -> tuple[str, ...]:
        """The named facts that are not known."""
        return tuple(name for name in names if getattr(self, name) is None)


FACT_NAMES: tuple[str, ...] = tuple(f.name for f in dataclasses.fields(Evidence) if f.name != "sources")
"""Every fact, in the order of the record."""
