"""Decode that slows down steeply with depth: attention reads the KV cache over slow memory."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.units import percent

_STEEP = 0.2
"""Growth of a step per 1,000 tokens of depth, as a share of the step at the start. On a device the cache of a
grouped-query model adds 1 to 8 % (its bytes over the weights' bytes, both at the same speed); read over
system memory beside weights in device memory, 30 % and more."""
_LEAST_DEPTH = 500


def judge(evidence: Evidence) -> Outcome:
    """The slope between the shallowest and the deepest point."""
    points = evidence.decode_tok_s_at_depth
    if evidence.has_gpu is False or evidence.layers_on_gpu == 0 or evidence.uses_gpu_backend is False:
        return Cleared(reason="no device is in use", inputs=evidence.known("gpu_present", "layers_on_gpu"))
    if evidence.has_gpu is None or points is None or points[-1][0] - points[0][0] < _LEAST_DEPTH:
        return Abstained(missing=evidence.missing("gpu_present", "decode_tok_s_at_depth"))
    (shallow, fast), (deep, slow) = points[0], points[-1]
    growth = (fast / slow - 1) / ((deep - shallow) / 1000)
    inputs = evidence.known("decode_tok_s_at_depth", "gpu_present", "kv_on_cpu", "graph_splits")
    if growth < _STEEP:
        reason = f"a step grows by {percent(max(0.0, growth))} with each 1,000 tokens of depth"
        return Cleared(reason=reason, inputs=inputs)
    return Finding(
        verdict="offload-bound",
        confidence=0.72,
        reason=f"a step grows by {percent(growth)} with each 1,000 tokens of depth: attention does not run"
        " at the device's speed",
        inputs=inputs,
        margin=growth / _STEEP - 1,
    )
