"""A test of llama-bench as a record, and a run of ours as such tests.

Field names and their order are those of llama-bench's CSV and SQL output (llama.cpp 0c1e570,
`tools/llama-bench/llama-bench.cpp`, `test::get_fields`); JSON adds the samples after them.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Literal, cast

from probes.records import CellResult, EngineFacts, GroupResult, Run
from reports import measured, stats, units
from reports.disturbed import counted_samples
from reports.text import clean

Kind = Literal["str", "int", "bool", "float"]
Value = str | int | bool | float | None

UNKNOWN_COMMIT = "unknown"
"""As llama.cpp's own build names it; its build number is 0 then."""
_FLASH = {"auto": -1, "off": 0, "on": 1}
_CPU_KINDS, _GPU_KINDS = ("cpu", "accel"), ("gpu", "igpu")
_NS = 1_000_000_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BenchTest:
    """One line of llama-bench's output. None: the file does not say; our own exports know every field."""

    build_commit: str | None = None
    build_number: int | None = None
    cpu_info: str | None = None
    gpu_info: str | None = None
    backends: str | None = None
    model_filename: str | None = None
    model_type: str | None = None
    """Architecture, size class and quantization: `qwen2 7B Q4_K - Medium`. Untrusted text."""
    model_size: int | None = None
    """Bytes of all tensors."""
    model_n_params: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    n_threads: int | None = None
    cpu_mask: str | None = None
    cpu_strict: bool | None = None
    poll: int | None = None
    type_k: str | None = None
    type_v: str | None = None
    n_gpu_layers: int | None = None
    """As requested; -1: left to the engine."""
    n_cpu_moe: int | None = None
    split_mode: str | None = None
    main_gpu: int | None = None
    no_kv_offload: bool | None = None
    flash_attn: int | None = None
    """-1 auto, 0 off, 1 on."""
    devices: str | None = None
    tensor_split: str | None = None
    tensor_buft_overrides: str | None = None
    load_mode: str | None = None
    lazy_mode: str | None = None
    embeddings: bool | None = None
    no_op_offload: int | None = None
    no_host: bool | None = None
    repack: bool | None = None
    fit_target: int | None = None
    fit_min_ctx: int | None = None
    n_prompt: int
    """Tokens evaluated together; 0 in a test of generation."""
    n_gen: int
    n_depth: int
    """Tokens in the cache when the test begins."""
    test_time: str | None = None
    """UTC, ISO 8601, when the test began."""
    avg_ns: int | None = None
    """Of the whole test."""
    stddev_ns: int | None = None
    avg_ts: float
    """Mean over the repetitions of (n_prompt + n_gen) / seconds: not the rate at the mean time."""
    stddev_ts: float | None = None
    samples_ns: tuple[int, ...] = ()
    """Of the whole test, one a repetition; empty where the format carries none."""
    extras: tuple[tuple[str, Value], ...] = ()
    """What we add: name and value, in order."""

    @property
    def name(self) -> str:
        """As llama-bench's table has it: `pp512`, `tg128 @ d4096`, `pp512+tg128`."""
        parts = [f"pp{self.n_prompt}"] if self.n_prompt else []
        parts += [f"tg{self.n_gen}"] if self.n_gen else []
        return "+".join(parts) + (f" @ d{self.n_depth}" if self.n_depth else "")

    @property
    def samples_ts(self) -> tuple[float, ...]:
        """Tokens per second of each repetition."""
        tokens = self.n_prompt + self.n_gen
        return tuple(tokens * _NS / sample for sample in self.samples_ns)


KINDS: dict[str, Kind] = {
    field.name: cast(Kind, str(field.type).removesuffix(" | None"))
    for field in dataclasses.fields(BenchTest)
    if field.name not in ("samples_ns", "extras")
}
"""Field name -> type, in llama-bench's order."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BenchFile:
    """What a file of llama-bench holds."""

    tests: tuple[BenchTest, ...]
    """In the file's order, at least one."""
    notes: tuple[tuple[str, str], ...] = ()
    """Stable code and text: what is wrong with the file without making it useless."""


def with_samples(test: BenchTest, samples_ns: tuple[int, ...]) -> BenchTest:
    """`test` with its averages and deviations from these samples (at least one).

    Deviations are of the sample (n - 1), 0 for a single one as llama-bench writes it.
    """
    sampled = dataclasses.replace(test, samples_ns=samples_ns)
    rates = sampled.samples_ts
    return dataclasses.replace(
        sampled,
        avg_ns=round(statistics.fmean(samples_ns)),
        stddev_ns=round(_deviation(samples_ns)),
        avg_ts=statistics.fmean(rates),
        stddev_ts=_deviation(rates),
    )


def _deviation(values: tuple[int, ...] | tuple[float, ...]) -> float:
    return statistics.stdev([float(value) for value in values]) if len(values) > 1 else 0.0


def bench_tests(run: Run) -> tuple[BenchTest, ...]:
    """Prefill and decode of every measured cell; what was not measured has no line."""
    found: list[BenchTest] = []
    for group in run.groups:
        for cell in measured.measured_cells(group):
            found += _cell_tests(run, group, cell)
    return tuple(found)


def _cell_tests(run: Run, group: GroupResult, cell: CellResult) -> Iterator[BenchTest]:
    """A test of the prompt and one of generation at the depth that it leaves.

    A first pass that stands apart does not count, as llama-bench's warm-up does not.
    """
    threads = group.resolved or group.settings
    read = stats.counted([(one.pass_index, float(one.prefill_ns)) for one in counted_samples(cell)])
    if cell.prompt_tokens and read:
        yield with_samples(
            _blank(run, group, n_prompt=cell.prompt_tokens, n_threads=threads.threads_batch), _whole(read)
        )
    steps = max((len(one.decode_ns) for one in cell.samples), default=0)
    written = stats.counted(
        [
            (one.pass_index, float(sum(one.decode_ns)))
            for one in counted_samples(cell)
            if len(one.decode_ns) == steps
        ]
    )
    if steps and written:
        yield with_samples(
            _blank(run, group, n_gen=steps, n_depth=cell.prompt_tokens, n_threads=threads.threads),
            _whole(written),
        )


def _whole(samples: tuple[float, ...]) -> tuple[int, ...]:
    # A clock too coarse for the test reads no time; llama-bench would divide by it.
    return tuple(max(round(sample), 1) for sample in samples)


def _blank(
    run: Run, group: GroupResult, *, n_threads: int, n_prompt: int = 0, n_gen: int = 0, n_depth: int = 0
) -> BenchTest:
    """A test that knows everything but its figures.

    What our engine calls leave alone has the value that llama.cpp gives it: no CPU mask, polling 50, ...
    """
    engine, asked, model = run.engine, group.settings, group.model
    # What the engine says of a build with changes of its own would not be found by a tool that knows commits.
    commit = (engine.commit or "").removesuffix("-dirty") if engine else ""
    return BenchTest(
        build_commit=clean(commit) or UNKNOWN_COMMIT,
        build_number=0,
        cpu_info=_described(engine, _CPU_KINDS) or clean(run.machine.cpu_name or "unknown"),
        gpu_info=_described(engine, _GPU_KINDS),
        backends=_backends(engine),
        model_filename=clean(model.path, limit=4096),
        model_type=_model_type(group),
        model_size=model.model_bytes,
        model_n_params=model.n_params,
        n_batch=asked.n_batch,
        n_ubatch=asked.n_ubatch,
        n_threads=n_threads,
        cpu_mask="0x0",
        cpu_strict=False,
        poll=50,
        type_k=clean(asked.type_k),
        type_v=clean(asked.type_v),
        n_gpu_layers=-1 if asked.n_gpu_layers is None else asked.n_gpu_layers,
        n_cpu_moe=asked.n_cpu_moe,
        split_mode=asked.split_mode,
        main_gpu=asked.main_gpu,
        no_kv_offload=not asked.kv_offload,
        flash_attn=_FLASH[asked.flash_attn],
        devices="/".join(map(clean, asked.devices)) or "auto",
        tensor_split="/".join(f"{share:.2f}" for share in asked.tensor_split or (0.0,)),
        tensor_buft_overrides=clean(";".join(asked.override_tensor)) or "none",
        load_mode=asked.load_mode,
        lazy_mode="auto",
        embeddings=False,
        no_op_offload=int(not asked.op_offload),
        no_host=False,
        repack=asked.repack,
        fit_target=0,
        fit_min_ctx=0,
        n_prompt=n_prompt,
        n_gen=n_gen,
        n_depth=n_depth,
        test_time=_moment(run.started_at),
        avg_ts=0.0,
        extras=_extras(run, group),
    )


def _described(engine: EngineFacts | None, kinds: tuple[str, ...]) -> str:
    """What llama-bench prints of the machine: the descriptions of the engine's devices."""
    devices = engine.devices if engine else ()
    return ", ".join(clean(device.description) for device in devices if device.kind in kinds)


def _backends(engine: EngineFacts | None) -> str:
    """The families of the devices that are no CPU: `CUDA`, `CUDA,RPC`; `CPU` for none."""
    names = [clean(device.name) for device in (engine.devices if engine else ()) if device.kind != "cpu"]
    families = [name.split("[")[0].rstrip("0123456789") for name in names]
    return ",".join(dict.fromkeys(filter(None, families))) or "CPU"


def _model_type(group: GroupResult) -> str:
    """The engine's own words, as llama-bench prints them; of an older run about the same, `llama 135M Q4_1`:
    llama.cpp has a size class of its making in the middle."""
    model = group.model
    if group.resolved and group.resolved.description:
        return clean(group.resolved.description)
    size = units.short_count(model.n_params).replace(" ", "")
    return f"{clean(model.architecture)} {size} {clean(model.quantization)}"


def _moment(started_at: str) -> str:
    """As llama-bench writes it, `2026-11-30T20:55:38Z`; as it stands where it is no time."""
    try:
        moment = datetime.fromisoformat(started_at.replace("Z", "+00:00"))
    except ValueError:
        return clean(started_at)
    return f"{moment.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def _extras(run: Run, group: GroupResult) -> tuple[tuple[str, Value], ...]:
    resolved, engine = group.resolved, run.engine
    return (
        ("llmphase_version", clean(run.llmphase_version)),
        ("run_id", clean(run.run_id)),
        ("model_name", clean(group.model.name)),
        ("engine_version", clean(engine.version) if engine else None),
        ("n_ctx", (resolved or group.settings).n_ctx),
        ("n_batch_resolved", resolved.n_batch if resolved else None),
        ("n_ubatch_resolved", resolved.n_ubatch if resolved else None),
        ("n_threads_batch", (resolved or group.settings).threads_batch),
        ("n_gpu_layers_resolved", resolved.n_gpu_layers if resolved else None),
        ("flash_attn_resolved", resolved.flash_attn if resolved else None),
    )
