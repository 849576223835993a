"""Tests of llama-bench as flat rows, grouped by what they have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from reports import measured, stats
from reports.llama_bench import KINDS, BenchTest
from reports.notices import Notice, codes_for
from reports.rows import Phase, Row
from reports.text import clean

_OF_A_TEST = frozenset(
    {"n_prompt", "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts"}
)
_SHARED = tuple(name for name in KINDS if name not in _OF_A_TEST)
_FLASH = {0: "disabled", 1: "enabled"}
"""-1 leaves it to the engine, and the file does not tell what that chose."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BenchGroup:
    """Tests of one model with one build and one set of settings, each length and depth once."""

    name: str
    """The model's, with the settings in which groups of one name differ."""
    tests: tuple[BenchTest, ...]

    @property
    def test(self) -> BenchTest:
        """Any of them, for what they share."""
        return self.tests[0]

    @property
    def has_samples(self) -> bool:
        """Whether all tests have their samples."""
        return all(test.samples_ns for test in self.tests)

    @property
    def together(self) -> tuple[BenchTest, ...]:
        """Those that time prompt and answer as one."""
        return tuple(test for test in self.tests if phase_of(test) == "request")

    def prefill_points(self) -> tuple[tuple[float, float], ...]:
        """(prompt tokens, seconds) of each repetition from an empty cache; where there are none, averages."""
        return tuple(
            (float(test.n_prompt), seconds)
            for test in self.tests
            if phase_of(test) == "prefill" and not test.n_depth
            for seconds in _points_s(test)
        )

    def decode_points(self) -> tuple[tuple[float, float], ...]:
        """(mean depth, seconds per token), likewise. The steps run from the depth upwards."""
        return tuple(
            (test.n_depth + (test.n_gen - 1) / 2, seconds)
            for test in self.tests
            if phase_of(test) == "decode"
            for seconds in _points_s(test)
        )


def phase_of(test: BenchTest) -> Phase:
    """What the test times."""
    if test.n_gen == 0:
        return "prefill"
    return "request" if test.n_prompt else "decode"


def samples_s(test: BenchTest) -> tuple[float, ...]:
    """Seconds of each repetition: of the whole prompt, of decode per token."""
    share = test.n_gen if phase_of(test) == "decode" else 1
    return tuple(sample * measured.NS / share for sample in test.samples_ns)


def average_s(test: BenchTest) -> tuple[float, float | None]:
    """Mean and deviation in the same unit, for a file without samples."""
    share = test.n_gen if phase_of(test) == "decode" else 1
    mean = (test.avg_ns or 0) * measured.NS / share
    return mean, None if test.stddev_ns is None else test.stddev_ns * measured.NS / share


def _points_s(test: BenchTest) -> tuple[float, ...]:
    return samples_s(test) or (average_s(test)[0],)


def grouped(tests: Iterable[BenchTest]) -> tuple[tuple[BenchGroup, ...], tuple[str, ...]]:
    """The groups in the file's order, and the names of tests that were measured more than once."""
    by_key: dict[tuple[Any, ...], dict[tuple[int, int, int], BenchTest]] = {}
    repeated: list[str] = []
    for test in tests:
        group = by_key.setdefault(tuple(getattr(test, name) for name in _SHARED), {})
        place = (test.n_prompt, test.n_gen, test.n_depth)
        earlier = group.get(place)
        if earlier is not None:
            repeated.append(test.name)
        if earlier is None or (test.test_time or "") >= (earlier.test_time or ""):
            group[place] = test
    found = [tuple(group.values()) for group in by_key.values()]
    names = _names([group[0] for group in found])
    groups = tuple(BenchGroup(name=name, tests=group) for name, group in zip(names, found, strict=True))
    return groups, tuple(dict.fromkeys(repeated))


def _names(firsts: Sequence[BenchTest]) -> list[str]:
    """The model's name; where groups share it, with the settings that differ among them."""
    plain = [model_name(test) for test in firsts]
    names = []
    for name, test in zip(plain, firsts, strict=True):
        alike = [other for other, given in zip(firsts, plain, strict=True) if given == name]
        differing = [field for field in _SHARED if len({getattr(other, field) for other in alike}) > 1]
        told = ", ".join(f"{field} {clean(str(getattr(test, field)), limit=40)}" for field in differing)
        names.append(f"{name} ({told})" if told else name)
    return names


def model_name(test: BenchTest) -> str:
    """`llama 7B Q4_0`, else the file's name."""
    if test.model_type:
        return clean(test.model_type, limit=60)
    stem = PurePath(clean(test.model_filename, limit=400)).stem if test.model_filename else ""
    return stem or "unknown model"


def architecture_and_quantization(test: BenchTest) -> tuple[str | None, str | None]:
    """From `qwen2 7B Q4_K - Medium`, or an older `llama 7B mostly Q4_0`; None where it has another form."""
    parts = clean(test.model_type or "").split(" ", 2)
    if len(parts) < 3:
        return None, None
    return parts[0], parts[2].removeprefix("mostly ")


def rows(group: BenchGroup, index: int, notices: Iterable[Notice]) -> tuple[Row, ...]:
    """A row for each test, in order; `index` is the group's, for the notices that concern it."""
    notices = tuple(notices)
    return tuple(_row(test, group.name, index, notices) for test in group.tests)


def _row(test: BenchTest, name: str, index: int, notices: tuple[Notice, ...]) -> Row:
    phase = phase_of(test)
    values = samples_s(test)
    summary = stats.summarize(values) if values else None
    mean, deviation = average_s(test)
    median = summary.median if summary else mean
    tokens = 1 if phase == "decode" else test.n_prompt + test.n_gen
    architecture, quantization = architecture_and_quantization(test)
    codes = codes_for(notices, group=index, phase=phase, prompt_tokens=test.n_prompt)
    return Row(
        run_id=None,
        started_at=test.test_time,
        llmphase_version=None,
        engine_version=f"llama.cpp {test.build_commit}" if test.build_commit else None,
        model_name=name,
        architecture=architecture,
        quantization=quantization,
        model_bytes=test.model_size,
        n_params=test.model_n_params,
        backend=test.backends,
        devices=test.devices,
        n_gpu_layers_requested=test.n_gpu_layers,
        n_gpu_layers=None,
        layers_total=None,
        n_ctx=None,
        n_batch=test.n_batch,
        n_ubatch=test.n_ubatch,
        threads=test.n_threads,
        threads_batch=test.n_threads,
        flash_attn=_FLASH.get(-1 if test.flash_attn is None else test.flash_attn),
        type_k=test.type_k,
        type_v=test.type_v,
        load_mode=test.load_mode,
        phase=phase,
        prompt_tokens=test.n_depth if phase == "decode" else test.n_prompt,
        output_tokens=test.n_gen or None,
        depth_tokens=test.n_depth,
        cache_state=None,
        status="ok",
        reason=None,
        samples=summary.n if summary else None,
        median_s=median,
        ci_low_s=summary.ci_low if summary else None,
        ci_high_s=summary.ci_high if summary else None,
        mean_s=summary.mean if summary else mean,
        stddev_s=summary.stddev if summary else deviation,
        min_s=summary.min if summary else None,
        max_s=summary.max if summary else None,
        tokens_per_s=tokens / median if median > 0 else None,
        p95_s=stats.percentile_95(values) if values else None,
        warnings=";".join(codes) or None,
        variant=None,
    )
