"""Each finding on a machine that has it, and silence on one that has not."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import pytest
import sample_runs as sample

from probes.records import DeviceFacts, EngineFacts, MachineFacts
from reports.machine_advice import Advice, advise

GIB = 2**30

MACHINE = sample.machine(
    os="Linux 6.1 x86_64",
    logical_cpus=16,
    physical_cpus=8,
    usable_cpus=8,
    usable_cpus_reason="8 cores with 16 logical CPUs",
    memory_bytes=32 * GIB,
    memory_available_bytes=24 * GIB,
)
CPU_FEATURES = "CPU : AVX2 = 1 | FMA = 1 | "
ENGINE = sample.engine(system_info=CPU_FEATURES, devices=(), supports_gpu_offload=True)


def machine(**changes: Any) -> MachineFacts:
    return dataclasses.replace(MACHINE, **changes)


def engine(**changes: Any) -> EngineFacts:
    return dataclasses.replace(ENGINE, **changes)


def device(name: str, kind: Literal["cpu", "gpu", "igpu", "accel"]) -> DeviceFacts:
    return sample.device(name=name, kind=kind)


def only(found: tuple[Advice, ...]) -> Advice:
    assert len(found) == 1, found
    return found[0]


def test_nothing_to_say_about_a_fine_machine() -> None:
    assert advise(MACHINE, ENGINE) == ()


@pytest.mark.parametrize(
    ("facts", "option"),
    [
        (machine(gpu_names=("NVIDIA A",)), "-DGGML_CUDA=on"),
        (machine(gpu_names=("AMD GPU 0x744c",)), "-DGGML_HIP=on"),
        (machine(gpu_names=("AMD GPU 0x744c", "NVIDIA A")), "-DGGML_CUDA=on"),
        (machine(os="Darwin 23.1 arm64"), "-DGGML_METAL=on"),
    ],
)
@pytest.mark.parametrize(
    "devices",
    [(), (device("CPU", "cpu"),), (device("BLAS", "accel"),), (device("RPC0[host:50052]", "gpu"),)],
    ids=["none", "cpu", "blas", "remote"],
)
def test_a_gpu_that_the_build_can_not_use(
    facts: MachineFacts, option: str, devices: tuple[DeviceFacts, ...]
) -> None:
    # `supports_gpu_offload` is true for every build with RPC: devices tell, not that flag.
    advice = only(advise(facts, engine(devices=devices)))
    assert (advice.code, advice.severity) == ("gpu-unused-build", "problem")
    assert advice.command is not None
    assert option in advice.command
    assert advice.command.startswith('CMAKE_ARGS="')
    assert "llama-cpp-python" in advice.command


@pytest.mark.parametrize("kind", ["gpu", "igpu"])
def test_a_gpu_in_use_is_fine(kind: Literal["gpu", "igpu"]) -> None:
    assert advise(machine(gpu_names=("NVIDIA A",)), engine(devices=(device("CUDA0", kind),))) == ()


def test_a_build_that_finds_no_device_is_another_problem() -> None:
    built = engine(system_info=f"CUDA : ARCHS = 900 | {CPU_FEATURES}")
    advice = only(advise(machine(gpu_names=("NVIDIA A",)), built))
    assert (advice.code, advice.severity, advice.command) == ("gpu-not-visible", "problem", None)
    assert "CUDA_VISIBLE_DEVICES" in advice.text


def test_the_line_is_for_the_shell_of_the_system() -> None:
    windows = machine(os="Windows 11 AMD64", gpu_names=("NVIDIA A",))
    command = only(advise(windows, ENGINE)).command
    assert command is not None
    assert command.startswith('$env:CMAKE_ARGS = "-DGGML_CUDA=on')


def test_a_build_without_avx2() -> None:
    assert only(advise(MACHINE, engine(system_info="CPU : SSE3 = 1 | "))).code == "cpu-build-basic"
    assert advise(machine(os="Linux 6.1 aarch64"), engine(system_info="CPU : NEON = 1 | ")) == ()


def test_an_engine_without_mmap() -> None:
    assert only(advise(MACHINE, engine(supports_mmap=False))).code == "no-mmap"


def test_an_engine_that_can_not_be_loaded() -> None:
    advice = only(advise(MACHINE, None, "libcudart.so.12: no such file"))
    assert (advice.code, advice.severity) == ("engine-unusable", "problem")
    assert "libcudart.so.12" in advice.text
    assert advice.command is not None


def test_a_quota_below_the_cores() -> None:
    advice = only(advise(machine(usable_cpus=1, usable_cpus_reason="cgroup quota 1.5 CPUs"), ENGINE))
    assert (advice.code, advice.severity) == ("cores-limited", "hint")
    assert "1 of 8 cores" in advice.text
    assert "cgroup quota 1.5 CPUs" in advice.text
    assert advise(machine(physical_cpus=None, usable_cpus=1), ENGINE) == ()


@pytest.mark.parametrize(
    ("available", "limit", "codes"),
    [
        (4 * GIB, None, []),
        (3 * GIB, None, ["memory-short"]),
        (3 * GIB, 8 * GIB, ["memory-limited"]),
        (GIB // 2, 8 * GIB, ["memory-short", "memory-limited"]),
        (None, None, []),
    ],
)
def test_memory_is_short_below_a_tenth_of_what_is_granted(
    available: int | None, limit: int | None, codes: list[str]
) -> None:
    found = advise(machine(memory_available_bytes=available, memory_limit_bytes=limit), ENGINE)
    assert [advice.code for advice in found] == codes


@pytest.mark.parametrize(("swap", "codes"), [(None, []), (0, []), (GIB, ["swap-in-use"])])
def test_swap(swap: int | None, codes: list[str]) -> None:
    assert [advice.code for advice in advise(machine(swap_used_bytes=swap), ENGINE)] == codes


def test_problems_come_first() -> None:
    found = advise(machine(swap_used_bytes=GIB, gpu_names=("NVIDIA A",)), engine(supports_mmap=False))
    assert [advice.severity for advice in found] == ["problem", "hint", "hint"]
