"""Levers on the weights: fewer bytes of them, and more of them on the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from reports import units
from reports.evidence import Evidence, OtherKernels
from reports.phases import Estimate
from reports.remedies.base import Remedy, Situation, Tool, Trial, between, computed, placed, untold
from reports.remedies.quantizations import TRIED_BYTES, bytes_ratio, smaller
from reports.request_costs import RUN_TO_RUN
from reports.rules.physics import DEVICE_SHARE, GPU_RATIO
from reports.waits import Waits

_KERNEL_DOUBT = 0.25
"""Of a difference between kernels, what other sizes, caches and threads in a run may change."""
_LEAST_READING = 0.5
"""Share of a step that reading the weights takes at the least where it is not known: healthy decode reaches
half of the memory's bandwidth and more."""
_TYPICAL, _BEST = 0.75, 0.87
"""Of a GPU's data-sheet bandwidth in healthy runs: the middle and the top of 0.61 to 0.87."""
_HIGHEST_RATIO = 60.0
_ROOM = 0.9
"""Of device memory, what weights may take beside cache and compute buffers."""
_OFF_TITLE = "keep all layers off the device: the host is faster"
_LEAST_HOST_PART = 0.2
"""Of a step, what the host's weights take at the least where any lie there: they are read over memory 5 to 20
times slower."""


def levers(situation: Situation) -> Iterator[Remedy | None]:
    """Smaller quantizations, then placement."""
    for step, name in enumerate(smaller(situation.evidence.quantization), start=1):
        yield _quantization(situation, name, step)
    by_rates = _layers_by_rates(situation)
    yield by_rates if by_rates is not None else _more_layers(situation)


# --- fewer bytes ---------------------------------------------------------------------------------


def _quantization(situation: Situation, name: str, steps: int) -> Remedy | None:
    evidence = situation.evidence
    kernels = next((one for one in evidence.other_quantizations if one.name == name), None)
    ratio = bytes_ratio(evidence.quantization, name)
    parts = {"decode": _decode_with_bytes(situation, ratio)}
    basis = f"decode reads {units.percent(ratio)} of the bytes; the prompt, bound by arithmetic, stays"
    if kernels is not None:
        parts = _with_kernels(situation, kernels)
        basis = (
            "both formats' kernels at this model's own shapes: a generated token takes"
            f" {_change(kernels.step_then_s - kernels.step_now_s)}, a prompt token"
            f" {_change(kernels.prompt_token_then_s - kernels.prompt_token_now_s)}"
        )
    how: dict[Tool, str] = {
        "llmphase": f"name a {name} file of the same model",
        "llama.cpp": f"take the {name} file, or llama-quantize F16.gguf {name}",
        "ollama": f"ollama pull NAME:TAG-{name.lower()}",
        "lm-studio": f"download the {name} variant",
    }
    return computed(
        situation,
        situation.wait(**parts),
        code=f"quantization-down-{steps}",
        title=f"use a smaller quantization: {name}",
        basis=basis,
        how=how,
        cost="quality, most of it below 4 bits"
        + ("" if kernels else "; a CPU may unpack the smaller format more slowly"),
        try_with=Trial(quantization=name) if _is_small(situation.evidence) else None,
    )


def _change(seconds: float) -> str:
    return f"{units.duration(abs(seconds))} {'less' if seconds <= 0 else 'more'}"


def _with_kernels(situation: Situation, kernels: OtherKernels) -> dict[str, Estimate | None]:
    """Both phases with the difference between the kernels, which were timed undisturbed: the phases hold at
    least so much of them, and at most consist of them alone."""
    waits = situation.waits
    changes = {
        "decode": (kernels.step_then_s - kernels.step_now_s) * max(situation.n_output - 1, 0),
        "prefill": (kernels.prompt_token_then_s - kernels.prompt_token_now_s) * situation.n_evaluated,
    }
    return {
        name: _changed(seconds, changes[name])
        for name, seconds in (("decode", waits.decode_s), ("prefill", waits.prefill_s))
        if seconds is not None
    }


def _changed(seconds: float, change_s: float) -> Estimate:
    value = max(0.0, seconds + change_s)
    half = RUN_TO_RUN * seconds + abs(change_s) * _KERNEL_DOUBT
    return between(value, max(0.0, value - half), value + half)


def _is_small(evidence: Evidence) -> bool:
    return evidence.model_bytes is not None and evidence.model_bytes <= TRIED_BYTES


def _decode_with_bytes(situation: Situation, ratio: float) -> Estimate | None:
    """Decode with this share of the weight bytes: what reads weights shrinks, the rest stays.

    A split model's part on the host shrinks first: the device keeps what it holds.
    """
    decode_s = situation.waits.decode_s
    if decode_s is None:
        return None
    split = _split_of(situation.evidence)
    if split is not None and split.on_device > 0:
        whole = split.on_device + split.on_host
        on_host = max(0.0, whole * ratio - split.on_device)
        smaller = dataclasses.replace(split, on_device=whole * ratio - on_host, on_host=on_host)
        return _scaled_step(situation, smaller)
    reading = _reading_share(situation.evidence)
    low_share = _LEAST_READING if reading is None else reading
    middle = (1 + low_share) / 2
    saved = decode_s * (1 - ratio)
    return between(decode_s - middle * saved, decode_s - saved, decode_s - low_share * saved)


def _reading_share(evidence: Evidence) -> float | None:
    """Share of a step that reading weights takes at least: at the ceiling's speed."""
    step = evidence.decode_step_s
    if step is None:
        return None
    if evidence.weights_read_s is not None:
        return min(1.0, evidence.weights_read_s / step)
    bandwidth = evidence.memory_bandwidth_bytes_s if evidence.host_works else evidence.gpu_bandwidth_bytes_s
    if bandwidth is None or evidence.read_bytes is None:
        return None
    return min(1.0, evidence.read_bytes / bandwidth / step)


# --- more on the device --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """Bytes that a token reads from each memory, and the seconds of the step that the host's part takes."""

    on_device: float
    on_host: float
    device_bytes_s: float
    host_bytes_s: float

    def step_s(self, device_bytes_s: float) -> float:
        """t_token = device bytes / device rate + host bytes / host rate."""
        return self.on_device / device_bytes_s + self.on_host / self.host_bytes_s


def _split_of(evidence: Evidence) -> _Split | None:
    """How a split model's step divides; None where nothing is split or not enough is known."""
    step, read, on_host = evidence.decode_step_s, evidence.read_bytes, evidence.host_read_bytes
    bandwidth = evidence.gpu_bandwidth_bytes_s
    if evidence.has_gpu is not True or evidence.shares_memory or evidence.remote_devices:
        return None
    if step is None or read is None or not on_host or not bandwidth or evidence.fully_on_gpu:
        return None
    device_rate = _TYPICAL * bandwidth
    host_s = max(_LEAST_HOST_PART * step, step - (read - on_host) / device_rate)
    return _Split(
        on_device=read - on_host, on_host=on_host, device_bytes_s=device_rate, host_bytes_s=on_host / host_s
    )


def _scaled_step(situation: Situation, then: _Split) -> Estimate | None:
    """The answer's decode in proportion to the steps; the interval by the range of healthy device rates."""
    decode_s, bandwidth = situation.waits.decode_s, situation.evidence.gpu_bandwidth_bytes_s
    step = situation.evidence.decode_step_s
    if decode_s is None or step is None or not bandwidth:
        return None
    typical, best, least = (
        decode_s / step * then.step_s(share * bandwidth) for share in (_TYPICAL, _BEST, DEVICE_SHARE)
    )
    least = max(least, typical * (1 + RUN_TO_RUN))
    return between(min(typical, decode_s), best * (1 - RUN_TO_RUN), min(least, decode_s))


def _layers_by_rates(situation: Situation) -> Remedy | None:
    """As many layers as fit on devices, or none, whichever the measured rates of both sides favour."""
    evidence = situation.evidence
    more, none = evidence.fitting_layers_save, evidence.no_layers_save
    if more is None and none is None:
        return None
    takes_off = (none or 0.0) > (more or 0.0)
    step = evidence.no_layers_step_s if takes_off else evidence.fitting_layers_step_s
    prefill = evidence.no_layers_prefill_s if takes_off else evidence.fitting_layers_prefill_s
    now, decode_s = evidence.decode_step_s, situation.waits.decode_s
    if step is None or now is None or decode_s is None:
        return None
    parts = {"decode": placed(evidence, decode_s * step / now, decode_s, situation.least_decode_s)}
    if prefill is not None and situation.waits.prefill_s is not None:
        parts["prefill"] = placed(evidence, prefill, situation.waits.prefill_s, evidence.prefill_ceiling_s)
    is_all = evidence.fitting_layers == evidence.layers_total
    layers = 0 if takes_off else -1 if is_all else evidence.fitting_layers
    return computed(
        situation,
        situation.wait(**parts),
        code="gpu-layers",
        title=_OFF_TITLE if takes_off else _layers_title(layers),
        basis="what a layer took here and there in this run"
        if evidence.layers_timed
        else "the measured rates of host and device at this model's own sizes",
        how=_layers_how(layers),
        cost="none" if takes_off else "device memory, which a larger context then lacks",
        try_with=_layers_trial(evidence, layers),
    )


def _more_layers(situation: Situation) -> Remedy | None:
    """All layers on the device where they fit, else as many as do."""
    evidence = situation.evidence
    if evidence.has_gpu is not True or evidence.fully_on_gpu or evidence.host_works is False:
        return None
    share, layers = _fitting(evidence)
    if share is None:
        return _untold_layers(situation, None)
    split = _split_of(evidence)
    if split is None:
        return _untold_layers(situation, layers)
    whole = split.on_device + split.on_host
    if whole * share <= split.on_device:
        return None
    then = dataclasses.replace(split, on_device=whole * share, on_host=whole * (1 - share))
    decode = _scaled_step(situation, then)
    parts = {"decode": decode}
    prefill = _prefill_on_device(situation.waits, evidence, then) if share == 1 else None
    if prefill is not None:
        parts["prefill"] = prefill
    return computed(
        situation,
        situation.wait(**parts),
        code="gpu-layers",
        title=_layers_title(layers),
        basis="bytes over bandwidth in each memory"
        + (
            "; the prompt at 20 times the answer's rate or more"
            if prefill
            else "; the prompt gains too, not counted"
        ),
        how=_layers_how(layers),
        cost="device memory, which a larger context then lacks",
        try_with=_layers_trial(evidence, layers),
    )


def _fitting(evidence: Evidence) -> tuple[float | None, int | None]:
    """Share of the weights that fits on the device and that many layers (-1: all); None where it is
    unknown."""
    free = evidence.gpu_memory_free_bytes or evidence.gpu_memory_bytes
    if not free or not evidence.model_bytes:
        return None, None
    if evidence.model_bytes <= _ROOM * free:
        return 1.0, -1
    share = _ROOM * free / evidence.model_bytes
    total = evidence.layers_total or (evidence.n_layers + 1 if evidence.n_layers else None)
    return share, int(share * total) if total else None


def _prefill_on_device(waits: Waits, evidence: Evidence, then: _Split) -> Estimate | None:
    """A prompt token is 20 to 60 times cheaper than a generated one where the device does all the work."""
    evaluated = evidence.n_evaluated
    if waits.prefill_s is None or not evaluated or not evidence.gpu_bandwidth_bytes_s:
        return None
    step = then.step_s(then.device_bytes_s)
    value = min(waits.prefill_s, max(step, evaluated * step / GPU_RATIO))
    return between(value, min(value, evaluated * step / _HIGHEST_RATIO), waits.prefill_s)


def _untold_layers(situation: Situation, layers: int | None) -> Remedy | None:
    if not situation.evidence.host_works:
        return None
    return untold(
        code="gpu-layers",
        title=_layers_title(layers),
        at_most_s=situation.waits.compute_s or None,
        basis="the device's memory or bandwidth is not known, so only a trial tells",
        how=_layers_how(layers),
        cost="device memory, which a larger context then lacks",
        try_with=_layers_trial(situation.evidence, layers),
    )


def _layers_title(layers: int | None) -> str:
    if layers is None:
        return "place more layers on the device"
    return "place all layers on the device" if layers < 0 else f"place {layers} layers on the device"


def _layers_trial(evidence: Evidence, layers: int | None) -> Trial | None:
    """Without a number the engine's own choice, where another was asked; a build without the device can try
    nothing."""
    is_same = layers == evidence.n_gpu_layers_requested
    return None if evidence.build_lacks_device or is_same else Trial(settings={"n_gpu_layers": layers})


def _layers_how(layers: int | None) -> dict[Tool, str]:
    here = "auto" if layers is None else "all" if layers < 0 else str(layers)
    number = "999" if here in ("all", "auto") else here
    return {
        "llmphase": f"--gpu-layers {here} (with an engine built for the device: llmphase doctor)",
        "llama.cpp": f"--n-gpu-layers {number}; for a mixture of experts that does not fit: --n-cpu-moe N",
        "ollama": f"PARAMETER num_gpu {number}; ollama ps shows the split",
        "lm-studio": f"GPU Offload: {here}",
    }
