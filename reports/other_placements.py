"""What a request would take with its layers elsewhere: without another load.

Where the parts of a split model were timed in the run (`reports.split_parts`) they tell; else ceilings and
placement:

    step(L) = network(L) + (step now - network now) * roof(L) / roof now

A roof (`reports.roofs`) is the least time that the devices' measured rates allow for a placement; what a run
takes beyond it now is taken to grow with it. The same for the prompt. L is the number of layers on devices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from probes.records import DeviceCeiling, GroupResult, LinkFacts, ModelFacts, Placement, Run
from reports import links, offload, roofs
from reports.evidence import PlacementOption
from reports.split_parts import Parts, decode_parts, prompt_parts

_ROOM = 0.95
"""Of free device memory, what weights and cache may take beside compute buffers."""
_Q8_SHARE = (34 / 32) / 2
"""Bytes of a q8_0 cache over those of an f16 one."""
_WIDER = 1.25
"""A context this many times what is needed is worth cutting."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """The request with another number of layers on devices, in seconds."""

    layers: int
    """The output layer counting as one."""
    decode_step_s: float
    prefill_s: float | None
    """None without a prompt, or where the compute rates are not known."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """The request as it was measured."""

    decode_step_s: float
    prefill_s: float | None
    prompt_tokens: int
    """Evaluated."""
    depth_tokens: float
    """Mean depth of the decode steps."""


def room_bytes(run: Run, group: GroupResult) -> float | None:
    """What weights and cache may take of the devices' memory in one load; None where that is not known.

    What this group itself holds there counts as free: devices were looked at after its load.
    """
    resolved = group.resolved
    if resolved is None or run.engine is None:
        return None
    devices = [device for device in run.engine.devices if device.kind == "gpu"]
    free = [device.memory_free_bytes for device in devices]
    if not devices or any(size is None for size in free):
        return None
    own = [place for place in resolved.placements if not roofs.is_host_buffer(place.buffer)]
    held = sum(place.model_bytes + place.kv_bytes + place.compute_bytes for place in own)
    buffers = max((place.compute_bytes for place in resolved.placements), default=0) * len(devices)
    return max(0.0, _ROOM * (sum(size or 0 for size in free) + held) - buffers)


def most_layers(group: GroupResult, room: float, *, cache: float = 1.0, n_cpu_moe: int | None = None) -> int:
    """The most layers within this many bytes; `cache` is the cache's size as a share of what it is now."""
    assert group.resolved is not None
    kept = group.settings.n_cpu_moe if n_cpu_moe is None else n_cpu_moe
    total = group.resolved.layers_total or len(group.model.layer_bytes) + 1
    cache_bytes = cache * _cache_bytes(group)
    for layers in range(total, 0, -1):
        _, read = offload.read_split(group.model, layers, kept)
        if read / _share_in_use(group.model) + cache_bytes * layers / total <= room:
            return layers
    return 0


def options(run: Run, group: GroupResult, now: Now, needed_tokens: int) -> tuple[PlacementOption, ...]:
    """Ways to more layers on devices where not all have room."""
    resolved, room = group.resolved, room_bytes(run, group)
    if resolved is None or room is None or resolved.layers_total is None:
        return ()
    total, fitting = resolved.layers_total, most_layers(group, room)
    if fitting >= total:
        return ()
    found = [
        _option(
            run, group, now, way="context", setting=needed_tokens, layers=most_layers(group, room, cache=cut)
        )
        for cut in [needed_tokens / max(resolved.n_ctx, 1)]
        if cut * _WIDER < 1
    ]
    if group.settings.type_k == group.settings.type_v == "f16":
        layers = most_layers(group, room, cache=_Q8_SHARE)
        found.append(_option(run, group, now, way="cache", setting=0, layers=layers))
    kept = _experts_to_keep(group, room, total)
    if kept is not None:
        found.append(_option(run, group, now, way="experts", setting=kept, layers=total))
    share = (room - _cache_bytes(group)) / max(group.model.model_bytes, 1)
    if share > 0:
        found.append(_option(run, group, now, way="weights", setting=share, layers=total))
    return tuple(option for option in found if option is not None and option.layers > fitting)


def _option(
    run: Run,
    group: GroupResult,
    now: Now,
    *,
    way: Literal["context", "cache", "experts", "weights"],
    setting: float,
    layers: int,
) -> PlacementOption | None:
    kept = int(setting) if way == "experts" else None
    then = elsewhere(run, group, now, layers, n_cpu_moe=kept)
    if then is None:
        return None
    return PlacementOption(
        way=way,
        layers=layers,
        setting=setting,
        decode_step_s=then.decode_step_s,
        prefill_s=then.prefill_s,
    )


def _experts_to_keep(group: GroupResult, room: float, total: int) -> int | None:
    """The fewest layers, from the first, whose experts must stay on the host for all the rest to fit."""
    n_layers = len(group.model.layer_expert_bytes)
    if not any(group.model.layer_expert_bytes):
        return None
    able = (kept for kept in range(1, n_layers + 1) if most_layers(group, room, n_cpu_moe=kept) == total)
    return next(able, None)


def _cache_bytes(group: GroupResult) -> int:
    return sum(place.kv_bytes for place in group.resolved.placements) if group.resolved else 0


def elsewhere(
    run: Run, group: GroupResult, now: Now, layers: int, *, n_cpu_moe: int | None = None
) -> Elsewhere | None:
    """The request with `layers` on devices, the experts of the first `n_cpu_moe` on the host (None: as now);
    None where ceilings or placement do not tell."""
    resolved = group.resolved
    if resolved is None or resolved.n_gpu_layers is None:
        return None
    parts = decode_parts(group, run.links) if n_cpu_moe is None else None
    if parts is not None and parts.tells_layers:
        return _by_parts(group, now, layers, parts)
    if not run.ceilings:
        return None
    then = _placed(group, run.ceilings, layers, group.settings.n_cpu_moe if n_cpu_moe is None else n_cpu_moe)
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
    except roofs.UnknownRoofError:
        return None  # the report of the ceilings says why
    return Elsewhere(layers=layers, decode_step_s=step, prefill_s=_prefill_elsewhere(run, group, now, then))


def _by_parts(group: GroupResult, now: Now, layers: int, step: Parts) -> Elsewhere:
    prompt = prompt_parts(group)
    prefill_s = None
    if now.prefill_s is not None and now.prompt_tokens and prompt is not None:
        prefill_s = now.prefill_s * prompt.ratio(layers)
    return Elsewhere(layers=layers, decode_step_s=now.decode_step_s * step.ratio(layers), prefill_s=prefill_s)


def _prefill_elsewhere(run: Run, group: GroupResult, now: Now, then: GroupResult) -> float | None:
    if now.prefill_s is None or not now.prompt_tokens:
        return None
    try:
        roof_now, roof_then = (
            roofs.prefill_roof(placed, run.ceilings, now.prompt_tokens).total_s for placed in (group, then)
        )
    except roofs.UnknownRoofError:
        return None
    return _scaled(now.prefill_s, roof_now, roof_then, 0.0, 0.0)


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


def _placed(
    group: GroupResult, ceilings: Sequence[DeviceCeiling], layers: int, n_cpu_moe: int
) -> GroupResult | None:
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
    _, on_device = offload.read_split(group.model, layers, n_cpu_moe)
    cache = _cache_bytes(group)
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
