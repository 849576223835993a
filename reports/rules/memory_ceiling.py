"""How near decode comes to what the memory can deliver: an explanation, or a sign that something else slows
it."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.rules.physics import (
    LAYER_OVERHEAD_S,
    LEAST_BOARD_BYTES_S,
    LEAST_HOST_BYTES_S,
    USUAL_LAYERS,
    ceiling_share,
    host_rate_bytes_s,
)
from reports.units import percent, size

AT_CEILING = 0.5
"""Healthy GPUs decode at 0.61 to 0.87 of the data sheet, CPUs at 0.65 to 0.96 of measured bandwidth."""
FAR_BELOW = 0.25
"""A fourth of the ceiling with operations' cost granted: noise, a weak core or a short prompt do not explain
it."""
_PC_CPUS = 8
"""Logical CPUs from which on memory has two channels at the least."""


def judge(evidence: Evidence) -> Outcome:
    """The share of the ceiling; without a ceiling, weight bytes a second against the least that any memory
    gives."""
    names = ("decode_tok_s", "bytes_per_token", "memory_bandwidth_bytes_s", "gpu_bandwidth_bytes_s")
    inputs = evidence.known(*names, "decode_ceiling_s", "threads", "n_layers")
    share = ceiling_share(evidence)
    if share is None:
        return _against_least(evidence, inputs)
    if share >= AT_CEILING:
        return Finding(
            verdict="generation-bound",
            confidence=0.75,
            reason=f"at the memory ceiling: decode reaches {percent(min(share, 1.0))} of what the memory can"
            " deliver",
            inputs=inputs,
            margin=share / AT_CEILING - 1,
        )
    if _with_operations(evidence, share) < FAR_BELOW:
        return _far_below(f"decode reaches {percent(share)} of what the memory can deliver", inputs)
    return Finding(
        verdict="generation-bound",
        confidence=0.5,
        reason=f"decode reaches {percent(share)} of what the memory can deliver; operations cost the rest",
        inputs=inputs,
        margin=1 - share / AT_CEILING,
    )


def _with_operations(evidence: Evidence, share: float) -> float:
    """The share with the cost of starting each operation granted; a measured ceiling holds it already."""
    step = evidence.decode_step_s
    if evidence.decode_ceiling_s is not None or step is None:
        return share
    return share + (evidence.n_layers or USUAL_LAYERS) * LAYER_OVERHEAD_S / step


def _against_least(evidence: Evidence, inputs: dict[str, object]) -> Outcome:
    rate = host_rate_bytes_s(evidence)
    if rate is None or evidence.host_works is not True or evidence.has_gpu:
        names = ("bytes_per_token", "decode_tok_s", "memory_bandwidth_bytes_s", "gpu_bandwidth_bytes_s")
        return Abstained(missing=evidence.missing(*names))
    least = LEAST_HOST_BYTES_S if (evidence.logical_cpus or 0) >= _PC_CPUS else LEAST_BOARD_BYTES_S
    share = _with_operations(evidence, rate / least)
    if share < FAR_BELOW:
        return _far_below(f"decode reads {size(rate)}/s, where any such memory gives {size(least)}/s", inputs)
    return Cleared(reason=f"decode reads {size(rate)}/s of weights", inputs=inputs)


def _far_below(reason: str, inputs: dict[str, object]) -> Finding:
    return Finding(
        verdict="unknown",
        confidence=0.55,
        reason=f"not at the memory ceiling: {reason}",
        inputs=inputs,
        advice="look at the engine's build (vector instructions), the number of threads, memory on the other"
        " processor's side (NUMA) and clocks",
    )
