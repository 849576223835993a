"""Instruction sets: what the engine build uses against what the processor has."""

from __future__ import annotations

from collections.abc import Collection

_X86 = {
    "AVX": "avx",
    "AVX2": "avx2",
    "FMA": "fma",
    "F16C": "f16c",
    "BMI2": "bmi2",
    "AVX_VNNI": "avx_vnni",
    "AVX512": "avx512f",
    "AVX512_VBMI": "avx512vbmi",
    "AVX512_VNNI": "avx512_vnni",
    "AVX512_BF16": "avx512_bf16",
    "AMX_INT8": "amx_int8",
}
_ARM = {
    "NEON": "asimd",
    "FP16_VA": "asimdhp",
    "DOTPROD": "asimddp",
    "MATMUL_INT8": "i8mm",
    "SVE": "sve",
    "SME": "sme",
}
_ESSENTIAL = frozenset({"AVX", "AVX2", "FMA", "F16C", "NEON", "DOTPROD", "MATMUL_INT8"})
"""Without these quantized products take about twice as long or more; the others help prefill."""


def built_with(system_info: str) -> frozenset[str]:
    """Features of the engine's line `CPU : AVX2 = 1 | FMA = 1 | ...`, in its own names."""
    parts = [part.strip().rpartition(": ")[2] for part in system_info.split("|")]
    return frozenset(part.removesuffix(" = 1") for part in parts if part.endswith(" = 1"))


def unused(system_info: str, processor: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Instruction sets that the processor has and the build does not use: essential ones, then others."""
    built = built_with(system_info)
    missing = [name for name, flag in _named(processor).items() if flag in processor and name not in built]
    essential = tuple(name for name in missing if name in _ESSENTIAL)
    return essential, tuple(name for name in missing if name not in _ESSENTIAL)


def lacking(system_info: str, processor: Collection[str]) -> tuple[str, ...]:
    """Instruction sets that the build uses and the processor does not have: it will crash in them."""
    built = built_with(system_info)
    return tuple(name for name, flag in _named(processor).items() if name in built and flag not in processor)


def _named(processor: Collection[str]) -> dict[str, str]:
    return _ARM if "asimd" in processor else _X86
