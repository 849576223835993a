"""Realistic Run records for tests: builders with figures like those of a small model on two cores.

Every builder is deterministic. The model: prefill 2.2 ms a token plus attention, decode 6.6 ms a token plus
0.6 µs per token of depth; noise is a fixed pattern of a few per mille.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from probes.records import (
    SCHEMA_VERSION,
    CellResult,
    CellSample,
    CellStatus,
    DeviceCeiling,
    DeviceFacts,
    DeviceMemory,
    Disturbance,
    EngineFacts,
    GroupResult,
    LoadSample,
    MachineFacts,
    ModelFacts,
    Options,
    PassSample,
    Placement,
    RequestSample,
    Resolved,
    Run,
    SamplingSample,
    Settings,
    TokenizeSample,
    Workload,
)

MS = 1_000_000
US = 1_000
MIB = 2**20
LENGTHS = (0, 128, 512, 2048)
OUTPUT_TOKENS = 32
NOISE = (1.006, 0.999, 1.002, 1.0, 0.997, 1.003, 1.001, 0.998)


def model(**changes: Any) -> ModelFacts:
    """The demo model's facts."""
    facts = ModelFacts(
        path="/models/SmolLM2-135M-Instruct.Q4_1.gguf",
        files=("/models/SmolLM2-135M-Instruct.Q4_1.gguf",),
        name="SmolLM2 135M Instruct",
        architecture="llama",
        kind="decoder",
        attention="full",
        quantization="Q4_1",
        file_bytes=98_375_008,
        model_bytes=96_595_200,
        n_params=134_515_008,
        n_layers=30,
        n_ctx_train=8192,
        n_vocab=49_152,
        n_embd=576,
        n_experts=None,
        n_experts_used=None,
        sliding_window_tokens=None,
        tied_output=True,
        bytes_per_token=96_595_200,
        kv_elements_per_token=11_520,
        bytes_by_type={"Q4_1": 66_355_200, "Q8_0": 30_081_024, "F32": 158_976},
        has_chat_template=True,
        modified_at=1_780_000_000.0,
    )
    return dataclasses.replace(facts, **changes)


def settings(**changes: Any) -> Settings:
    """Two threads, everything else as the engine has it."""
    asked = Settings(
        n_gpu_layers=None,
        n_ctx=2304,
        n_batch=2048,
        n_ubatch=512,
        threads=2,
        threads_batch=2,
        flash_attn="auto",
        type_k="f16",
        type_v="f16",
        load_mode="auto",
        swa_full=False,
    )
    return dataclasses.replace(asked, **changes)


def resolved(**changes: Any) -> Resolved:
    """All on the CPU."""
    facts = Resolved(
        n_gpu_layers=0,
        layers_total=31,
        n_ctx=2304,
        n_batch=2048,
        n_ubatch=512,
        threads=2,
        threads_batch=2,
        flash_attn="enabled",
        graph_splits=1,
        graph_nodes=937,
        cache_cut="remove",
        chunk_tokens=512,
        placements=(
            Placement(
                buffer="CPU_Mapped",
                model_bytes=96_595_200,
                kv_bytes=0,
                compute_bytes=0,
                output_bytes=0,
            ),
            Placement(
                buffer="CPU",
                model_bytes=0,
                kv_bytes=53_084_160,
                compute_bytes=102_760_448,
                output_bytes=196_608,
            ),
        ),
        backend="CPU",
    )
    return dataclasses.replace(facts, **changes)


def prefill_ns(prompt_tokens: int) -> int:
    """The exact cost the samples scatter around: 2 ms + 2.2 ms n + 0.35 µs n^2."""
    return round(2 * MS + 2.2 * MS * prompt_tokens + 350 * prompt_tokens**2) if prompt_tokens else 0


def decode_step_ns(depth_tokens: float) -> int:
    """The exact cost of one step: 6.6 ms + 0.6 µs a token of depth."""
    return round(6.6 * MS + 600 * depth_tokens)


def cell(
    prompt_tokens: int,
    *,
    passes: int = 6,
    output_tokens: int = OUTPUT_TOKENS,
    slow_first: float = 1.0,
    speed: float = 1.0,
) -> CellResult:
    """A measured cell; `slow_first` multiplies the first pass, `speed` divides all."""
    samples = []
    for index in range(passes):
        factor = NOISE[index % len(NOISE)] * (slow_first if index == 0 else 1.0) / speed
        whole = round(prefill_ns(prompt_tokens) * factor)
        tail = min(whole, round(whole * min(prompt_tokens, 512) / prompt_tokens)) if prompt_tokens else 0
        samples.append(
            CellSample(
                pass_index=index,
                started_ns=index * 10**10 + prompt_tokens * 1000,
                head_ns=whole - tail,
                tail_ns=tail,
                decode_ns=tuple(
                    round(decode_step_ns(prompt_tokens + step) * factor) + (40 * US if step % 7 == 3 else 0)
                    for step in range(output_tokens)
                ),
            )
        )
    return CellResult(
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        status="ok",
        reason=None,
        samples=tuple(samples),
    )


def skipped_cell(
    prompt_tokens: int, reason: str = "budget: 98 s needed, 12 s left; raise --budget"
) -> CellResult:
    """A cell the time budget left out."""
    return _unmeasured_cell(prompt_tokens, "skipped", reason)


def failed_cell(
    prompt_tokens: int, reason: str = "crash: the engine's process ended with signal 9"
) -> CellResult:
    """A cell whose worker died."""
    return _unmeasured_cell(prompt_tokens, "failed", reason)


def _unmeasured_cell(prompt_tokens: int, status: CellStatus, reason: str) -> CellResult:
    return CellResult(
        prompt_tokens=prompt_tokens, output_tokens=OUTPUT_TOKENS, status=status, reason=reason, samples=()
    )


def loads(*, speed: float = 1.0) -> tuple[LoadSample, ...]:
    """Two cold and three warm loads, each in its own process."""
    made = []
    for index, (state, fraction, tensors, touch) in enumerate(
        (
            ("cold", 0.0, 210, 95),
            ("cold", 0.0, 216, 93),
            ("warm", 1.0, 38, 21),
            ("warm", 1.0, 37, 22),
            ("warm", 1.0, 38, 21),
        )
    ):
        made.append(
            LoadSample(
                cache_state=state,  # type: ignore[arg-type]
                cached_fraction=fraction,
                open_ns=round((118 + index) * MS / speed),
                tensors_ns=round(tensors * MS / speed),
                context_ns=round((24 + index % 2) * MS / speed),
                first_touch_ns=round(touch * MS / speed),
                disk_read_bytes=98_375_008 if state == "cold" else 0,
                started_ns=index * 10**9,
            )
        )
    return tuple(made)


def request(prompt_tokens: int = 2048, output_tokens: int = OUTPUT_TOKENS) -> RequestSample:
    """One whole request with 3 ms that no phase explains."""
    tokenized, drawn = 4 * MS, output_tokens * 90 * US
    read = prefill_ns(prompt_tokens)
    written = sum(decode_step_ns(prompt_tokens + step) for step in range(output_tokens - 1))
    return RequestSample(
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        tokenize_ns=tokenized,
        prefill_ns=read,
        decode_ns=written,
        sampling_ns=drawn,
        ttft_ns=tokenized + read + 90 * US,
        wall_ns=tokenized + read + written + drawn + 3 * MS,
    )


def group(
    *,
    cells: Sequence[CellResult] | None = None,
    facts: ModelFacts | None = None,
    speed: float = 1.0,
    passes: int = 6,
    **changes: Any,
) -> GroupResult:
    """A measured load group; `changes` replace fields."""
    measured = (
        tuple(cells) if cells is not None else tuple(cell(n, passes=passes, speed=speed) for n in LENGTHS)
    )
    lengths = [one.prompt_tokens for one in measured if one.prompt_tokens]
    read = [one.prompt_tokens for one in measured if one.prompt_tokens and one.status == "ok"]
    made = GroupResult(
        model=facts or model(),
        settings=settings(),
        resolved=resolved(),
        status="ok",
        reason=None,
        loads=loads(speed=speed),
        cells=measured,
        passes=tuple(
            PassSample(pass_index=i, started_ns=i * 10**10, wall_ns=7_300 * MS, engine_ns=7_280 * MS)
            for i in range(passes)
        ),
        tokenize=tuple(
            TokenizeSample(prompt_tokens=n, text_bytes=4 * n, duration_ns=(2 * n + i) * US)
            for n in lengths
            for i in range(3)
        ),
        sampling=tuple(
            SamplingSample(chain=chain, duration_ns=base * US + i * US)  # type: ignore[arg-type]
            for chain, base in (("default", 90), ("greedy", 21))
            for i in range(8)
        ),
        requests=(request(max(read)), request(max(read))) if read else (),
        engine_warnings=(),
        peak_memory_bytes=296 * MIB,
        device_memory=(),
    )
    return dataclasses.replace(made, **changes)


def failed_group(
    reason: str = "memory: 41.2 GiB needed, 7.4 GiB free; use --ctx 4096 or a smaller model",
) -> GroupResult:
    """A model that could not be loaded."""
    huge = model(name="Huge 70B", architecture="qwen2", n_params=70_000_000_000, model_bytes=42_000_000_000)
    return dataclasses.replace(
        group(facts=huge, cells=()),
        resolved=None,
        status="failed",
        reason=reason,
        loads=(),
        passes=(),
        sampling=(),
        peak_memory_bytes=None,
    )


def gpu_group(**changes: Any) -> GroupResult:
    """Twelve of 31 layers on a device."""
    return group(
        **{
            "settings": settings(n_gpu_layers=12),
            "resolved": resolved(
                n_gpu_layers=12,
                backend="CUDA,CPU",
                graph_splits=42,
                placements=(
                    Placement(
                        buffer="CPU_Mapped", model_bytes=60 * MIB, kv_bytes=0, compute_bytes=0, output_bytes=0
                    ),
                    Placement(
                        buffer="CUDA0",
                        model_bytes=32 * MIB,
                        kv_bytes=20 * MIB,
                        compute_bytes=98 * MIB,
                        output_bytes=0,
                    ),
                ),
            ),
            "device_memory": (DeviceMemory(device="CUDA0", used_bytes=412 * MIB, total_bytes=8192 * MIB),),
            **changes,
        }
    )


def machine(**changes: Any) -> MachineFacts:
    """Two cores in a container."""
    facts = MachineFacts(
        os="Linux 6.8",
        python="3.11.7",
        cpu_name="Example CPU @ 2.60GHz",
        logical_cpus=2,
        physical_cpus=None,
        usable_cpus=2,
        usable_cpus_reason="2 logical CPUs",
        memory_bytes=8 * 2**30,
        memory_available_bytes=6 * 2**30,
        memory_limit_bytes=None,
        swap_used_bytes=0,
        gpu_names=(),
        unknown={"physical_cpus": "the system does not tell cores from threads"},
    )
    return dataclasses.replace(facts, **changes)


def device(**changes: Any) -> DeviceFacts:
    """The CPU, as the engine lists it."""
    facts = DeviceFacts(
        name="CPU",
        description="Example CPU @ 2.60GHz",
        kind="cpu",
        memory_total_bytes=8 * 2**30,
        memory_free_bytes=6 * 2**30,
    )
    return dataclasses.replace(facts, **changes)


def engine(**changes: Any) -> EngineFacts:
    """A CPU build."""
    facts = EngineFacts(
        version="llama-cpp-python 0.3.36",
        commit="6d18ec8",
        system_info="CPU : SSE3 = 1 | AVX2 = 1",
        devices=(device(),),
        supports_gpu_offload=False,
        supports_mmap=True,
        supports_mlock=True,
        supports_rpc=True,
    )
    return dataclasses.replace(facts, **changes)


def ceiling(**changes: Any) -> DeviceCeiling:
    """The CPU's, without a kernel's rate."""
    measured = DeviceCeiling(
        device="CPU",
        threads=2,
        memory_bytes_s=20e9,
        compute_flops_s=100e9,
        operation_s=1e-6,
        transfer_bytes_s=None,
        rates=(),
        unknown={},
    )
    return dataclasses.replace(measured, **changes)


def quiet(index: int = 0, **changes: Any) -> Disturbance:
    """One second in which nothing else ran."""
    sample = Disturbance(
        started_ns=index * 10**9,
        duration_ns=10**9,
        phase="walk",
        foreign_cpus=0.02,
        steal_fraction=0.0,
        throttled_fraction=0.0,
        swap_in_bytes=0,
        major_faults=0,
        disk_read_bytes=0,
        memory_available_bytes=6 * 2**30,
        cpu_clock_hz=None,
    )
    return dataclasses.replace(sample, **changes)


def options(**changes: Any) -> Options:
    """Defaults but for the lengths."""
    asked = Options(
        prompt_tokens=LENGTHS,
        output_tokens=OUTPUT_TOKENS,
        repetitions=None,
        precision=0.03,
        budget_ns=120 * 10**9,
        tokens="text",
        seed=1,
        cold=True,
        defaulted=(
            *("n_gpu_layers", "n_ctx", "n_batch", "n_ubatch", "threads", "threads_batch", "flash_attn"),
            *("type_k", "type_v", "load_mode", "repack", "precision", "budget_ns", "tokens", "seed"),
        ),
    )
    return dataclasses.replace(asked, **changes)


def workload(prompt: int = 2048, output: int = 100, **changes: Any) -> Workload:
    """A request to a loaded model, nothing of it cached."""
    asked = Workload(prompt_tokens=prompt, cached_tokens=0, output_tokens=output, start="loaded")
    return dataclasses.replace(asked, **changes)


def run(*groups: GroupResult, **changes: Any) -> Run:
    """A finished run of these groups; without any, of the demo model alone."""
    made = Run(
        schema_version=SCHEMA_VERSION,
        run_id="20261130T205545Z-1a2b3c",
        started_at="2026-11-30T20:55:45Z",
        llmphase_version="0.1.0",
        finished=True,
        options=options(),
        machine=machine(),
        engine=engine(),
        groups=groups or (group(),),
        disturbances=(quiet(0), quiet(1)),
        wall_ns=51 * 10**9,
        warnings=(),
    )
    return dataclasses.replace(made, **changes)


def troubled_run() -> Run:
    """Skipped and failed cells, a failed model, noise, a busy machine, an odd name: all that can go wrong at
    once."""
    noisy = cell(512, passes=4)
    spread = tuple(
        dataclasses.replace(sample, tail_ns=sample.tail_ns * (100 + 9 * index) // 100)
        for index, sample in enumerate(noisy.samples)
    )
    first = group(
        cells=(
            cell(0),
            cell(128, slow_first=1.6),
            dataclasses.replace(noisy, samples=spread),
            cell(1024),
            skipped_cell(4096),
            failed_cell(16384),
        ),
        facts=model(name="=cmd|' /C calc'!A0 [red]evil\x1b[31m\x07‮name[/red]", n_ctx_train=2048),
        engine_warnings=(
            "llama_context: n_ctx_seq (2304) > n_ctx_train (2048) -- possible training context overflow",
        ),
    )
    busy = quiet(
        2,
        foreign_cpus=0.9,
        steal_fraction=0.04,
        throttled_fraction=0.2,
        swap_in_bytes=30 * MIB,
        memory_available_bytes=200 * MIB,
    )
    return run(
        first,
        failed_group(),
        machine=machine(usable_cpus=1, usable_cpus_reason="cgroup quota 1.0 CPUs"),
        disturbances=(quiet(0), busy),
        finished=False,
        warnings=("page cache: unknown on this file system; loads are labelled unknown",),
    )
