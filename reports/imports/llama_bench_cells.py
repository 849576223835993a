"""Tests of llama-bench as `Comparable`: what our runs have too under our names, the rest under its own."""

from __future__ import annotations

import dataclasses

from reports.bench_rows import average_s, grouped, model_name, phase_of, samples_s
from reports.comparable import CellSummary, Comparable, ComparableCell, known_texts
from reports.llama_bench import UNKNOWN_COMMIT, BenchFile, BenchTest

_FLASH = {0: "disabled", 1: "enabled"}
_OURS = ("n_batch", "n_ubatch", "type_k", "type_v", "load_mode", "repack")
_THEIRS = (
    *("cpu_mask", "cpu_strict", "poll", "n_cpu_moe", "split_mode", "main_gpu", "no_kv_offload", "devices"),
    *("tensor_split", "tensor_buft_overrides", "lazy_mode", "embeddings", "no_op_offload", "no_host"),
    *("fit_target", "fit_min_ctx"),
)
_COMMIT_CHARACTERS = 7


def of_llama_bench(file: BenchFile, label: str) -> Comparable:
    """Prefill and decode of a file; tests that time both as one belong to no phase and are left out.

    A file of several builds or machines is taken as its first: a test's other ones are in its settings.
    """
    groups, repeated = grouped(file.tests)
    kept = [test for group in groups for test in group.tests if phase_of(test) != "request"]
    notes = [text for _, text in file.notes]
    if repeated:
        notes.append(f"Measured more than once: {', '.join(repeated)}; what was measured last counts.")
    left_out = sum(len(group.together) for group in groups)
    if left_out:
        notes.append(f"{left_out} tests time prompt and answer as one: left out.")
    first = file.tests[0]
    return Comparable(
        label=label,
        source="llama-bench",
        started_at=min((test.test_time for test in file.tests if test.test_time), default=None),
        machine=_machine(first),
        engine=_engine(first),
        cells=tuple(_cell(test, first) for test in kept),
        notes=tuple(notes),
    )


def _machine(test: BenchTest) -> dict[str, str]:
    return known_texts(
        {"cpu": test.cpu_info, "gpus": None if test.gpu_info is None else test.gpu_info or "none"}
    )


def _engine(test: BenchTest) -> dict[str, str]:
    commit = test.build_commit if test.build_commit != UNKNOWN_COMMIT else None
    return known_texts({"commit": commit[:_COMMIT_CHARACTERS] if commit else None})


def _cell(test: BenchTest, first: BenchTest) -> ComparableCell:
    is_decode = phase_of(test) == "decode"
    samples = samples_s(test)
    cell = ComparableCell(
        model=_model(test),
        settings=_settings(test) | _elsewhere(test, first),
        phase="decode" if is_decode else "prefill",
        prompt_tokens=None if is_decode else test.n_prompt,
        depth_tokens=test.n_depth,
        output_tokens=test.n_gen if is_decode else None,
        samples_s=samples,
        where=test.name,
    )
    return cell if samples else dataclasses.replace(cell, summary=_summary(test))


def _model(test: BenchTest) -> dict[str, str]:
    """The markdown table, which names no file, rounds the model's size: there it tells no models apart."""
    sizes: dict[str, object] = {"model_bytes": test.model_size, "n_params": test.model_n_params}
    return known_texts({"type": model_name(test), **(sizes if test.model_filename is not None else {})})


def _settings(test: BenchTest) -> dict[str, str]:
    named = {name: getattr(test, name) for name in (*_OURS, *_THEIRS)}
    return known_texts(
        named
        | {
            "backend": test.backends,
            "threads": test.n_threads,
            "n_gpu_layers_requested": test.n_gpu_layers,
            "flash_attn": _FLASH.get(-1 if test.flash_attn is None else test.flash_attn),
            "tokens": "random",
        }
    )


def _elsewhere(test: BenchTest, first: BenchTest) -> dict[str, str]:
    """Machine and build of a test, where the file holds several: else its cells could not be told apart."""
    facts = _machine(test) | _engine(test)
    usual = _machine(first) | _engine(first)
    return {name: value for name, value in facts.items() if usual.get(name) != value}


def _summary(test: BenchTest) -> CellSummary:
    """The mean stands in for the median; how many repetitions there were is not told."""
    mean, deviation = average_s(test)
    return CellSummary(median_s=mean, stddev_s=deviation, low_s=None, high_s=None, n=None)
