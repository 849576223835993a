"""What a request would take with its layers elsewhere: from ceilings and placement, without another load.

    step(L) = network(L) + (step now - network now) * roof(L) / roof now

A roof (`reports.roofs`) is the least time that the devices' measured rates allow for a placement; what a run
takes beyond it now is taken to grow with it. The same for the prompt. L is the number of layers on devices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from probes.records import DeviceCeiling, GroupResult, LinkFacts, ModelFacts, Placement, Run
from reports import links, offload, roofs

_ROOM = 0.95
"""Of free device memory, what weights and cache may take beside compute buffers."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """The request with another number of layers on devices, in seconds."""

    layers: int
    """The output layer counting as one."""
    decode_step_s: float
    prefill_s: float | None
    """None without a prompt."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """The request as it was measured."""

    decode_step_s: float
    prefill_s: float | None
    prompt_tokens: int
    """Evaluated."""
    depth_tokens: float
    """Mean depth of the decode steps."""


def most_layers(run: Run, group: GroupResult) -> int | None:
    """The most layers that the devices have room for, in one load; None where that is not known.

    What this group itself holds there counts as free: devices were looked at after its load.
    """
    resolved = group.resolved
    if resolved is None or resolved.layers_total is None or run.engine is None:
        return None
    devices = [d for d in run.engine.devices if d.kind == "gpu"]
    free = [device.memory_free_bytes for device in devices]
    if not devices or any(size is None for size in free):
        return None
    own = [place for place in resolved.placements if not roofs.is_host_buffer(place.buffer)]
    held = sum(place.model_bytes + place.kv_bytes + place.compute_bytes for place in own)
    buffers = max((place.compute_bytes for place in resolved.placements), default=0) * len(devices)
    room = _ROOM * (sum(size or 0 for size in free) + held) - buffers
    cache = sum(place.kv_bytes for place in resolved.placements)
    total = resolved.layers_total
    for layers in range(total, 0, -1):
        _, read = offload.read_split(group.model, layers, group.settings.n_cpu_moe)
        if read / _share_in_use(group.model) + cache * layers / total <= room:
            return layers
    return 0


def elsewhere(run: Run, group: GroupResult, now: Now, layers: int) -> Elsewhere | None:
    """The request with `layers` on devices; None where ceilings or placement do not tell."""
    resolved = group.resolved
    if resolved is None or resolved.n_gpu_layers is None or not run.ceilings:
        return None
    then = _placed(group, run.ceilings, layers)
    if then is None:
        return None
    try:
        step = _scaled(
            now.decode_step_s,
            roofs.decode_roof(group, run.ceilings, now.depth_tokens).total_s,
            roofs.decode_roof(then, run.ceilings, now.depth_tokens).total_s,
            _network_s(group, run.links),
            _network_s(then, run.links),
        )
        prefill = None
        if now.prefill_s is not None and now.prompt_tokens:
            prefill = _scaled(
                now.prefill_s,
                roofs.prefill_roof(group, run.ceilings, now.prompt_tokens).total_s,
                roofs.prefill_roof(then, run.ceilings, now.prompt_tokens).total_s,
                0.0,
                0.0,
            )
    except roofs.UnknownRoofError:
        return None  # the report of the ceilings says why
    return Elsewhere(layers=layers, decode_step_s=step, prefill_s=prefill)


def _share_in_use(model: ModelFacts) -> float:
    """Of the weights, what a token reads of a mixture of experts; all of them elsewhere."""
    if not model.n_experts or not model.model_bytes:
        return 1.0
    return max(model.bytes_per_token / model.model_bytes, 1e-3)


def _scaled(
    now_s: float, roof_now_s: float, roof_then_s: float, network_now_s: float, network_then_s: float
) -> float:
    computing = max(now_s - network_now_s, 0.0)
    return network_then_s + computing * roof_then_s / roof_now_s if roof_now_s > 0 else now_s


def _network_s(group: GroupResult, known: Sequence[LinkFacts]) -> float:
    return sum(cost.token_s for cost in links.network_costs(group, known))


def _placed(group: GroupResult, ceilings: Sequence[DeviceCeiling], layers: int) -> GroupResult | None:
    """The group as if it had been loaded so: the devices share as they do now, else evenly."""
    resolved = group.resolved
    assert resolved is not None
    there = [place for place in resolved.placements if not roofs.is_host_buffer(place.buffer)]
    there = [place for place in there if place.model_bytes]
    names = [place.buffer for place in there] or [
        _buffer_name(group, ceiling.device) for ceiling in ceilings if ceiling.threads is None
    ]
    if not names or resolved.layers_total is None:
        return None
    weights = [place.model_bytes for place in there] or [1] * len(names)
    _, on_device = offload.read_split(group.model, layers, group.settings.n_cpu_moe)
    cache = sum(place.kv_bytes for place in resolved.placements)
    # The output layer has no cache.
    cached_share = max(0, layers - 1) / max(1, resolved.layers_total - 1)
    on_devices = cache * cached_share if group.settings.kv_offload else 0.0
    shares = [size / sum(weights) for size in weights] if layers else []
    placements = [_place("CPU", group.model.model_bytes, cache - on_devices)]
    placements += [
        _place(name, on_device * share / _share_in_use(group.model), on_devices * share)
        for name, share in zip(names, shares, strict=False)
    ]
    return dataclasses.replace(
        group,
        resolved=dataclasses.replace(
            resolved,
            n_gpu_layers=layers,
            placements=tuple(placements),
            graph_splits=1 + len(shares) if layers else 1,
        ),
    )


def _buffer_name(group: GroupResult, device: str) -> str:
    """A remote device's buffer is named with its server, by which its link is known."""
    servers = group.settings.rpc_servers
    return f"{device}[{servers[0]}]" if device.startswith("RPC") and len(servers) == 1 else device


def _place(buffer: str, model_bytes: float, kv_bytes: float) -> Placement:
    return Placement(
        buffer=buffer,
        model_bytes=round(model_bytes),
        kv_bytes=round(kv_bytes),
        compute_bytes=0,
        output_bytes=0,
    )
