"""From what was asked to what will be measured: pure.

Every option that was not given gets its default here, and its name is kept, so that a report can say
which settings nobody chose.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from probes.errors import UsageError
from probes.layer_steps import GpuLayers, LayerSteps, resolve_steps
from probes.records import ModelFacts, Options, Settings, Workload

MAX_LENGTHS = 256
MAX_GROUPS = 256
MAX_THREADS = 512
MAX_TOKENS = 16 * 1024 * 1024
"""Longer than any context that a model offers: a larger number is a slip of the finger."""
_WALK_STEPS = 16
"""Decode steps at each depth of a diagnosis: the request itself brings more."""
_SHORTEST_HALF = 32
_WORKLOAD_PRECISION = 0.05
_WORKLOAD_BUDGET_NS = 60 * 10**9
_CONTEXT_STEP = 256
"""The engine rounds its cache up to this many cells."""

Like = Literal["llama-bench"]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user gave; None where nothing was given. Engine settings are axes: each value is measured with
    each value of the others."""

    prompt_tokens: tuple[int, ...] | None = None
    output_tokens: int | None = None
    n_ctx: int | None = None
    rpc_servers: tuple[str, ...] | None = None
    threads: tuple[int, ...] | None = None
    threads_batch: tuple[int, ...] | None = None
    """None: as `threads`."""
    n_batch: tuple[int, ...] | None = None
    n_ubatch: tuple[int, ...] | None = None
    flash_attn: tuple[Literal["on", "off", "auto"], ...] | None = None
    type_k: tuple[str, ...] | None = None
    type_v: tuple[str, ...] | None = None
    load_mode: tuple[Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"], ...] | None = None
    repack: tuple[bool, ...] | None = None
    kv_offload: tuple[bool, ...] | None = None
    op_offload: tuple[bool, ...] | None = None
    n_cpu_moe: tuple[int, ...] | None = None
    override_tensor: tuple[tuple[str, ...], ...] | None = None
    split_mode: tuple[Literal["none", "layer", "row", "tensor"], ...] | None = None
    tensor_split: tuple[tuple[float, ...], ...] | None = None
    devices: tuple[tuple[str, ...], ...] | None = None
    main_gpu: tuple[int, ...] | None = None
    n_gpu_layers: tuple[GpuLayers, ...] | None = None
    repetitions: int | None = None
    precision: float | None = None
    budget_ns: int | None = None
    tokens: Literal["text", "random"] | None = None
    seed: int | None = None
    cold: bool = False
    like: Like | None = None
    cell_timeout_ns: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGroup:
    """One model with one set of settings: one load serves all its lengths."""

    model: ModelFacts
    settings: Settings
    workload: Workload | None = None
    """The request to run as a whole; None: one at a measured length."""
    prompt: str | None = None
    """The user's own prompt, as the model gets it."""
    refusal: str | None = None
    """Why it is not even tried: it can not fit into memory."""
    requests: int = 3
    """The workload's request is run so often, while it is cheap."""
    turn_ns: int | None = None
    """Where groups take turns: a request lets another one go on after so long. None: at its end."""
    further_loads: bool = True
    """Whether the model is loaded again in fresh processes, for the time that a load takes."""
    times_parts: bool = True
    """Whether host and devices of a split model are timed apart."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that will be measured, in order."""

    groups: tuple[PlannedGroup, ...]
    options: Options
    warnings: tuple[str, ...]


_AXES = {
    "devices": "--device",
    "split_mode": "--split-mode",
    "main_gpu": "--main-gpu",
    "tensor_split": "--tensor-split",
    "override_tensor": "--override-tensor",
    "n_cpu_moe": "--n-cpu-moe",
    "kv_offload": "--kv-offload",
    "op_offload": "--op-offload",
    "load_mode": "--load-mode",
    "repack": "--repack",
    "type_k": "--type-k",
    "type_v": "--type-v",
    "flash_attn": "--flash-attn",
    "n_batch": "--batch",
    "n_ubatch": "--ubatch",
    "threads": "--threads",
    "threads_batch": "--threads-batch",
    "n_gpu_layers": "--gpu-layers",
}
"""Settings that are axes, with their options; the last one varies fastest."""

_DEFAULTS = Asked(
    prompt_tokens=(0, 128, 512, 2048),
    output_tokens=32,
    rpc_servers=(),
    n_batch=(2048,),
    n_ubatch=(512,),
    flash_attn=("auto",),
    type_k=("f16",),
    type_v=("f16",),
    load_mode=("auto",),
    repack=(True,),
    kv_offload=(True,),
    op_offload=(True,),
    n_cpu_moe=(0,),
    override_tensor=((),),
    split_mode=("layer",),
    tensor_split=((),),
    devices=((),),
    main_gpu=(0,),
    n_gpu_layers=(None,),
    precision=0.03,
    budget_ns=120 * 10**9,
    tokens="text",
    seed=0,
)

_DEFAULTS_LIKE: dict[Like, Asked] = {
    # tools/llama-bench/llama-bench.cpp, cmd_params_defaults
    "llama-bench": dataclasses.replace(
        _DEFAULTS, prompt_tokens=(0, 512), output_tokens=128, tokens="random", repetitions=5
    ),
}


def build_plan(models: Sequence[ModelFacts], asked: Asked, default_threads: int) -> Plan:
    """Fill in defaults, check what belongs together, and group the cells by load.

    Raises UsageError naming the option to change.
    """
    if not models:
        raise UsageError("no model to measure", reason="no-model")
    full, defaulted = _fill(asked, default_threads)
    lengths = _checked_lengths(full)
    output_tokens = _checked("--output-tokens", full.output_tokens, 1, MAX_TOKENS)
    _check_together(full)
    n_ctx = _context(full.n_ctx, max(lengths) + output_tokens)
    groups = tuple(
        PlannedGroup(model=model, settings=settings)
        for model in models
        for settings in _combinations(full, n_ctx, model)
    )
    if len(groups) > MAX_GROUPS:
        raise UsageError(
            f"{len(groups)} combinations of models and settings are too many: {MAX_GROUPS} at the most",
            reason="axes",
        )
    options = Options(
        prompt_tokens=lengths,
        output_tokens=output_tokens,
        repetitions=full.repetitions,
        precision=_given(full.precision),
        budget_ns=_given(full.budget_ns),
        tokens=_given(full.tokens),
        seed=_given(full.seed),
        cold=full.cold,
        defaulted=defaulted,
        cell_timeout_ns=full.cell_timeout_ns,
    )
    return Plan(
        groups=groups,
        options=options,
        warnings=tuple(_warnings(models, max(lengths) + output_tokens)),
    )


def build_workload_plan(
    model: ModelFacts, asked: Asked, workload: Workload, prompt: str | None, default_threads: int
) -> Plan:
    """The plan that a diagnosis needs: the request itself, and the walk that the phase model is fitted on.

    Raises UsageError naming the option to change.
    """
    _require_single(asked)
    end = workload.prompt_tokens + workload.output_tokens
    walk = dataclasses.replace(
        asked,
        prompt_tokens=workload_lengths(workload),
        output_tokens=_WALK_STEPS,
        precision=asked.precision or _WORKLOAD_PRECISION,
        budget_ns=asked.budget_ns or _WORKLOAD_BUDGET_NS,
        cold=workload.start == "cold",
    )
    if asked.n_ctx is not None and asked.n_ctx < end:
        raise UsageError(
            f"the prompt ({workload.prompt_tokens:,} tokens) and its output ({workload.output_tokens:,}) do"
            f" not fit into --ctx {asked.n_ctx:,}: cut {end - asked.n_ctx:,} tokens, or give --ctx {end}",
            reason="context",
        )
    if asked.n_ctx is not None:
        walk = dataclasses.replace(walk, n_ctx=max(asked.n_ctx, end + _WALK_STEPS))
    plan = build_plan([model], walk, default_threads)
    group = dataclasses.replace(plan.groups[0], workload=workload, prompt=prompt)
    chosen_here = tuple(name for name in ("precision", "budget_ns") if getattr(asked, name) is None)
    options = dataclasses.replace(plan.options, defaulted=(*plan.options.defaulted, *chosen_here))
    return dataclasses.replace(plan, groups=(group,), options=options)


def workload_lengths(workload: Workload) -> tuple[int, ...]:
    """Lengths that span the depths a request comes through: empty, half the prompt, the prompt, and prompt
    and output together."""
    half = workload.prompt_tokens // 2
    lengths = {0, workload.prompt_tokens, workload.prompt_tokens + workload.output_tokens}
    return tuple(sorted(lengths | ({half} if half >= _SHORTEST_HALF else set())))


def _fill(asked: Asked, default_threads: int) -> tuple[Asked, tuple[str, ...]]:
    defaults = _DEFAULTS_LIKE[asked.like] if asked.like else _DEFAULTS
    threads = asked.threads if asked.threads is not None else (default_threads,)
    defaults = dataclasses.replace(defaults, threads=threads)
    missing = [
        field.name
        for field in dataclasses.fields(Asked)
        if getattr(asked, field.name) is None and getattr(defaults, field.name) is not None
    ]
    full = dataclasses.replace(asked, **{name: getattr(defaults, name) for name in missing})
    implied = [name for name in ("n_ctx", "threads_batch") if getattr(asked, name) is None]
    return full, tuple(missing + implied)


def _checked_lengths(full: Asked) -> tuple[int, ...]:
    lengths = tuple(sorted(set(full.prompt_tokens or ())))
    if not lengths:
        raise UsageError("--prompt-tokens: give at least one length, for example 0,128,512", reason="lengths")
    if len(lengths) > MAX_LENGTHS:
        raise UsageError(
            f"--prompt-tokens: {len(lengths)} lengths are too many; give {MAX_LENGTHS} at the most",
            reason="lengths",
        )
    for length in lengths:
        _checked("--prompt-tokens", length, 0, MAX_TOKENS)
    return lengths


def _checked(option: str, value: int | None, low: int, high: int) -> int:
    if value is None or not low <= value <= high:
        raise UsageError(f"{option}: {value} is not between {low} and {high:,}", reason="range")
    return value


def _check_together(full: Asked) -> None:
    for name, low, high in (
        ("threads", 1, MAX_THREADS),
        ("threads_batch", 1, MAX_THREADS),
        ("n_batch", 1, MAX_TOKENS),
        ("n_ubatch", 1, MAX_TOKENS),
        ("main_gpu", 0, 255),
        ("n_cpu_moe", 0, 99_999),
    ):
        for value in getattr(full, name) or ():
            _checked(_AXES[name], value, low, high)
    _checked("--seed", full.seed, 0, 2**32 - 1)
    if full.repetitions is not None:
        _checked("--repetitions", full.repetitions, 1, 1000)
    quantized = [kind for kind in full.type_v or () if kind not in ("f16", "f32", "bf16")]
    if quantized and "off" in (full.flash_attn or ()):
        raise UsageError(
            f"--type-v {quantized[0]} needs flash attention: leave --flash-attn at auto or on, or use f16",
            reason="type-v",
        )


def _require_single(asked: Asked) -> None:
    """A diagnosis is about one setting: the first axis with several values is named."""
    for name, option in _AXES.items():
        values = getattr(asked, name)
        if values is None:
            continue
        if len(values) > 1 or isinstance(values[0], LayerSteps):
            raise UsageError(
                f"{option}: a diagnosis is about one setting; `llmphase profile` compares several",
                reason="axes",
            )


def _context(asked: int | None, needed: int) -> int:
    if asked is None:
        return -(-needed // _CONTEXT_STEP) * _CONTEXT_STEP
    if asked < needed:
        raise UsageError(
            f"--ctx {asked:,} is too small: the longest prompt and its output need {needed:,} tokens; "
            f"give --ctx {needed} or shorter lengths",
            reason="context",
        )
    return _checked("--ctx", asked, 1, 2 * MAX_TOKENS)


def _combinations(full: Asked, n_ctx: int, model: ModelFacts) -> list[Settings]:
    """Every combination of the axes, none twice."""
    axes: dict[str, tuple[Any, ...]] = {name: _given(getattr(full, name) or (None,)) for name in _AXES}
    axes["n_gpu_layers"] = resolve_steps(_given(full.n_gpu_layers), model.n_layers)
    found = []
    for values in itertools.product(*(dict.fromkeys(axis) for axis in axes.values())):
        chosen = dict(zip(axes, values, strict=True))
        chosen["threads_batch"] = chosen["threads_batch"] or chosen["threads"]
        found.append(Settings(n_ctx=n_ctx, swa_full=False, rpc_servers=_given(full.rpc_servers), **chosen))
    return found


def _warnings(models: Sequence[ModelFacts], needed: int) -> list[str]:
    return [
        f"{model.name}: {needed:,} tokens are more than the {model.n_ctx_train:,} it was trained for; "
        "speed is measured truly, answers there may be poor"
        for model in models
        if model.n_ctx_train is not None and needed > model.n_ctx_train
    ]


def _given(value: T | None) -> T:
    """A default has filled it in; asserted for the type checker."""
    assert value is not None
    return value
