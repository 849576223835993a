"""Whether a load can fit, before it is tried: pure arithmetic on facts.

Sizes follow llama.cpp's own (`llama_context`, `llama_kv_cache`, `ggml_backend_sched` in its sources) and
were compared with the buffers that it reports for a 135M and for small models. They err to the low side:
a plan that does not fit would really fail, one that fits may still fail.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from probes.errors import UnmeasurableError
from probes.model_sizes import smaller_variants
from probes.placement_plan import (
    Share,
    cache_bytes_per_element,
    cache_elements_by_layer,
    offload_devices,
    place,
)
from probes.records import (
    CONTEXT_STEP,
    DeviceFacts,
    MachineFacts,
    ModelFacts,
    Placement,
    Settings,
    padded,
)
from probes.tensor_overrides import Moved, scaled

_F32_BYTES = 4
_F16_BYTES = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNeed:
    """What a load would need on one device, and what is free there; None: the device does not tell."""

    device: str
    need_bytes: int
    free_bytes: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """What a load would need, and what there is. Bytes throughout; None: not known."""

    n_ctx: int
    """Context in tokens as the engine rounds it."""
    weights_bytes: int
    kv_bytes: int | None
    is_kv_least: bool
    """The cache may be larger: nothing tells which of the model's layers attend to a window alone."""
    compute_bytes: int
    """Intermediate results and logits."""
    host_need_bytes: int
    host_available_bytes: int | None
    devices: tuple[DeviceNeed, ...]
    """GPUs, remote ones too, that layers may go to; empty without one."""
    max_n_ctx: int | None
    """Largest context in tokens that fits, up to the training context or what was asked; 0: none does."""
    fitting_quantization: str | None
    """Of a load that does not fit: the largest usual quantization of the model that would, at this context;
    None: none would, or the header does not tell."""
    fitting_quantization_bytes: int | None
    """About what its weights take."""
    gpu_layers: int | None
    """Layers on devices, the output layer counting as one; as asked, for `auto` as many as fit. None: not
    known."""

    @property
    def fits(self) -> bool | None:
        """False: it can not work, or only by paging at each token. None: not known."""
        checks = [_is_enough(self.host_need_bytes, self.host_available_bytes)]
        checks += [_is_enough(device.need_bytes, device.free_bytes) for device in self.devices]
        if False in checks:
            return False
        return None if None in checks else True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """What is to be loaded, and the devices that it may use; the context may vary."""

    model: ModelFacts
    settings: Settings
    used: tuple[DeviceFacts, ...]
    moved: tuple[Moved, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    kv: int | None
    compute: int
    host_content: int
    """Weights and cache; compute buffers come on top where there is any."""
    device_contents: tuple[int, ...]
    layers: int | None

    @property
    def host(self) -> int:
        return _with_compute(self.host_content, self.compute)

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(_with_compute(content, self.compute) for content in self.device_contents)


def plan_memory(
    model: ModelFacts,
    settings: Settings,
    machine: MachineFacts,
    devices: Sequence[DeviceFacts] = (),
    reserved: Sequence[Placement] = (),
    moved: Sequence[Moved] = (),
) -> MemoryPlan:
    """Add up what one load group needs and find the largest context that fits.

    `devices` are those the engine reports; `reserved` is what it would reserve for computing, which is
    estimated where it was not asked (`probes.inquiries.reserve`); `moved` is what the settings' overrides
    move (`probes.tensor_overrides.moved_weights`). Weights mapped from the file (`mmap`) count in full: every
    token reads them, so those that do not fit are fetched from disk again each time.
    Raises UsageError for a cache type that is not known.
    """
    used = _with_own_memory(devices, settings)
    n_ctx = padded(settings.n_ctx or model.n_ctx_train or CONTEXT_STEP)
    load = _Load(model=model, settings=settings, used=used, moved=tuple(moved))
    need = _need(load, n_ctx)
    plan = MemoryPlan(
        n_ctx=n_ctx,
        weights_bytes=model.model_bytes,
        kv_bytes=need.kv,
        is_kv_least=_is_kv_least(model, settings),
        compute_bytes=need.compute,
        host_need_bytes=need.host,
        host_available_bytes=machine.memory_available_bytes,
        devices=_device_needs(used, need),
        max_n_ctx=None,
        fitting_quantization=None,
        fitting_quantization_bytes=None,
        gpu_layers=need.layers,
    )
    if reserved:
        plan = _with_reserved(plan, need, reserved)
    if plan.fits is None:
        return plan

    def fits(load: _Load, n_ctx: int) -> bool:
        trial = _need(load, n_ctx)
        sized = dataclasses.replace(plan, host_need_bytes=trial.host, devices=_device_needs(used, trial))
        return sized.fits is not False

    if need.kv is not None:
        most = max(n_ctx, padded(model.n_ctx_train or 0))
        plan = dataclasses.replace(plan, max_n_ctx=_largest(most, lambda candidate: fits(load, candidate)))
    if plan.fits:
        return plan
    return _with_quantization(plan, load, lambda variant: fits(variant, n_ctx))


def _with_quantization(plan: MemoryPlan, load: _Load, fits: Callable[[_Load], bool]) -> MemoryPlan:
    """The plan with the largest of the usual quantizations of the model that fits."""
    for name, model in smaller_variants(load.model):
        share = model.model_bytes / load.model.model_bytes
        if fits(dataclasses.replace(load, model=model, moved=scaled(load.moved, share))):
            return dataclasses.replace(
                plan, fitting_quantization=name, fitting_quantization_bytes=model.model_bytes
            )
    return plan


def _with_reserved(plan: MemoryPlan, need: _Need, reserved: Sequence[Placement]) -> MemoryPlan:
    """The plan with the engine's own figures in the place of the estimate."""
    names = [device.device for device in plan.devices]
    of_device = dict.fromkeys(names, 0)
    on_host = 0
    for one in reserved:
        owner = next((name for name in names if one.buffer.split("[")[0] == name), None)
        if owner is None:
            on_host += one.compute_bytes + one.output_bytes
        else:
            of_device[owner] += one.compute_bytes + one.output_bytes
    return dataclasses.replace(
        plan,
        compute_bytes=on_host + sum(of_device.values()),
        host_need_bytes=need.host_content + on_host,
        devices=tuple(
            dataclasses.replace(device, need_bytes=content + of_device[device.device])
            for device, content in zip(plan.devices, need.device_contents, strict=True)
        ),
    )


def layers_that_fit(
    model: ModelFacts, settings: Settings, devices: Sequence[DeviceFacts], moved: Sequence[Moved] = ()
) -> int | None:
    """The most layers, the output layer counting as one, that the devices have room for beside cache and
    compute buffers: what `--gpu-layers auto` means. None where devices or header do not tell enough; `moved`
    as for `plan_memory`."""
    used = _with_own_memory(devices, settings)
    if not used or not model.layer_bytes or any(device.memory_free_bytes is None for device in used):
        return None
    n_ctx = padded(settings.n_ctx or model.n_ctx_train or CONTEXT_STEP)
    return _most_layers(_Load(model=model, settings=settings, used=used, moved=tuple(moved)), n_ctx)


def refusal(plan: MemoryPlan) -> str | None:
    """Why a load can not work, with the numbers and the way out; None where it may."""
    return f"{_shortage(plan)}. {_way_out(plan)}" if plan.fits is False else None


def require_fits(plan: MemoryPlan, force: bool = False) -> None:
    """Refuse a load that can not fit; `force` lets it try. Raises UnmeasurableError with reason `memory`."""
    problem = refusal(plan)
    if problem and not force:
        raise UnmeasurableError(problem, reason="memory")


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


def _with_own_memory(devices: Sequence[DeviceFacts], settings: Settings) -> tuple[DeviceFacts, ...]:
    """Integrated graphics take what they hold from the host."""
    return tuple(device for device in offload_devices(devices, settings.devices) if device.kind != "igpu")


def _need(load: _Load, n_ctx: int) -> _Need:
    """Needs of host and devices at one context size."""
    model, settings, used = load.model, load.settings, load.used
    kv, compute = _kv_bytes(model, settings, n_ctx), compute_bytes(model, settings, n_ctx)
    layers = settings.n_gpu_layers
    if layers is None and used:
        layers = _most_layers(load, n_ctx)
    shares = _shares(load, n_ctx, layers) if used else None
    if shares is None:
        return _need_by_sums(model, used, kv, compute, layers)
    return _Need(
        kv=kv,
        compute=compute,
        host_content=shares[0].weights_bytes + shares[0].kv_bytes,
        device_contents=tuple(share.weights_bytes + share.kv_bytes for share in shares[1:]),
        layers=sum(share.layers for share in shares[1:]),
    )


def _need_by_sums(
    model: ModelFacts, used: Sequence[DeviceFacts], kv: int | None, compute: int, layers: int | None
) -> _Need:
    """Where the header does not tell each layer's size: by number of layers, and devices by free memory. Nor
    can be told then what overrides move."""
    spread = model.model_bytes + (kv or 0)
    share = 0.0
    if used and layers is not None and layers:
        total = (model.n_layers or 0) + 1
        share = 1.0 if layers < 0 else min(layers, total) / total
    free = [device.memory_free_bytes or 1 for device in used]
    if used and layers is None:
        share = min(1.0, max(0, sum(free) - compute * len(used)) / max(spread, 1))
    on_device = int(spread * share)
    return _Need(
        kv=kv,
        compute=compute,
        host_content=spread - on_device,
        device_contents=tuple(on_device * size // sum(free) for size in free),
        layers=None,
    )


def _shares(load: _Load, n_ctx: int, layers: int | None) -> tuple[Share, ...] | None:
    if layers is None:
        return None
    return place(load.model, load.settings, load.used, n_ctx=n_ctx, layers=layers, moved=load.moved)


def _most_layers(load: _Load, n_ctx: int) -> int | None:
    compute = compute_bytes(load.model, load.settings, n_ctx)
    for layers in range(len(load.model.layer_bytes) + 1, 0, -1):
        shares = _shares(load, n_ctx, layers)
        if shares is None:
            return None
        needs = [_with_compute(share.weights_bytes + share.kv_bytes, compute) for share in shares[1:]]
        if all(
            _is_enough(need, device.memory_free_bytes) is not False
            for need, device in zip(needs, load.used, strict=True)
        ):
            return layers
    return 0 if load.model.layer_bytes else None


def _device_needs(used: Sequence[DeviceFacts], need: _Need) -> tuple[DeviceNeed, ...]:
    return tuple(
        DeviceNeed(device=device.name, need_bytes=size, free_bytes=device.memory_free_bytes)
        for device, size in zip(used, need.devices, strict=True)
    )


def _with_compute(content: int, compute: int) -> int:
    return content + compute if content else 0


def _kv_bytes(model: ModelFacts, settings: Settings, n_ctx: int) -> int | None:
    """The KV cache; the least possible where it is not known which layers attend to a window alone."""
    elements = model.kv_elements_per_token
    if elements is None:
        return None
    if not model.layer_kv_elements:
        model = dataclasses.replace(model, layer_kv_elements=(elements,), layer_windowed=())
    return int(sum(cache_elements_by_layer(model, settings, n_ctx)) * cache_bytes_per_element(settings))


def _is_kv_least(model: ModelFacts, settings: Settings) -> bool:
    return model.sliding_window_tokens is not None and not settings.swa_full and not model.layer_windowed


def _largest(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest multiple of the context step up to `limit` that fits: needs grow with the context."""
    low, high = 0, limit // CONTEXT_STEP
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle * CONTEXT_STEP) else (low, middle - 1)
    return low * CONTEXT_STEP


def _is_enough(need: int, available: int | None) -> bool | None:
    if need == 0:
        return True
    return None if available is None else need <= available


def _shortage(plan: MemoryPlan) -> str:
    parts = f"weights {_size(plan.weights_bytes)}"
    if plan.kv_bytes:
        least = "at least " if plan.is_kv_least else ""
        parts += f", KV cache {least}{_size(plan.kv_bytes)} at {plan.n_ctx:,} tokens"
    parts += f", compute {_size(plan.compute_bytes)}"
    if _is_enough(plan.host_need_bytes, plan.host_available_bytes) is False:
        where, need, available = "memory", plan.host_need_bytes, plan.host_available_bytes
    else:
        short = next(d for d in plan.devices if _is_enough(d.need_bytes, d.free_bytes) is False)
        where, need, available = f"memory on {short.device}", short.need_bytes, short.free_bytes
    return f"the load needs {_size(need)} of {where} and {_size(available or 0)} is free ({parts} in all)"


def _way_out(plan: MemoryPlan) -> str:
    ways = []
    if plan.max_n_ctx:
        ways.append(f"a context of {plan.max_n_ctx:,} tokens fits: give shorter lengths, or that --ctx")
    if plan.fitting_quantization:
        size = _size(plan.fitting_quantization_bytes or 0)
        ways.append(
            f"as {plan.fitting_quantization} (about {size} of weights) this model fits at that context"
        )
    if _is_enough(plan.host_need_bytes, plan.host_available_bytes) is not False:
        ways.append("place fewer layers with --gpu-layers, or let `auto` choose")
    elif not ways:
        ways.append(
            "neither a smaller context nor a usual quantization fits: close other programs, or take a"
            " smaller model"
        )
    return "; ".join([*ways, "--force tries all the same"])


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.2f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.1f} MiB"
