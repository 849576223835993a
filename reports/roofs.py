"""The least time that the devices' own rates allow for a decode step or a prompt.

A roofline (Williams, Waterman & Patterson, Communications of the ACM 52(4), 2009) with the cost of graph
operations added, which bounds small models:

    decode, one token at depth d:  weight bytes / bandwidth + cache bytes at d / bandwidth + operations
    prefill, a micro-batch of m:   max(m * weight FLOPs / compute rate, weight bytes / bandwidth) + operations
             a prompt of n:        its micro-batches + attention FLOPs / compute rate + one output row

Each rate is the best that was measured for the number format of the weights. Where a fact is missing the term
takes its least possible value, so a roof errs on the fast side. Ceilings must have been measured with weights
in the layout of the run (`Placement.buffer`): laid out anew for a CPU they multiply faster than plain ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from probes.records import DeviceCeiling, GroupResult, KernelRate, ModelFacts, Resolved, layer_cells

OFFLOADED_BATCH = 32
"""From this many tokens on llama.cpp multiplies host weights on a device, copying them there each time."""

_NO_OP_OFFLOAD = "RPC"
"""Devices of other machines never multiply the host's weights (ggml-rpc.cpp has no `offload_op`)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """The least seconds that one decode step, or one prompt, can take."""

    weights_s: float
    """Reading the weights, or multiplying by them where that takes longer."""
    attention_s: float
    """Reading the cache (decode), multiplying with it (prefill)."""
    operations_s: float
    """What graph operations cost however small they are."""

    @property
    def total_s(self) -> float:
        """All parts, one after the other."""
        return self.weights_s + self.attention_s + self.operations_s


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What one device holds of the model."""

    ceiling: DeviceCeiling
    is_host: bool
    share: float
    """Of the weight bytes that a token reads."""
    cache_bytes: int


_RESIDUE = 0.01
"""A share of the weights that rounding leaves on the host."""


class UnknownRoofError(Exception):
    """No roof can be told; the message says why."""


def decode_roof(group: GroupResult, ceilings: Sequence[DeviceCeiling], depth_tokens: float) -> Roof:
    """The least seconds of one decode step at this depth. Raises UnknownRoofError."""
    resolved = _resolved(group)
    formats = _bytes_read(group.model)
    weights_s = attention_s = operations_s = 0.0
    for part in _parts(group, ceilings, resolved.threads):
        weights_s += part.share * _reading_s(part.ceiling, formats)
        cached = _cache_read_bytes(group, resolved, part.cache_bytes, depth_tokens)
        attention_s += cached / _bandwidth(part.ceiling, None)
        operations_s += part.share * _operations_s(part.ceiling, resolved)
    return Roof(weights_s=weights_s, attention_s=attention_s, operations_s=operations_s)


def prefill_roof(group: GroupResult, ceilings: Sequence[DeviceCeiling], prompt_tokens: int) -> Roof:
    """The least seconds of a whole prompt. Raises UnknownRoofError.

    The output layer works on the last token alone: its weights are read once, not multiplied by the prompt.
    """
    resolved = _resolved(group)
    parts = _parts(group, ceilings, resolved.threads_batch)
    whole, last = _without_output(group.model, [part.ceiling for part in parts])
    chunks = _chunks(prompt_tokens, resolved.n_ubatch)
    weights_s = sum(
        count * _chunk_s(parts, whole, tokens, op_offload=group.settings.op_offload)
        for tokens, count in chunks
    )
    weights_s += sum(part.share * _reading_s(part.ceiling, last) for part in parts)
    per_graph_s = sum(part.share * _operations_s(part.ceiling, resolved) for part in parts)
    n_graphs = sum(count for _, count in chunks)
    flops = _attention_flops(group.model, prompt_tokens)
    fastest = max(_compute_rate(part.ceiling, None) for part in parts)
    return Roof(weights_s=weights_s, attention_s=flops / fastest, operations_s=n_graphs * per_graph_s)


def _chunk_s(parts: Sequence[_Part], formats: dict[str, float], tokens: int, *, op_offload: bool) -> float:
    """All weights times one micro-batch."""
    total_s = 0.0
    for part in parts:
        ways_s = [max(_multiplying_s(part.ceiling, formats, tokens), _reading_s(part.ceiling, formats))]
        if part.is_host and tokens >= OFFLOADED_BATCH and op_offload:
            ways_s += [
                sum(formats.values()) / other.ceiling.transfer_bytes_s
                + _multiplying_s(other.ceiling, formats, tokens)
                for other in parts
                if other.ceiling.transfer_bytes_s and not other.ceiling.device.startswith(_NO_OP_OFFLOAD)
            ]
        total_s += part.share * min(ways_s)
    return total_s


def _resolved(group: GroupResult) -> Resolved:
    if group.resolved is None:
        raise UnknownRoofError("the model was not loaded")
    return group.resolved


def _chunks(prompt_tokens: int, n_ubatch: int) -> list[tuple[int, int]]:
    """Sizes of micro-batches in tokens, and how many there are of each."""
    if n_ubatch < 1:
        raise UnknownRoofError("a micro-batch of no tokens can not be")
    whole, rest = divmod(prompt_tokens, n_ubatch)
    return [(size, count) for size, count in ((n_ubatch, whole), (rest, 1)) if size and count]


def _operations_s(ceiling: DeviceCeiling, resolved: Resolved) -> float:
    return (resolved.graph_nodes or 0) * (ceiling.operation_s or 0.0)


def _reading_s(ceiling: DeviceCeiling, formats: dict[str, float]) -> float:
    return sum(n_bytes / _bandwidth(ceiling, name) for name, n_bytes in formats.items())


def _multiplying_s(ceiling: DeviceCeiling, formats: dict[str, float], tokens: int) -> float:
    """Two operations a weight and token; a format that was not measured counts as none."""
    total_s = 0.0
    for name, n_bytes in formats.items():
        bytes_per_weight = _bytes_per_weight(ceiling, name)
        if bytes_per_weight:
            total_s += 2 * tokens * n_bytes / bytes_per_weight / _compute_rate(ceiling, name)
    return total_s


# Rates of a device.


def _bandwidth(ceiling: DeviceCeiling, weight_type: str | None) -> float:
    """Bytes per second of matrix-vector products in this format; the device's best where it was not
    measured. The model's own shapes count too: caches may serve a small model."""
    found = [
        rate.weight_bytes / rate.seconds
        for rate in ceiling.rates
        if rate.batch == 1 and rate.weight_type == weight_type and rate.seconds > 0
    ]
    best = max(found, default=ceiling.memory_bytes_s)
    if not best:
        why = ceiling.unknown.get("memory_bytes_s") or ceiling.unknown.get("rates", "not measured")
        raise UnknownRoofError(f"memory bandwidth of {ceiling.device}: {why}")
    return best


def _compute_rate(ceiling: DeviceCeiling, weight_type: str | None) -> float:
    """Operations per second of matrix-matrix products in this format; the device's best where it was not
    measured."""
    found = [
        _flops(rate) / rate.seconds
        for rate in ceiling.rates
        if rate.batch > 1 and rate.weight_type == weight_type and rate.seconds > 0
    ]
    best = max(found, default=ceiling.compute_flops_s)
    if not best:
        why = ceiling.unknown.get("compute_flops_s") or ceiling.unknown.get("rates", "not measured")
        raise UnknownRoofError(f"compute rate of {ceiling.device}: {why}")
    return best


def _flops(rate: KernelRate) -> int:
    return 2 * rate.rows * rate.columns * rate.batch


def _bytes_per_weight(ceiling: DeviceCeiling, weight_type: str) -> float | None:
    return next(
        (
            rate.weight_bytes / (rate.rows * rate.columns)
            for rate in ceiling.rates
            if rate.weight_type == weight_type and rate.rows * rate.columns
        ),
        None,
    )


# What a token reads, and where it lies.


def _bytes_read(model: ModelFacts) -> dict[str, float]:
    """Weight bytes that one token reads, by format: in proportion to what the file holds."""
    held = sum(model.bytes_by_type.values())
    scale = model.bytes_per_token / held if held else 0.0
    return {name: n_bytes * scale for name, n_bytes in model.bytes_by_type.items()}


def _without_output(
    model: ModelFacts, ceilings: Sequence[DeviceCeiling]
) -> tuple[dict[str, float], dict[str, float]]:
    """The weights that every prompt token is multiplied by, and those of the output layer.

    The output matrix is the one of n_vocab rows among the measured shapes. Where it is not among them it is
    taken off all formats, with as many bytes a weight as the model has on average.
    """
    formats = _bytes_read(model)
    if not model.n_vocab or not model.n_embd:
        return formats, {}
    for ceiling in ceilings:
        for rate in ceiling.rates:
            if (rate.rows, rate.columns) == (model.n_vocab, model.n_embd):
                output = {rate.weight_type: min(float(rate.weight_bytes), formats.get(rate.weight_type, 0.0))}
                rest = {name: size - output.get(name, 0.0) for name, size in formats.items()}
                return rest, output
    average = model.n_vocab * model.n_embd * model.model_bytes / model.n_params if model.n_params else 0.0
    share = min(1.0, average / model.bytes_per_token) if model.bytes_per_token else 0.0
    rest = {name: size * (1 - share) for name, size in formats.items()}
    return rest, {name: size * share for name, size in formats.items()}


def _cache_read_bytes(group: GroupResult, resolved: Resolved, cache_bytes: int, depth_tokens: float) -> float:
    """A recurrent state is read whole; of a cache the part that is filled, of windowed layers the window.

    Where the cache's size by layer is not known, the filled part counts as a share of the context, which for
    windowed layers is less than they really read.
    """
    model, window = group.model, group.model.sliding_window_tokens
    if model.attention == "recurrent":
        return float(cache_bytes)
    if not resolved.n_ctx:
        return 0.0
    elements, windowed = model.layer_kv_elements, model.layer_windowed
    if window is None or not sum(elements) or len(windowed) != len(elements):
        return cache_bytes * min(1.0, depth_tokens / resolved.n_ctx)
    cells = layer_cells(model, resolved.n_ctx, resolved.n_ubatch, swa_full=group.settings.swa_full)
    reaches = [min(depth_tokens, window) if is_windowed else depth_tokens for is_windowed in windowed]
    held = sum(size * cell for size, cell in zip(elements, cells, strict=True))
    read = sum(size * min(reach, cell) for size, reach, cell in zip(elements, reaches, cells, strict=True))
    return cache_bytes * read / held


def _attention_flops(model: ModelFacts, prompt_tokens: int) -> float:
    """Scores and weighted sums of a whole prompt: 4 * width * the sum of all depths, for each layer.

    The heads together are taken to be as wide as the embedding, as they are in most models. Where it is not
    known which layers are windowed, all are: the least there can be.
    """
    if model.attention in ("recurrent", "hybrid") or not model.n_layers or not model.n_embd:
        return 0.0
    n_windowed = sum(model.layer_windowed) if model.layer_windowed else model.n_layers
    n_whole = max(0, model.n_layers - n_windowed)
    window = min(prompt_tokens, model.sliding_window_tokens or prompt_tokens)
    depths = n_windowed * _depths(prompt_tokens, window) + n_whole * _depths(prompt_tokens, prompt_tokens)
    return 4.0 * model.n_embd * depths


def _depths(prompt_tokens: int, reach: int) -> float:
    """The sum of how many tokens each one of a prompt looks back on, `reach` at the most."""
    return reach * (reach - 1) / 2 + (prompt_tokens - reach) * reach


def _parts(group: GroupResult, ceilings: Sequence[DeviceCeiling], threads: int) -> list[_Part]:
    """Devices read all that they hold (of experts the share in use), the host what is left of a token's
    bytes: an embedding table is held there whole, and one row of it is read."""
    model, placements = group.model, _resolved(group).placements
    host = _host(ceilings, threads)
    in_use = (
        min(1.0, model.bytes_per_token / model.model_bytes) if model.n_experts and model.model_bytes else 1.0
    )
    weights: dict[str, float] = {}
    caches: dict[str, int] = {}
    for place in placements:
        ceiling = _device_of(place.buffer, ceilings) or host
        weights[ceiling.device] = weights.get(ceiling.device, 0.0) + place.model_bytes * in_use
        caches[ceiling.device] = caches.get(ceiling.device, 0) + place.kv_bytes
    weights.pop(host.device, None)
    total = max(float(model.bytes_per_token), sum(weights.values()), 1.0)
    weights[host.device] = total - sum(weights.values())
    by_name = {ceiling.device: ceiling for ceiling in ceilings if ceiling.threads is None}
    by_name[host.device] = host
    return [
        _Part(
            ceiling=by_name[name],
            is_host=name == host.device,
            share=n_bytes / total,
            cache_bytes=caches.get(name, 0),
        )
        for name, n_bytes in weights.items()
    ]


def sole_device(group: GroupResult, ceilings: Sequence[DeviceCeiling]) -> DeviceCeiling | None:
    """The device that reads all weights; None where several do, or where it was not measured."""
    try:
        parts = [part for part in _parts(group, ceilings, _resolved(group).threads) if part.share > _RESIDUE]
    except UnknownRoofError:
        return None
    return parts[0].ceiling if len(parts) == 1 else None


def _host(ceilings: Sequence[DeviceCeiling], threads: int) -> DeviceCeiling:
    hosts = [ceiling for ceiling in ceilings if ceiling.threads is not None]
    if not hosts:
        raise UnknownRoofError("the CPU's ceiling was not measured")
    for ceiling in hosts:
        if ceiling.threads == threads:
            return ceiling
    raise UnknownRoofError(
        f"the CPU's ceiling was measured with {hosts[0].threads} threads, the run used {threads}"
    )


def is_host_buffer(buffer: str) -> bool:
    """Whether this memory is the host's: `CPU...`, pinned `..._Host`, the CPU's own layouts."""
    return buffer.startswith(("CPU", "BLAS")) or buffer.endswith("_Host") or buffer == "AMX"


def _device_of(buffer: str, ceilings: Sequence[DeviceCeiling]) -> DeviceCeiling | None:
    """The device whose memory this is; None for the host's."""
    if is_host_buffer(buffer):
        return None
    for ceiling in ceilings:
        name = ceiling.device
        if buffer == name or buffer.startswith((f"{name}_", f"{name}[")):
            return ceiling
    raise UnknownRoofError(f"no ceiling was measured for {buffer}")
