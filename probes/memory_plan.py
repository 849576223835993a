"""Whether a load can fit, before it is tried: pure arithmetic on facts.

Sizes follow llama.cpp's own (`llama_context`, `llama_kv_cache`, `ggml_backend_sched` in its sources) and
were compared with the buffers that it reports for a 135M and for small models. They err to the low side:
a plan that does not fit would really fail, one that fits may still fail.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from probes.errors import UnmeasurableError, UsageError
from probes.records import DeviceFacts, MachineFacts, ModelFacts, Settings

_CONTEXT_STEP = 256
"""llama.cpp rounds the context up to a multiple of this many tokens."""
_F32_BYTES = 4
_F16_BYTES = 2

_CACHE_TYPES = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
}
"""Elements and bytes of a block, by ggml type name (the block structs in ggml-common.h)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """What a load would need, and what there is. Bytes throughout; None: not known."""

    n_ctx: int
    """Context in tokens as the engine rounds it."""
    weights_bytes: int
    kv_bytes: int | None
    compute_bytes: int
    """Intermediate results and logits."""
    host_need_bytes: int
    host_available_bytes: int | None
    device_need_bytes: int
    device_free_bytes: int | None
    """All GPUs together; None without one or when one does not tell."""
    max_n_ctx: int | None
    """Largest context in tokens that fits, up to the training context or what was asked; 0: none does."""

    @property
    def fits(self) -> bool | None:
        """False: it can not work, or only by paging at each token. None: not known."""
        checks = (
            _is_enough(self.host_need_bytes, self.host_available_bytes),
            _is_enough(self.device_need_bytes, self.device_free_bytes),
        )
        if False in checks:
            return False
        return None if None in checks else True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    host: int | None
    device: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    kv: int | None
    compute: int
    host: int
    device: int


def plan_memory(
    model: ModelFacts, settings: Settings, machine: MachineFacts, devices: Sequence[DeviceFacts] = ()
) -> MemoryPlan:
    """Add up what one load group needs and find the largest context that fits.

    `devices` are those the engine reports; only GPUs with memory of their own count. Weights mapped from
    the file (`mmap`) count in full: every token reads them, so those that do not fit are fetched from
    disk again each time. Raises UsageError for a cache type that is not known.
    """
    room = _Room(host=machine.memory_available_bytes, device=_device_free(devices))
    has_device = any(device.kind == "gpu" for device in devices)
    n_ctx = _padded(settings.n_ctx or model.n_ctx_train or _CONTEXT_STEP)
    need = _need(model, settings, n_ctx, room, has_device)
    plan = MemoryPlan(
        n_ctx=n_ctx,
        weights_bytes=model.model_bytes,
        kv_bytes=need.kv,
        compute_bytes=need.compute,
        host_need_bytes=need.host,
        host_available_bytes=room.host,
        device_need_bytes=need.device,
        device_free_bytes=room.device,
        max_n_ctx=None,
    )
    if need.kv is None or plan.fits is None:
        return plan

    def fits(candidate: int) -> bool:
        trial = _need(model, settings, candidate, room, has_device)
        sized = dataclasses.replace(plan, host_need_bytes=trial.host, device_need_bytes=trial.device)
        return sized.fits is not False

    return dataclasses.replace(plan, max_n_ctx=_largest(max(n_ctx, _padded(model.n_ctx_train or 0)), fits))


def require_fits(plan: MemoryPlan, force: bool = False) -> None:
    """Refuse a load that can not fit, with the numbers and the way out; `force` lets it try.

    Raises UnmeasurableError with reason `memory`.
    """
    if force or plan.fits is not False:
        return
    raise UnmeasurableError(f"{_shortage(plan)}. {_way_out(plan)}", reason="memory")


def kv_bytes_per_token(model: ModelFacts, type_k: str, type_v: str) -> float | None:
    """Bytes that one token adds to the KV cache; None where the header does not tell.

    K and V are taken to have the same number of elements each, as they have in nearly all models.
    """
    per_element = (_bytes_per_element(type_k) + _bytes_per_element(type_v)) / 2
    return None if model.kv_elements_per_token is None else model.kv_elements_per_token * per_element


def compute_bytes(model: ModelFacts, settings: Settings, n_ctx: int) -> int:
    """Estimate of the compute and output buffers of one backend.

    The engine reserves its graph for a whole micro-batch u with logits for each token, and buffers are
    reused along the graph, so the larger of two stages counts:

    - output: u * (n_vocab + 2 * n_embd) * 4 bytes: logits, and the hidden state before and after its norm;
    - attention: u * n_ctx * 2 bytes: the f16 mask of flash attention (two masks with a sliding window).

    Reported against this for a 135M model (49,152 words, 576 wide): 98.25 MiB at u = 512 and n_ctx 512,
    8,192 and 32,768, and 24.56 MiB at u = 128, all as computed; 102.51 MiB at n_ctx 2,048. Without flash
    attention the scores of all heads come on top (n_heads * u * n_ctx * 4), which are not counted here: the
    facts hold no number of heads. The buffer for one row of logits is added.
    """
    tokens = min(settings.n_ubatch, settings.n_batch, n_ctx)
    n_vocab, n_embd = model.n_vocab or 0, model.n_embd or 0
    masks = 0 if model.attention == "recurrent" else 2 if model.attention == "sliding-window" else 1
    output = tokens * (n_vocab + 2 * n_embd) * _F32_BYTES
    attention = tokens * n_ctx * masks * _F16_BYTES
    return max(output, attention) + n_vocab * _F32_BYTES


def _need(model: ModelFacts, settings: Settings, n_ctx: int, room: _Room, has_device: bool) -> _Need:
    """Needs of host and device at one context size."""
    kv, compute = _kv_bytes(model, settings, n_ctx), compute_bytes(model, settings, n_ctx)
    spread = model.model_bytes + (kv or 0)
    share = _device_share(model, settings, has_device)
    if share is None:
        # The engine's own choice: as much as there is room for on the device, the rest on the host.
        on_device = spread if room.device is None else min(spread, max(0, room.device - compute))
    else:
        on_device = int(spread * share)
    on_host = spread - on_device
    return _Need(
        kv=kv,
        compute=compute,
        host=on_host + (compute if on_host else 0),
        device=on_device + (compute if on_device else 0),
    )


def _kv_bytes(model: ModelFacts, settings: Settings, n_ctx: int) -> int | None:
    """The KV cache. With a windowed cache (`swa_full` off) the facts do not tell how many layers keep the
    whole context, so the least possible is taken: all of them the window and one micro-batch.
    """
    per_token = kv_bytes_per_token(model, settings.type_k, settings.type_v)
    if per_token is None:
        return None
    cells = n_ctx
    if model.sliding_window_tokens is not None and not settings.swa_full:
        cells = min(n_ctx, _padded(model.sliding_window_tokens + settings.n_ubatch))
    return int(cells * per_token)


def _device_share(model: ModelFacts, settings: Settings, has_device: bool) -> float | None:
    """Share of weights and cache that was asked onto devices; None: the engine chooses."""
    if not has_device:
        return 0.0
    if settings.n_gpu_layers is None or (model.n_layers is None and settings.n_gpu_layers > 0):
        return None
    if settings.n_gpu_layers < 0:
        return 1.0
    layers = (model.n_layers or 0) + 1
    return min(settings.n_gpu_layers, layers) / layers


def _device_free(devices: Sequence[DeviceFacts]) -> int | None:
    free = [device.memory_free_bytes for device in devices if device.kind == "gpu"]
    known = [size for size in free if size is not None]
    return sum(known) if free and len(known) == len(free) else None


def _bytes_per_element(name: str) -> float:
    if name.lower() not in _CACHE_TYPES:
        raise UsageError(
            f"unknown cache type {name[:40]!r}: use one of {', '.join(_CACHE_TYPES)}", reason="cache-type"
        )
    elements, size = _CACHE_TYPES[name.lower()]
    return size / elements


def _padded(n_ctx: int) -> int:
    return -(-n_ctx // _CONTEXT_STEP) * _CONTEXT_STEP


def _largest(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest multiple of the context step up to `limit` that fits: needs grow with the context."""
    low, high = 0, limit // _CONTEXT_STEP
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle * _CONTEXT_STEP) else (low, middle - 1)
    return low * _CONTEXT_STEP


def _is_enough(need: int, available: int | None) -> bool | None:
    if need == 0:
        return True
    return None if available is None else need <= available


def _shortage(plan: MemoryPlan) -> str:
    parts = f"weights {_size(plan.weights_bytes)}"
    if plan.kv_bytes:
        parts += f", KV cache {_size(plan.kv_bytes)} at {plan.n_ctx:,} tokens"
    parts += f", compute {_size(plan.compute_bytes)}"
    if _is_enough(plan.host_need_bytes, plan.host_available_bytes) is False:
        where, need, available = "memory", plan.host_need_bytes, plan.host_available_bytes
    else:
        where, need, available = "GPU memory", plan.device_need_bytes, plan.device_free_bytes
    return f"the load needs {_size(need)} of {where} and {_size(available or 0)} is free ({parts} in all)"


def _way_out(plan: MemoryPlan) -> str:
    if plan.max_n_ctx:
        way = f"a context of {plan.max_n_ctx:,} tokens fits: give shorter lengths, or that --ctx"
    elif _is_enough(plan.host_need_bytes, plan.host_available_bytes) is False:
        way = "no context is small enough: take a smaller quantization or close other programs"
    else:
        way = "place fewer layers with --gpu-layers, or let `auto` choose"
    return f"{way}; --force tries all the same"


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.2f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.1f} MiB"
