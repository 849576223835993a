"""Levers around the request: the load, other programs, clocks, the sampler."""

from __future__ import annotations

from collections.abc import Iterator

from reports import units
from reports.phases import Estimate
from reports.remedies.base import Remedy, Situation, Tool, Trial, between, computed
from reports.request_costs import RUN_TO_RUN
from reports.rules import clocks, first_touch, gpu_neighbours, neighbours, paging, quota
from reports.rules.base import Finding
from reports.rules.physics import LEAST_HOST_BYTES_S

_KEEP_HOW: dict[Tool, str] = {
    "llmphase": "without --cold and --warm: the load is then no part of the wait",
    "llama.cpp": "run llama-server and keep it running; --no-warmup only moves the first touch",
    "ollama": 'OLLAMA_KEEP_ALIVE=-1, or "keep_alive": -1 in the request',
    "lm-studio": "turn `Auto unload unused JIT loaded models` off",
}


def levers(situation: Situation) -> Iterator[Remedy | None]:
    """All of them, as far as the facts carry."""
    yield _keep_loaded(situation)
    yield _warm_file(situation)
    yield _stop_neighbours(situation)
    yield _raise_quota(situation)
    yield _free_clocks(situation)
    yield _enough_memory(situation)
    yield _shorter_sampler(situation)


def _keep_loaded(situation: Situation) -> Remedy | None:
    load_s = situation.waits.load_s
    if not load_s:
        return None
    spread = load_s * RUN_TO_RUN
    rest = situation.total_s - load_s
    return computed(
        situation,
        between(rest, rest - spread, rest + spread),
        code="keep-loaded",
        title="keep the model loaded between requests",
        basis="the load as measured, gone",
        how=_KEEP_HOW,
        cost=f"{units.size(situation.evidence.model_bytes)} of memory stay in use",
        try_with=Trial(workload={"start": "loaded"}),
    )


def _warm_file(situation: Situation) -> Remedy | None:
    """The first evaluation read the file from disk; from memory a prompt token costs no more than a generated
    one."""
    evidence, step = situation.evidence, situation.evidence.decode_step_s
    if step is None or not isinstance(first_touch.judge(evidence), Finding):
        return None
    most = situation.n_evaluated * step
    return computed(
        situation,
        situation.wait(prefill=between(most, step, most * (1 + RUN_TO_RUN))),
        code="warm-file",
        title="have the file in memory before the first request",
        basis="prompt tokens at the generated ones' cost, the most that they take without the disk",
        how=_KEEP_HOW | {"llama.cpp": "--no-mmap reads the file while loading; or read it once before"},
        cost=f"{units.size(evidence.model_bytes)} of memory stay in use",
    )


def _stop_neighbours(situation: Situation) -> Remedy | None:
    how = _everywhere("close the programs named, or run when they do not")
    for what, judge in (("CPU", neighbours.judge), ("GPU", gpu_neighbours.judge)):
        outcome = judge(situation.evidence)
        if isinstance(outcome, Finding):
            title = f"stop what else uses the {what}"
            return _without(situation, outcome, "stop-neighbours", title, how, "the other programs wait")
    return None


def _raise_quota(situation: Situation) -> Remedy | None:
    how = _everywhere("docker: --cpus N; Kubernetes: limits.cpu; or as many threads as the quota has CPUs")
    outcome = quota.judge(situation.evidence)
    return _without(
        situation,
        outcome,
        "raise-quota",
        "raise the CPU quota, or use fewer threads",
        how,
        "none, or the quota's",
    )


def _free_clocks(situation: Situation) -> Remedy | None:
    how = _everywhere(
        "performance power plan or governor, mains power, cooling; nvidia-smi -q -d PERFORMANCE"
    )
    outcome = clocks.judge(situation.evidence)
    return _without(
        situation, outcome, "free-clocks", "let the processor run at its clock", how, "power and noise"
    )


def _without(
    situation: Situation, outcome: object, code: str, title: str, how: dict[Tool, str], cost: str
) -> Remedy | None:
    """Prefill and decode without the share that the disturbance takes; the least that it takes, so the wait
    may fall further."""
    if not isinstance(outcome, Finding) or outcome.saves_share is None or situation.waits.compute_s <= 0:
        return None
    compute_s = situation.waits.compute_s
    saved = compute_s * outcome.saves_share
    rest = situation.total_s - saved
    wait = between(rest, rest - (compute_s - saved) / 2, situation.total_s - saved / 2)
    return computed(situation, wait, code=code, title=title, basis=outcome.reason, how=how, cost=cost)


def _enough_memory(situation: Situation) -> Remedy | None:
    """Weights that stay in memory are read at its speed instead of the disk's."""
    evidence = situation.evidence
    needed, step, decode_s = evidence.host_read_bytes, evidence.decode_step_s, situation.waits.decode_s
    if not isinstance(paging.judge(evidence), Finding) or needed is None or not step or decode_s is None:
        return None
    bandwidth = evidence.memory_bandwidth_bytes_s or LEAST_HOST_BYTES_S
    steps = decode_s / step
    new = Estimate(
        value_s=min(decode_s, steps * needed / bandwidth * 1.5),
        low_s=min(decode_s, steps * needed / bandwidth),
        high_s=min(decode_s, steps * needed / bandwidth * 4),
    )
    return computed(
        situation,
        situation.wait(decode=new),
        code="fit-memory",
        title="take a model or quantization that fits in memory, or add memory",
        basis=f"weights read at {units.size(bandwidth)}/s instead of a disk's speed",
        how=_everywhere("a smaller model or quantization, a smaller context, other programs closed"),
        cost="quality, or memory",
    )


def _shorter_sampler(situation: Situation) -> Remedy | None:
    sampling_s = situation.waits.sampling_s
    if not sampling_s:
        return None
    wait = situation.wait(sampling=between(0.0, 0.0, sampling_s))
    return computed(
        situation,
        wait,
        code="sampler-shorter",
        title="shorten the sampler chain",
        basis="at best: sampling as measured, gone",
        how={
            "llmphase": "its sampling phase shows the default and the greedy chain side by side",
            "llama.cpp": '--samplers "top_k;temperature" --top-k 40, no grammar',
            "ollama": "PARAMETER top_k 40, PARAMETER repeat_penalty 1",
            "lm-studio": "Top K Sampling: 40, Repeat Penalty off",
        },
        cost="other words",
    )


def _everywhere(text: str) -> dict[Tool, str]:
    """The same advice whatever runs the model."""
    return dict.fromkeys(("llmphase", "llama.cpp", "ollama", "lm-studio"), text)
