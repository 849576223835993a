"""Levers on the engine's settings: threads, micro-batch, cache types, flash attention, load mode."""

from __future__ import annotations

import math
from collections.abc import Iterator

from reports import units
from reports.evidence import Evidence, OtherKernels
from reports.phases import Estimate
from reports.remedies.base import HEALTHY, Remedy, Situation, Tool, Trial, between, computed, untold
from reports.rules import threads as threads_rule
from reports.rules.base import Finding

_LARGEST_UBATCH = 2048
_Q8_SAVES = 1 - (34 / 32) / 2
"""Share of an f16 cache's bytes that q8_0 saves: 34 bytes for 32 elements instead of 64."""
_KERNELS_BASIS = "the kernels at this model's own shapes, on both numbers of threads"
_THREADS_DOUBT = 0.1
"""What a run with all its operations may gain more, or less, than its kernels do."""
_PLAIN = ("f16", "bf16", "f32")


def levers(situation: Situation) -> Iterator[Remedy | None]:
    """All of them, as far as the facts carry."""
    yield _threads(situation)
    yield _batch_threads(situation)
    yield _micro_batch(situation)
    yield _cache_type(situation)
    yield _flash_attention(situation)
    yield _load_mode(situation)
    yield _lock(situation)


# --- threads -------------------------------------------------------------------------------------


def _threads(situation: Situation) -> Remedy | None:
    """One thread for each usable core, in both phases."""
    evidence = situation.evidence
    threads, usable = evidence.threads, _cores(evidence)
    if not threads or not usable or threads == usable or evidence.host_works is False:
        return None
    batch = evidence.threads_batch or threads
    fewer = threads > usable
    kernels = None if fewer else _kernels_on(evidence, usable)
    if kernels is not None:
        parts = {
            "prefill": _on_threads(
                situation.waits.prefill_s, kernels.prompt_token_now_s, kernels.prompt_token_then_s
            ),
            "decode": _on_threads(situation.waits.decode_s, kernels.step_now_s, kernels.step_then_s),
        }
    elif fewer:
        parts = {"prefill": _unblocked(situation, "prefill"), "decode": _unblocked(situation, "decode")}
    else:
        parts = {
            "prefill": _spread(situation.waits.prefill_s, _of_host(evidence, batch / usable), None),
            "decode": _spread(
                situation.waits.decode_s, _of_host(evidence, threads / usable), situation.least_decode_s
            ),
        }
    title = f"use {usable} {'thread' if usable == 1 else 'threads'}, one for each usable core, not {threads}"
    trial = Trial(settings={"threads": usable, "threads_batch": usable})
    wait = situation.wait(**{name: part for name, part in parts.items() if part is not None})
    if all(part is None for part in parts.values()):
        return untold(
            code="threads",
            title=title,
            at_most_s=situation.waits.compute_s or None,
            basis="what waiting for each other costs is not known beforehand",
            how=_threads_how(usable),
            cost="none",
            try_with=trial,
        )
    return computed(
        situation,
        wait,
        code="threads",
        title=title,
        basis=_KERNELS_BASIS if kernels else _threads_basis(evidence, fewer=fewer),
        how=_threads_how(usable),
        cost="none" if fewer else "less CPU for other programs",
        try_with=trial,
    )


def _kernels_on(evidence: Evidence, threads: int) -> OtherKernels | None:
    known = evidence.usable_threads
    return known if known is not None and known.name == str(threads) else None


def _on_threads(seconds: float | None, now_s: float, then_s: float) -> Estimate | None:
    """A phase in proportion to its kernels on both numbers of threads."""
    if seconds is None or now_s <= 0:
        return None
    value = seconds * then_s / now_s
    return between(value, value * (1 - _THREADS_DOUBT), value * (1 + _THREADS_DOUBT))


def _threads_basis(evidence: Evidence, *, fewer: bool) -> str:
    if not fewer:
        return "prefill in proportion to the threads, decode up to the memory's ceiling"
    if evidence.decode_ceiling_s is not None:
        return "the ceilings of prefill and decode, of which healthy runs reach three quarters"
    return "the periods in which the quota stopped the run, gone"


def _cores(evidence: Evidence) -> int:
    """Cores to use; where only logical CPUs are known and they are the trouble, one of each pair. 0:
    unknown."""
    if evidence.usable_cpus is not None:
        return max(1, int(evidence.usable_cpus))
    is_trouble = isinstance(threads_rule.judge(evidence), Finding)
    return (evidence.logical_cpus or 0) // 2 if is_trouble else 0


def _unblocked(situation: Situation, part: str) -> Estimate | None:
    """A phase without threads that wait for each other: between its ceiling and what it takes now; or less by
    the share of time that the quota stopped it."""
    evidence, seconds = situation.evidence, situation.waits.parts.get(part)
    if seconds is None:
        return None
    throttled = evidence.cpu_throttled_fraction
    least = evidence.prefill_ceiling_s if part == "prefill" else situation.least_decode_s
    if least is not None:
        return between(min(seconds, least / HEALTHY), min(seconds, least), seconds)
    if throttled:
        return between(seconds * (1 - throttled), seconds * (1 - throttled) / 2, seconds)
    return None


def _spread(seconds: float | None, ratio: float, least_s: float | None) -> Estimate | None:
    """A phase over more threads: at best in proportion, never below its ceiling, at worst as now. Where the
    ceiling of decode is not known, half of the gain is taken: memory may be the limit already."""
    if seconds is None or ratio >= 1:
        return None
    best = seconds * ratio
    if least_s is not None:
        best = min(seconds, max(best, least_s))
    return between(best, best, seconds)


def _of_host(evidence: Evidence, ratio: float) -> float:
    """The ratio of a whole phase whose part on the host changes so: devices do not gain from its threads."""
    share = evidence.host_layers_share
    return ratio if share is None else 1 - share * (1 - ratio)


def _threads_how(threads: int) -> dict[Tool, str]:
    return {
        "llmphase": f"--threads {threads} --threads-batch {threads}",
        "llama.cpp": f"--threads {threads} --threads-batch {threads}",
        "ollama": f"PARAMETER num_thread {threads}",
        "lm-studio": f"CPU Thread Pool Size: {threads}",
    }


def _batch_threads(situation: Situation) -> Remedy | None:
    """More threads for the prompt alone: it is bound by arithmetic, which every core adds to."""
    evidence = situation.evidence
    batch, usable = evidence.threads_batch, int(evidence.usable_cpus or 0)
    if not batch or batch >= usable or evidence.threads != usable or evidence.host_works is False:
        return None
    return computed(
        situation,
        situation.wait(prefill=_spread(situation.waits.prefill_s, batch / usable, None)),
        code="threads-batch",
        title=f"use {usable} threads for the prompt, not {batch}",
        basis="prefill in proportion to the threads",
        how=_threads_how(usable) | {"llmphase": f"--threads-batch {usable}"},
        cost="less CPU for other programs",
        try_with=Trial(settings={"threads_batch": usable}),
    )


# --- micro-batch ---------------------------------------------------------------------------------


def _micro_batch(situation: Situation) -> Remedy | None:
    """Fewer, larger micro-batches: each reads all weights once (or moves them to the device), and starts each
    operation once."""
    evidence, prefill_s = situation.evidence, situation.waits.prefill_s
    now = evidence.n_ubatch
    if not now or prefill_s is None or situation.n_evaluated <= now:
        return None
    then = min(_LARGEST_UBATCH, 2 ** math.ceil(math.log2(situation.n_evaluated)))
    if then <= now:
        return None
    chunks = math.ceil(situation.n_evaluated / now)
    fewer = chunks - math.ceil(situation.n_evaluated / then)
    each = _chunk_cost_s(situation)
    title = f"use a micro-batch of {units.count(then)} tokens, not {units.count(now)}"
    trial = Trial(settings={"n_ubatch": then, "n_batch": max(then, evidence.n_batch or 0)})
    cost = "memory for larger compute buffers"
    if each is None:
        return untold(
            code="micro-batch",
            title=title,
            at_most_s=prefill_s * fewer / chunks,
            basis="what a micro-batch costs beside its tokens is not known",
            how=_ubatch_how(then),
            cost=cost,
            try_with=trial,
        )
    saved = min(fewer * each, prefill_s * fewer / chunks)
    return computed(
        situation,
        situation.wait(prefill=between(prefill_s - saved, prefill_s * (1 - fewer / chunks), prefill_s)),
        code="micro-batch",
        title=title,
        basis=f"{fewer} fewer readings of the weights, {units.duration(each)} each",
        how=_ubatch_how(then),
        cost=cost,
        try_with=trial,
    )


def _chunk_cost_s(situation: Situation) -> float | None:
    """What one more micro-batch costs: moving the host's weights to the device where one works, else one
    reading of all weights at decode's speed (a mixture of experts reads all experts for a batch)."""
    evidence = situation.evidence
    if evidence.has_gpu and evidence.host_works:
        moved = evidence.host_weights_bytes
        rate = evidence.transfer_bytes_s
        return moved / rate if moved is not None and rate else None
    step, read, model = evidence.decode_step_s, evidence.read_bytes, evidence.model_bytes
    if step is None or not read or not model or evidence.has_gpu is None:
        return None
    return step * max(1.0, model / read)


def _ubatch_how(tokens: int) -> dict[Tool, str]:
    return {
        "llmphase": f"--ubatch {tokens} --batch {tokens}",
        "llama.cpp": f"--ubatch-size {tokens} --batch-size {tokens}",
        "ollama": f"PARAMETER num_batch {tokens}",
        "lm-studio": f"Evaluation Batch Size: {tokens}",
    }


# --- cache and attention -------------------------------------------------------------------------


def _cache_type(situation: Situation) -> Remedy | None:
    """Half the bytes of the cache; what that saves depends on the kernel, and on some it costs."""
    evidence = situation.evidence
    attention = situation.costs.attention(situation.n_prompt, situation.n_output)
    if attention is None or (evidence.type_k or "f16") not in _PLAIN:
        return None
    how: dict[Tool, str] = {
        "llmphase": "--type-k q8_0 --type-v q8_0 --flash-attn on",
        "llama.cpp": "--cache-type-k q8_0 --cache-type-v q8_0 --flash-attn on",
        "ollama": "OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_FLASH_ATTENTION=1",
        "lm-studio": "K and V Cache Quantization Type: q8_0, Flash Attention on",
    }
    return untold(
        code="cache-type",
        title="keep the KV cache in q8_0",
        at_most_s=attention * _Q8_SAVES,
        basis="it halves the cache's bytes; unpacking them may cost as much, so only a trial tells",
        how=how,
        cost="a little accuracy at long contexts",
        try_with=Trial(settings={"type_k": "q8_0", "type_v": "q8_0", "flash_attn": "on"}),
    )


def _flash_attention(situation: Situation) -> Remedy | None:
    if situation.evidence.flash_attn is not False:
        return None
    how: dict[Tool, str] = {
        "llmphase": "--flash-attn on",
        "llama.cpp": "--flash-attn on",
        "ollama": "OLLAMA_FLASH_ATTENTION=1",
        "lm-studio": "Flash Attention: on",
    }
    return untold(
        code="flash-attention",
        title="turn flash attention on",
        at_most_s=situation.costs.attention(situation.n_prompt, situation.n_output),
        basis="its effect differs by device and head size, so only a trial tells",
        how=how,
        cost="none, where the device has a kernel for it",
        try_with=Trial(settings={"flash_attn": "on"}),
    )


# --- how the file is read ------------------------------------------------------------------------


def _load_mode(situation: Situation) -> Remedy | None:
    """Reading the file in one go instead of page by page."""
    load_s = situation.waits.load_s
    if not load_s or situation.evidence.load_mode not in (None, "auto", "mmap"):
        return None
    how: dict[Tool, str] = {
        "llmphase": "--load-mode none",
        "llama.cpp": "--no-mmap",
        "ollama": '"use_mmap": false in the request\'s options',
        "lm-studio": "Try mmap(): off",
    }
    return untold(
        code="load-unmapped",
        title="read the file in one go instead of mapping it",
        at_most_s=load_s,
        basis="it depends on the drive and on what is cached, so only a trial tells",
        how=how,
        cost="memory that other programs can not reclaim; a warm load takes longer",
        try_with=Trial(settings={"load_mode": "none"}),
    )


def _lock(situation: Situation) -> Remedy | None:
    """Keeps weights that fit from being pushed out."""
    evidence = situation.evidence
    needed, memory = evidence.host_weights_bytes, evidence.memory_bytes
    if not evidence.swap_in_bytes or needed is None or memory is None or needed > memory * 0.8:
        return None
    how: dict[Tool, str] = {
        "llmphase": "--load-mode mlock",
        "llama.cpp": "--mlock",
        "ollama": '"use_mlock": true in the request\'s options',
        "lm-studio": "Keep Model in Memory: on",
    }
    return untold(
        code="lock-memory",
        title="lock the weights in memory",
        at_most_s=situation.waits.compute_s or None,
        basis=f"{units.size(evidence.swap_in_bytes)} came back from swap; what that cost is unknown",
        how=how,
        cost="memory that other programs then lack; the system must allow it (ulimit -l)",
        try_with=Trial(settings={"load_mode": "mlock"}),
    )
