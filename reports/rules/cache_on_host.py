"""Attention on the CPU though the weights are on the device: the KV cache lies there, or its types have no
kernel."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.rules.physics import ceiling_share, device_step_s
from reports.units import duration, percent

_PLAIN = frozenset({"f16", "bf16", "f32"})
_BUSY = 0.25
"""Of all CPUs: a run on the device keeps one thread busy, attention on the host keeps all threads so."""
_ALL_BUSY = 0.5
_AT_CEILING = 0.5
_SLOW = 3.0
"""Times the longest step that device memory explains."""
_SPLITS_PER_DEVICE = 2
_SPLITS_BESIDE = 4
"""A graph is cut where it changes device: once or twice a device, and at input and output. Attention on the
host cuts it twice a layer."""


def judge(evidence: Evidence) -> Outcome:
    """The cache's own device, then graph splits, then pairs of types that GPUs have no kernel for."""
    names = ("kv_on_cpu", "graph_splits", "type_k", "type_v")
    inputs = evidence.known(
        *names, "flash_attn", "cpu_utilization", "decode_tok_s", "n_gpus", "layers_on_gpu"
    )
    if evidence.has_gpu is False or evidence.layers_on_gpu == 0 or evidence.uses_gpu_backend is False:
        return Cleared(reason="weights are not on a device either", inputs=inputs)
    if len(evidence.missing(*names)) == len(names):
        return Abstained(missing=names)
    share = ceiling_share(evidence)
    if share is not None and share >= _AT_CEILING:
        return Cleared(reason=f"decode reaches {percent(share)} of the memory ceiling", inputs=inputs)
    reason, confidence = _seen(evidence)
    if reason:
        return Finding(verdict="offload-bound", confidence=confidence, reason=reason, inputs=inputs)
    return Cleared(reason="nothing says that attention leaves the device", inputs=inputs)


def _seen(evidence: Evidence) -> tuple[str, float]:
    if evidence.kv_on_cpu:
        return "the KV cache lies in system memory, so attention runs there for each token", 0.9
    splits = evidence.graph_splits
    most = _SPLITS_PER_DEVICE * (evidence.n_gpus or 1) + _SPLITS_BESIDE
    if evidence.fully_on_gpu and splits is not None and splits > most:
        return f"the graph is cut into {splits} parts although every layer is on the device", 0.85
    return _types(evidence)


def _types(evidence: Evidence) -> tuple[str, float]:
    """Without a build option for all pairs, llama.cpp's GPU attention kernels take equal K and V types only
    (`fattn.cu`, GGML_CUDA_FA_ALL_QUANTS); quantized ones not at every head size. Then attention falls to the
    CPU without a word."""
    k, v = evidence.type_k or "f16", evidence.type_v or "f16"
    is_busy = evidence.cpu_utilization is not None and evidence.cpu_utilization >= _BUSY
    if k != v:
        confidence = 0.9 if is_busy else 0.75
        return f"K in {k} and V in {v} have no attention kernel on the GPU in usual builds", confidence
    step, expected = evidence.decode_step_s, device_step_s(evidence)
    is_slow = step is not None and expected is not None and step > _SLOW * expected
    if k in _PLAIN or not (is_busy or is_slow):
        return _busy_host(evidence)
    slow = f", and a token takes {duration(step)}" if is_slow else ", and all CPUs are busy"
    return f"a {k} cache may lack an attention kernel for this head size on the GPU{slow}", 0.78


def _busy_host(evidence: Evidence) -> tuple[str, float]:
    busy = evidence.cpu_utilization
    if not evidence.fully_on_gpu or busy is None or busy < _ALL_BUSY:
        return "", 0.0
    return f"every layer is on the device, yet all CPUs are busy {percent(busy)} of the time", 0.7
