"""Where weights and cache of a setting will lie, by device: arithmetic on the header, before any load.

Follows llama.cpp (`llama_model::load_tensors`, get_layer_buft_list): the last `n_gpu_layers` of the
repeating layers and the output layer go to devices, the output layer counting as one more; several devices
share them in proportion to `tensor_split`, else to their free memory; the input table stays on the host.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Sequence

from probes.errors import UsageError
from probes.records import DeviceFacts, ModelFacts, Settings, first_on_device, layer_cells, moving_bytes
from probes.tensor_overrides import Moved, without

HOST = "CPU"
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
class Share:
    """What one device gets, compute buffers not counted."""

    device: str
    """The engine's name; `CPU` is the host."""
    layers: int
    """Repeating layers there, the output layer counting as one more."""
    weights_bytes: int
    kv_bytes: int


def offload_devices(devices: Sequence[DeviceFacts], chosen: Sequence[str] = ()) -> tuple[DeviceFacts, ...]:
    """The devices that layers go to: those named, else remote ones and GPUs, else integrated GPUs, as the
    engine chooses them."""
    if chosen:
        by_name = {device.name.lower(): device for device in devices}
        return tuple(by_name[name.lower()] for name in chosen if name.lower() in by_name)
    gpus = tuple(device for device in devices if device.kind == "gpu")
    remote = tuple(device for device in gpus if device.name.startswith("RPC"))
    local = tuple(device for device in gpus if device not in remote)
    integrated = tuple(device for device in devices if device.kind == "igpu")
    return remote + (local or integrated)


def place(
    model: ModelFacts,
    settings: Settings,
    devices: Sequence[DeviceFacts],
    *,
    n_ctx: int,
    layers: int,
    moved: Sequence[Moved] = (),
) -> tuple[Share, ...] | None:
    """Shares of the host (first) and of each of `devices` with `layers` of the model on them (-1: all), a
    cache for `n_ctx` tokens, and the weights `moved` by overrides where they were sent. None where the
    header does not tell the size of each layer. Raises UsageError for a cache type that is not known.
    """
    if not model.layer_bytes:
        return None
    model = without(model, moved)
    n_layers = len(model.layer_bytes)
    wanted = n_layers + 1 if layers < 0 else min(layers, n_layers + 1)
    owners = _owners(n_layers, wanted if devices else 0, _split_points(settings, devices))
    weights, cache = [0] * (len(devices) + 1), [0.0] * (len(devices) + 1)
    counts = [0] * (len(devices) + 1)
    per_element = cache_bytes_per_element(settings)
    caches = cache_elements_by_layer(model, settings, n_ctx) or (0,) * n_layers
    for layer, owner in enumerate(owners[:-1]):
        moving = sum(moving_bytes(model, layer, settings.n_cpu_moe))
        weights[owner] += moving
        weights[0] += model.layer_bytes[layer] - moving
        counts[owner] += 1
        cache[owner if settings.kv_offload else 0] += caches[layer] * per_element
    copied = model.output_bytes if model.tied_output and owners[-1] else 0
    weights[owners[-1]] += model.output_bytes
    counts[owners[-1]] += 1
    weights[0] += max(0, model.model_bytes - sum(weights) + copied)
    names = (HOST, *(device.name for device in devices))
    for one in moved:
        if (there := _index_of(one.buffer, names)) is not None:
            weights[there] += one.n_bytes
    return tuple(
        Share(device=name, layers=count, weights_bytes=size, kv_bytes=int(kv))
        for name, count, size, kv in zip(names, counts, weights, cache, strict=True)
    )


def _index_of(buffer: str, names: Sequence[str]) -> int | None:
    """Which of the places a buffer type is of; None: of a device that gets no layers, whose memory nobody
    asked for. The engine names them in any case, those of servers with their address: `RPC0[host:port]`."""
    name = buffer.split("[")[0].lower()
    known = [place.lower() for place in names]
    return known.index(name) if name in known else None


def cache_elements_by_layer(model: ModelFacts, settings: Settings, n_ctx: int) -> tuple[int, ...]:
    """Elements of K and V that the cache of each layer holds; empty where the header does not tell."""
    tokens = min(settings.n_ubatch, settings.n_batch)
    cells = layer_cells(model, n_ctx, tokens, swa_full=settings.swa_full)
    return tuple(elements * held for elements, held in zip(model.layer_kv_elements, cells, strict=True))


def cache_bytes_per_element(settings: Settings) -> float:
    """Mean of the K and V types: both have the same number of elements in nearly all models."""
    return (bytes_per_element(settings.type_k) + bytes_per_element(settings.type_v)) / 2


def bytes_per_element(name: str) -> float:
    """Bytes of one element of this cache type. Raises UsageError for one that is not known."""
    if name.lower() not in _CACHE_TYPES:
        raise UsageError(
            f"unknown cache type {name[:40]!r}: use one of {', '.join(_CACHE_TYPES)}", reason="cache-type"
        )
    elements, size = _CACHE_TYPES[name.lower()]
    return size / elements


def _split_points(settings: Settings, devices: Sequence[DeviceFacts]) -> list[float]:
    """Cumulative shares of the devices, the last one 1."""
    shares = list(settings.tensor_split[: len(devices)])
    if not shares:
        free = [device.memory_free_bytes for device in devices]
        shares = [float(size) for size in free if size]
    if len(shares) != len(devices) or not sum(shares):
        shares = [1.0] * len(devices)  # as the engine's own choice is not known
    if settings.split_mode == "none" and devices:
        main = min(settings.main_gpu, len(devices) - 1)
        shares = [float(index == main) for index in range(len(devices))]
    return [part / sum(shares) for part in itertools.accumulate(shares)]


def _owners(n_layers: int, placed: int, points: Sequence[float]) -> list[int]:
    """For each layer, the output layer last: 0 for the host, else the number of its device from 1."""
    first = first_on_device(n_layers, placed)
    owners = [0] * (n_layers + 1)
    for layer in range(first, n_layers + 1):
        owners[layer] = 1 + min(bisect.bisect_right(points, (layer - first) / placed), len(points) - 1)
    return owners
