"""Evidence out of a run: what one load group and the machine say about one request."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from probes.records import (
    CellResult,
    Disturbance,
    EngineFacts,
    GroupResult,
    MachineFacts,
    ModelFacts,
    Placement,
    RequestSample,
    Resolved,
    Run,
    Workload,
)
from reports import measured, roofs, stats
from reports.evidence import Evidence, OtherKernels, Source
from reports.gpu_evidence import gpu_evidence
from reports.kernel_times import KernelTimes, kernel_times, with_operations
from reports.links import network_step_s
from reports.other_placements import Now, elsewhere, most_layers, options, room_bytes
from reports.phases import PhaseModel, fit_phases
from reports.request_costs import ModelCosts
from reports.split_parts import decode_parts

_CACHE_TYPE_BYTES = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}
"""Bytes of one element by ggml type (block structs in ggml-common.h)."""
_HOST_FAMILIES = ("CPU", "BLAS", "AMX")
"""Starts of the names of buffers that the CPU computes from. Pinned ones (`CUDA_Host`) end in `Host`."""
_LOAD_PHASE = "load"
_CONTEXT_STEP = 256
"""The engine rounds its context up to this many tokens."""
_TRIAL_STEPS = 32

_Facts = dict[str, tuple[Any, Source]]
"""Field name -> value and source."""


def run_evidence(
    run: Run, index: int = 0, workload: Workload | None = None, model: PhaseModel | None = None
) -> Evidence:
    """Everything that a run knows about one request on one of its load groups.

    `workload` defaults to the run's own; `model` to the fit of the group. Parts of the request that were
    run for real count as measured; parts that were not come from the model and count as estimated.
    """
    group = run.groups[index]
    asked = workload or run.workload
    fit = model or fit_phases(group)
    facts: _Facts = {}
    _add(facts, "header", header_facts(group.model))
    _add(facts, "measured", _machine_facts(run.machine))
    _add(facts, "measured", _device_facts(run.machine, run.engine))
    if run.engine is not None:
        _add(facts, "log", {"engine": run.engine.version})
    _add(facts, "reported", _settings_facts(group))
    if group.resolved is not None:
        _add(facts, "log", _placement_facts(group, group.resolved))
    _add(facts, "measured", _disturbance_facts(run.disturbances))
    _add(facts, "measured", gpu_evidence(run, group))
    _add(facts, "estimated", {"network_step_s": network_step_s(group, run.links)})
    if asked is not None:
        facts.update(_request_facts(group, asked, fit))
        _add(facts, "measured", _ceiling_facts(run, group, asked))
        parts = decode_parts(group, run.links)
        if parts is not None:
            timed = {"host_layers_share": parts.host_share, "layers_timed": parts.tells_layers}
            _add(facts, "measured", timed)
        _add(facts, "estimated", _other_placements(run, group, asked, facts))
    values = {name: value for name, (value, _) in facts.items()}
    sources = {name: source for name, (_, source) in facts.items()}
    return Evidence(**values, neighbours=run.neighbours, sources=sources)


def _add(facts: _Facts, source: Source, values: dict[str, Any]) -> None:
    """Adds what is known."""
    facts.update({name: (value, source) for name, value in values.items() if value is not None})


# --- model and machine ---------------------------------------------------------------------------


def header_facts(model: ModelFacts) -> dict[str, Any]:
    """What a model file's header tells."""
    return {
        "model_bytes": model.model_bytes,
        "bytes_per_token": model.bytes_per_token,
        "n_layers": model.n_layers,
        "n_experts": model.n_experts,
        "n_experts_used": model.n_experts_used,
        "quantization": model.quantization,
        "architecture_is_moe": bool(model.n_experts and model.n_experts > 1),
    }


def _machine_facts(machine: MachineFacts) -> dict[str, Any]:
    sizes = [size for size in (machine.memory_bytes, machine.memory_limit_bytes) if size]
    return {
        "cpu_name": machine.cpu_name,
        "logical_cpus": machine.logical_cpus,
        "usable_cpus": machine.usable_cpus,
        "usable_cpus_reason": machine.usable_cpus_reason,
        "memory_bytes": min(sizes, default=None),
        "memory_available_bytes": machine.memory_available_bytes,
    }


def _device_facts(machine: MachineFacts, engine: EngineFacts | None) -> dict[str, Any]:
    """GPUs of this machine; those of other machines are counted apart."""
    devices = [d for d in (engine.devices if engine else ()) if d.kind in ("gpu", "igpu")]
    local = [device for device in devices if not device.name.startswith("RPC")]
    is_apple = machine.os.startswith("Darwin") and "arm64" in machine.os
    present = bool(local or machine.gpu_names or is_apple)
    facts: dict[str, Any] = {
        "gpu_present": present,
        "remote_devices": (len(devices) - len(local)) or None,
        "build_lacks_device": present and not local if engine else None,
    }
    if not present:
        return facts
    names = machine.gpu_names or tuple(device.description for device in local)
    return facts | {
        "gpu_name": ", ".join(names) or None,
        "n_gpus": len(local) or len(names) or None,
        "gpu_memory_bytes": _total(device.memory_total_bytes for device in local),
        "gpu_memory_free_bytes": _total(device.memory_free_bytes for device in local),
        "unified_memory": is_apple or (bool(local) and all(device.kind == "igpu" for device in local)),
    }


def _total(sizes: Iterable[int | None]) -> int | None:
    """The sum; None where there is none to add or one is not known."""
    listed = list(sizes)
    known = [size for size in listed if size is not None]
    return sum(known) if known and len(known) == len(listed) else None


# --- settings and placement ----------------------------------------------------------------------


def _settings_facts(group: GroupResult) -> dict[str, Any]:
    asked, model = group.settings, group.model
    of_k, of_v = _CACHE_TYPE_BYTES.get(asked.type_k), _CACHE_TYPE_BYTES.get(asked.type_v)
    elements = model.kv_elements_per_token
    known = elements is not None and of_k is not None and of_v is not None
    return {
        "n_gpu_layers_requested": asked.n_gpu_layers,
        "type_k": asked.type_k,
        "type_v": asked.type_v,
        "load_mode": asked.load_mode,
        "threads": asked.threads,
        "threads_batch": asked.threads_batch,
        "n_ctx": asked.n_ctx,
        "n_batch": asked.n_batch,
        "n_ubatch": asked.n_ubatch,
        "kv_bytes_per_token": (elements or 0) * ((of_k or 0) + (of_v or 0)) / 2 if known else None,
    }


def _placement_facts(group: GroupResult, resolved: Resolved) -> dict[str, Any]:
    """What the engine did. Weights on the host that a token reads: an embedding table is held there whole
    beside layers that are all on a device, and is no offload."""
    host = [place for place in resolved.placements if _is_host(place)]
    device = [place for place in resolved.placements if not _is_host(place)]
    on_host, on_device = _weights(host), _weights(device)
    facts: dict[str, Any] = {
        "backend": resolved.backend.lower(),
        "layers_on_gpu": resolved.n_gpu_layers,
        "layers_total": resolved.layers_total,
        "graph_splits": resolved.graph_splits,
        "flash_attn": {"enabled": True, "disabled": False}.get(resolved.flash_attn or ""),
        "threads": resolved.threads,
        "threads_batch": resolved.threads_batch,
        "n_ctx": resolved.n_ctx,
        "n_batch": resolved.n_batch,
        "n_ubatch": resolved.n_ubatch,
    }
    if not resolved.placements:
        return facts
    on_host = min(on_host, _left_on_host(group.model, on_device))
    if device:
        facts["kv_on_cpu"] = any(p.kv_bytes for p in host) and not any(p.kv_bytes for p in device)
        facts["experts_on_cpu"] = _experts_on_host(group.model, resolved, on_device)
    return facts | {"weights_on_cpu_bytes": on_host, "weights_on_gpu_bytes": on_device}


def _left_on_host(model: ModelFacts, on_device: int) -> int:
    """What devices do not hold. A mapped file counts in the engine's log from its first to its last tensor on
    the host, whatever lies between; a tied output layer is on both sides."""
    copied = model.output_bytes if model.tied_output and on_device else 0
    return max(0, model.model_bytes + copied - on_device)


def _is_host(place: Placement) -> bool:
    return place.buffer.startswith(_HOST_FAMILIES) or place.buffer.endswith("Host")


def _weights(places: Sequence[Placement]) -> int:
    return sum(place.model_bytes for place in places)


def _experts_on_host(model: ModelFacts, resolved: Resolved, on_device: int) -> bool | None:
    """All layers count as placed while devices hold only what is not an expert."""
    is_full = resolved.n_gpu_layers is not None and resolved.n_gpu_layers == resolved.layers_total
    return on_device < model.model_bytes / 2 if model.n_experts and is_full else None


# --- the machine during the run ------------------------------------------------------------------


def _disturbance_facts(samples: Sequence[Disturbance]) -> dict[str, Any]:
    """Means over the time in which the phases ran; reads and faults of loads belong to the loads."""
    walks = [sample for sample in samples if sample.phase != _LOAD_PHASE]
    clocks = [sample.cpu_clock_hz for sample in walks if sample.cpu_clock_hz is not None]
    highest = [sample.cpu_clock_max_hz for sample in walks if sample.cpu_clock_max_hz is not None]
    return {
        "foreign_cpu": _mean((s.duration_ns, s.foreign_cpus) for s in walks),
        "steal_fraction": _mean((s.duration_ns, s.steal_fraction) for s in walks),
        "cpu_throttled_fraction": _mean((s.duration_ns, s.throttled_fraction) for s in walks),
        "cpu_clock_hz": statistics.median(clocks) if clocks else None,
        "cpu_clock_max_hz": statistics.median(highest) if highest else None,
        "swap_in_bytes": _total(s.swap_in_bytes for s in walks),
        "major_faults": _total(s.major_faults for s in walks),
        "disk_read_bytes": _total(s.disk_read_bytes for s in walks),
    }


def _mean(parts: Iterable[tuple[int, float | None]]) -> float | None:
    """Weighted by duration, over what is known."""
    known = [(duration, value) for duration, value in parts if value is not None and duration > 0]
    total = sum(duration for duration, _ in known)
    return sum(duration * value for duration, value in known) / total if total else None


# --- the request ---------------------------------------------------------------------------------


def _request_facts(group: GroupResult, asked: Workload, model: PhaseModel) -> _Facts:
    """The request's parts: as run, else as measured at this very length, else from the model."""
    facts: _Facts = {}
    _add(
        facts,
        "reported",
        {
            "n_prompt": asked.prompt_tokens,
            "n_prompt_cached": asked.cached_tokens,
            "n_output": asked.output_tokens,
            "start": asked.start,
        },
    )
    same = [sample for sample in group.requests if _is_same(sample, asked)]
    _add(facts, "estimated", _from_model(asked, model))
    _add(facts, "measured", _from_cell(group, asked))
    _add(facts, "measured", _beside(group, asked))
    _add(facts, "measured", _from_requests(same))
    _add(facts, "measured", _load(group, asked))
    _rates(facts, asked)
    return facts


def _is_same(sample: RequestSample, asked: Workload) -> bool:
    return (sample.prompt_tokens, sample.output_tokens, sample.cached_tokens) == (
        asked.prompt_tokens,
        asked.output_tokens,
        asked.cached_tokens,
    )


def _from_model(asked: Workload, model: PhaseModel) -> dict[str, Any]:
    costs = ModelCosts(model=model)
    prefill = costs.prefill(asked.prompt_tokens, asked.cached_tokens) if asked.prompt_tokens else None
    decode = costs.decode(asked.prompt_tokens, asked.output_tokens)
    return {
        "prefill_s": prefill.value_s if prefill else None,
        "decode_s": decode.value_s if decode else None,
    }


def _from_cell(group: GroupResult, asked: Workload) -> dict[str, Any]:
    """A measured prompt of this very length, nothing of it cached."""
    cell = next((c for c in measured.measured_cells(group) if c.prompt_tokens == asked.prompt_tokens), None)
    if cell is None or asked.cached_tokens:
        return {}
    prefill = measured.prefill(cell)
    return {"prefill_s": prefill.summary.median if prefill else 0.0} | _same_depth(cell, asked)


def _same_depth(cell: CellResult, asked: Workload) -> dict[str, Any]:
    """Decode of this very answer; a longer or shorter one ends at another depth."""
    decode = measured.decode(cell)
    if decode is None or cell.output_tokens + 1 < asked.output_tokens:
        return {}
    return {"decode_s": decode.summary.median * max(asked.output_tokens - 1, 0)}


def _beside(group: GroupResult, asked: Workload) -> dict[str, Any]:
    tokenized = measured.tokenize(group, asked.prompt_tokens)
    drawn = measured.sampling(group, "default")
    return {
        "tokenize_s": tokenized.median if tokenized else None,
        "sampling_s": drawn.median * asked.output_tokens if drawn else None,
    }


def _from_requests(same: Sequence[RequestSample]) -> dict[str, Any]:
    """Medians of the requests that were run as asked."""
    if not same:
        return {}
    return {
        f"{name}_s": statistics.median(getattr(sample, f"{part}_ns") for sample in same) * measured.NS
        for name, part in (
            ("tokenize", "tokenize"),
            ("prefill", "prefill"),
            ("decode", "decode"),
            ("sampling", "sampling"),
            ("total", "wall"),
        )
    }


def _load(group: GroupResult, asked: Workload) -> dict[str, Any]:
    """The load that this start waits for, in the cache state it implies, else in the nearest measured."""
    if asked.start == "loaded" or not group.loads:
        return {}
    samples = measured.loads(group, asked.start)
    if not samples:
        usual = measured.usual_load(group)
        samples = measured.loads(group, usual[0]) if usual else ()
    fractions = [sample.cached_fraction for sample in samples if sample.cached_fraction is not None]
    return {
        "load_s": stats.summarize([sample.total_ns * measured.NS for sample in samples]).median,
        "first_touch_s": statistics.median(sample.first_touch_ns for sample in samples) * measured.NS,
        "file_cached_fraction": statistics.median(fractions) if fractions else None,
    }


def _rates(facts: _Facts, asked: Workload) -> None:
    """Rates follow from times and counts and keep their source."""
    prefill, decode = facts.get("prefill_s"), facts.get("decode_s")
    evaluated, steps = asked.prompt_tokens - asked.cached_tokens, asked.output_tokens - 1
    if prefill and prefill[0] > 0 and evaluated > 0:
        facts["prefill_tok_s"] = (evaluated / prefill[0], prefill[1])
    if decode and decode[0] > 0 and steps > 0:
        facts["decode_tok_s"] = (steps / decode[0], decode[1])


def _context_for(asked: Workload) -> int:
    """A context that holds the request and a trial's steps beyond it, as the engine rounds it."""
    return -(-(asked.prompt_tokens + asked.output_tokens + _TRIAL_STEPS) // _CONTEXT_STEP) * _CONTEXT_STEP


def _other_placements(run: Run, group: GroupResult, asked: Workload, facts: _Facts) -> dict[str, Any]:
    """What the request would take with as many layers on devices as fit, and with none."""
    resolved, rate = group.resolved, facts.get("decode_tok_s")
    if resolved is None or resolved.n_gpu_layers is None or not rate:
        return {}
    prefill = facts.get("prefill_s")
    now = Now(
        decode_step_s=1 / rate[0],
        prefill_s=prefill[0] if prefill else None,
        prompt_tokens=asked.prompt_tokens - asked.cached_tokens,
        depth_tokens=asked.prompt_tokens + max(asked.output_tokens - 2, 0) / 2,
    )
    room = room_bytes(run, group)
    found: dict[str, Any] = {
        "fitting_layers": None if room is None else most_layers(group, room),
        "placement_options": options(run, group, now, _context_for(asked)) or None,
    }
    for name, layers in (("fitting_layers", found["fitting_layers"]), ("no_layers", 0)):
        if layers is None or layers == resolved.n_gpu_layers:
            continue
        other = elsewhere(run, group, now, layers)
        if other is not None:
            found |= {f"{name}_step_s": other.decode_step_s, f"{name}_prefill_s": other.prefill_s}
    return found


def _ceiling_facts(run: Run, group: GroupResult, asked: Workload) -> dict[str, Any]:
    """What the devices allow at best for this request; nothing where that can not be told."""
    if not run.ceilings:
        return {}
    depth = asked.prompt_tokens + max(asked.output_tokens - 2, 0) / 2
    transfers = [one.transfer_bytes_s for one in run.ceilings if one.transfer_bytes_s]
    threads = group.resolved.threads if group.resolved else None
    of_run = [one for one in run.ceilings if one.threads is not None and one.threads == threads]
    hosts = [one.memory_bytes_s for one in of_run if one.memory_bytes_s]
    facts: dict[str, Any] = {
        "transfer_bytes_s": min(transfers, default=None),
        "memory_bandwidth_bytes_s": max(hosts, default=None),
        "other_quantizations": _other_quantizations(run, group) or None,
        "usable_threads": _usable_threads(run, group),
    }
    try:
        decode = roofs.decode_roof(group, run.ceilings, depth)
        whole = roofs.prefill_roof(group, run.ceilings, asked.prompt_tokens).total_s
        cached = roofs.prefill_roof(group, run.ceilings, asked.cached_tokens).total_s
    except roofs.UnknownRoofError:
        # The report of the ceilings itself says why; without them the rules abstain.
        return facts
    return facts | {
        "decode_ceiling_s": decode.total_s,
        "weights_read_s": decode.weights_s,
        "prefill_ceiling_s": whole - cached if asked.cached_tokens else whole,
    }


def _other_quantizations(run: Run, group: GroupResult) -> tuple[OtherKernels, ...]:
    """Where one device does all the work: how its kernels for other formats compare with those in use."""
    device = roofs.sole_device(group, run.ceilings)
    if device is None or not run.matrices:
        return ()
    own, *others = run.matrices
    now = kernel_times(own, group.model, device)
    found = ((one.quantization, kernel_times(one, group.model, device)) for one in others)
    return tuple(
        _other_kernels(name, now, then)
        for name, then in found
        if name is not None and now is not None and then is not None
    )


def _usable_threads(run: Run, group: GroupResult) -> OtherKernels | None:
    """Where the CPU does all the work, on more or fewer threads than there are usable cores."""
    device, usable = roofs.sole_device(group, run.ceilings), max(1, run.machine.usable_cpus)
    other = next((one for one in run.ceilings if one.threads == usable), None)
    if device is None or device.threads is None or other is None or other is device or not run.matrices:
        return None
    now, then = (
        with_operations(kernel_times(run.matrices[0], group.model, one), one, group.resolved)
        for one in (device, other)
    )
    return None if now is None or then is None else _other_kernels(str(usable), now, then)


def _other_kernels(name: str, now: KernelTimes, then: KernelTimes) -> OtherKernels:
    return OtherKernels(
        name=name,
        step_now_s=now.step_s,
        step_then_s=then.step_s,
        prompt_token_now_s=now.prompt_token_s,
        prompt_token_then_s=then.prompt_token_s,
    )
