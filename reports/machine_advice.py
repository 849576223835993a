"""What machine and engine facts say about measuring here: findings with stable codes, and what to do.

A problem needs fixing before figures mean much; a hint explains a figure that might surprise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Literal

from probes.records import EngineFacts, MachineFacts
from reports.units import size

SHORT_MEMORY_SHARE = 0.1
"""Below this share of memory available, a load pushes other programs out or is itself paged."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One finding about the machine or the installed engine."""

    code: str
    """Stable: `gpu-unused-build`, `memory-short`, ..."""
    severity: Literal["problem", "hint"]
    text: str
    command: str | None = None
    """A line to run that changes it."""


def advise(
    machine: MachineFacts, engine: EngineFacts | None, engine_problem: str | None = None
) -> tuple[Advice, ...]:
    """All findings, problems first. Where the engine could not be loaded, `engine_problem` says why."""
    found = [advice for rule in _MACHINE_RULES for advice in rule(machine)]
    if engine is None:
        found.append(_unusable(machine, engine_problem))
    else:
        found += [advice for rule in _ENGINE_RULES for advice in rule(machine, engine)]
    return tuple(sorted(found, key=lambda advice: advice.severity == "hint"))


def gpu_advice(
    machine: MachineFacts, engine: EngineFacts | None, engine_problem: str | None = None
) -> tuple[Advice, ...]:
    """Only what keeps the engine from the machine's GPUs."""
    return (_unusable(machine, engine_problem),) if engine is None else tuple(_gpu_unused(machine, engine))


def command_lines(command: str) -> tuple[str, ...]:
    """A command of `Advice` broken where its shell allows it, to fit a screen and still be copied whole."""
    variable, separator, rest = command.partition("; ")
    if separator:
        return variable, rest
    variable, separator, rest = command.partition('" ')
    return (f'{variable}" \\', f"  {rest}") if separator else (command,)


def _unusable(machine: MachineFacts, problem: str | None) -> Advice:
    text = f"the engine can not be loaded: {problem or 'no reason was given'}"
    return Advice(code="engine-unusable", severity="problem", text=text, command=_install(machine, None))


def _gpu_unused(machine: MachineFacts, engine: EngineFacts) -> Iterator[Advice]:
    """A GPU that the engine does not use: its build lacks the backend, or the backend finds no device."""
    names, option = _gpu_present(machine)
    if option is None or any(_is_local_gpu(device.kind, device.name) for device in engine.devices):
        return
    if _has_backend(engine, option):
        yield Advice(
            code="gpu-not-visible",
            severity="problem",
            text=f"{names} is present and the engine is built for it, yet finds no device: check the driver,"
            " and that CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES does not hide it",
        )
        return
    yield Advice(
        code="gpu-unused-build",
        severity="problem",
        text=f"{names} is present, but the installed engine is built without support for it: all work is"
        " done by the CPU. Build the engine for it (the README also names prebuilt wheels)"
        + _or_vulkan(option),
        command=_install(machine, option),
    )


def _basic_cpu_build(machine: MachineFacts, engine: EngineFacts) -> Iterator[Advice]:
    if any(arch in machine.os for arch in ("x86_64", "AMD64")) and "AVX2 = 1" not in engine.system_info:
        yield Advice(
            code="cpu-build-basic",
            severity="hint",
            text="the engine is built without AVX2: a build on this machine is faster where the CPU has it",
            command=_install(machine, None),
        )


def _no_mmap(_: MachineFacts, engine: EngineFacts) -> Iterator[Advice]:
    if not engine.supports_mmap:
        yield Advice(
            code="no-mmap",
            severity="hint",
            text="this engine can not map model files: each load reads the whole file into memory",
        )


def _few_cores(machine: MachineFacts) -> Iterator[Advice]:
    if machine.physical_cpus is not None and machine.usable_cpus < machine.physical_cpus:
        yield Advice(
            code="cores-limited",
            severity="hint",
            text=f"{machine.usable_cpus} of {machine.physical_cpus} cores are used by default"
            f" ({machine.usable_cpus_reason}): more threads than that would wait for each other",
        )


def _memory(machine: MachineFacts) -> Iterator[Advice]:
    total = machine.memory_limit_bytes or machine.memory_bytes
    available = machine.memory_available_bytes
    if total and available is not None and available < SHORT_MEMORY_SHARE * total:
        yield Advice(
            code="memory-short",
            severity="problem",
            text=f"only {size(available)} of {size(total)} memory is available: close other programs, or a"
            " model will be read from disk again and again",
        )
    if machine.memory_limit_bytes is not None:
        yield Advice(
            code="memory-limited",
            severity="hint",
            text=f"a control group limits memory to {size(machine.memory_limit_bytes)}: model and cache"
            " count towards it",
        )


def _swap(machine: MachineFacts) -> Iterator[Advice]:
    if machine.swap_used_bytes:
        yield Advice(
            code="swap-in-use",
            severity="hint",
            text=f"{size(machine.swap_used_bytes)} of swap is in use: memory was short before, and a large"
            " model may make it so again",
        )


_MACHINE_RULES: tuple[Callable[[MachineFacts], Iterator[Advice]], ...] = (_memory, _swap, _few_cores)
_ENGINE_RULES: tuple[Callable[[MachineFacts, EngineFacts], Iterator[Advice]], ...] = (
    _gpu_unused,
    _basic_cpu_build,
    _no_mmap,
)


def _gpu_present(machine: MachineFacts) -> tuple[str, str | None]:
    """Names of the GPUs of this machine, and the build option that serves them; None without a GPU."""
    if machine.os.startswith("Darwin") and "arm64" in machine.os:
        return "the Apple GPU", "METAL"
    amd = [name for name in machine.gpu_names if "AMD" in name or "Radeon" in name]
    others = [name for name in machine.gpu_names if name not in amd]
    if others:
        return ", ".join(others), "CUDA"
    return (", ".join(amd), "HIP") if amd else ("", None)


def _or_vulkan(option: str) -> str:
    """The backend that needs the graphics driver alone."""
    kit = {"CUDA": "the CUDA toolkit", "HIP": "ROCm"}.get(option)
    return f"; without {kit}, -DGGML_VULKAN=on serves it too" if kit else ""


def _has_backend(engine: EngineFacts, option: str) -> bool:
    """Whether the engine's feature line has a part of this backend's: `CUDA : ARCHS = ... | CPU : ...`."""
    names = {"METAL": ("Metal", "MTL"), "HIP": ("ROCm", "HIP"), "CUDA": ("CUDA",)}[option]
    return any(f"{name} :" in engine.system_info for name in (*names, "Vulkan"))


def _is_local_gpu(kind: str, name: str) -> bool:
    return kind in ("gpu", "igpu") and not name.startswith("RPC")


def _install(machine: MachineFacts, option: str | None) -> str:
    """The line that builds the engine anew, as llama-cpp-python documents it."""
    options = "-DGGML_RPC=on" if option is None else f"-DGGML_{option}=on -DGGML_RPC=on"
    install = "pip install --upgrade --force-reinstall --no-cache-dir llama-cpp-python"
    if machine.os.startswith("Windows"):
        return f'$env:CMAKE_ARGS = "{options}"; {install}'
    return f'CMAKE_ARGS="{options}" {install}'
