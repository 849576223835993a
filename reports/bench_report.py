"""A file of llama-bench as the same report that a run of ours gives: table, charts and the phase model.

Tests that share model, build and settings make one part of the report. What the file does not hold (loads,
placement, tokenizing) is said to be unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from reports import bench_rows, headline, sections, units
from reports.bench_rows import BenchGroup
from reports.charts import ChartData, Point, Share
from reports.formats.llama_bench_md import DEFAULTS
from reports.llama_bench import BenchFile, BenchTest
from reports.notices import Notice
from reports.parts import Column, Fact, Facts, Table
from reports.phases import Fit, PhaseModel, fit_samples
from reports.report import ModelReport, Report
from reports.rows import Row
from reports.text import clean

_NOT_TOLD = "the file does not say"


def build_bench_report(file: BenchFile, label: str) -> Report:
    """The report of a file; `label` is its name."""
    groups, repeated = bench_rows.grouped(file.tests)
    found = [Notice(code=code, text=text) for code, text in file.notes]
    if repeated:
        found.append(_measured_again(repeated))
    found += [_averages_only(index) for index, group in enumerate(groups) if not group.has_samples]
    found += [_together(index, group) for index, group in enumerate(groups) if group.together]
    rows = [bench_rows.rows(group, index, found) for index, group in enumerate(groups)]
    builds = dict.fromkeys(_build(group.test) for group in groups)
    return Report(
        run_id=None,
        started_at=min((test.test_time for test in file.tests if test.test_time), default=None),
        llmphase_version=None,
        machine=_machine([group.test for group in groups]),
        comparison=(),
        models=tuple(_model(group, made) for group, made in zip(groups, rows, strict=True)),
        notices=tuple(found),
        rows=tuple(row for made in rows for row in made),
        tests=file.tests,
        source=f"llama-bench, {', '.join(builds)}: {clean(label, limit=80)}",
    )


def _measured_again(names: Sequence[str]) -> Notice:
    shown = ", ".join(names[:3]) + (" ..." if names[3:] else "")
    return Notice(
        code="measured-again",
        text=f"Measured more than once with the same settings: {shown}. What was measured last counts.",
    )


def _averages_only(index: int) -> Notice:
    return Notice(
        code="averages-only",
        group=index,
        text="The file holds averages and no single samples: the mean stands in for the median, and there is "
        "no interval. `llama-bench -o jsonl` keeps the samples.",
    )


def _together(index: int, group: BenchGroup) -> Notice:
    names = ", ".join(dict.fromkeys(test.name for test in group.together))
    return Notice(
        code="phases-together",
        group=index,
        phase="request",
        text=f"{names}: prompt and answer timed as one, so it belongs to no phase and enters no fit.",
    )


def _build(test: BenchTest) -> str:
    if test.build_commit is None:
        return units.unknown("build")
    number = f" ({test.build_number})" if test.build_number else ""
    return f"build {clean(test.build_commit, limit=40)}{number}"


def _model(group: BenchGroup, rows: tuple[Row, ...]) -> ModelReport:
    fit = fit_samples(group.prefill_points(), group.decode_points())
    return ModelReport(
        name=group.name,
        subtitle=_subtitle(group.test),
        headline=_sentences(rows, fit),
        phases=_table(group, rows),
        load=None,
        placement=_placement(group.test),
        buffers=None,
        beside=_phase_model(fit),
        settings=_settings(group.test),
        charts=_charts(rows, fit),
        model=fit,
    )


def _subtitle(test: BenchTest) -> str:
    parts = [f"{units.short_count(test.model_n_params)} parameters", units.size(test.model_size)]
    return " · ".join([*parts, *([PurePath(clean(test.model_filename)).name] if test.model_filename else [])])


def _table(group: BenchGroup, rows: tuple[Row, ...]) -> Table:
    lines = tuple(
        (
            test.name,
            "prompt + answer" if row.phase == "request" else row.phase,
            sections.figure(row),
            units.rate(row.tokens_per_s),
            units.UNKNOWN if row.samples is None else str(row.samples),
        )
        for test, row in zip(group.tests, rows, strict=True)
    )
    return Table(
        title="Tests",
        columns=(
            Column(title="test", numeric=False),
            Column(title="phase", numeric=False),
            Column(title="time"),
            Column(title="tok/s"),
            Column(title="n"),
        ),
        rows=lines,
        notes=(
            (
                "Of prefill the time of the whole prompt, of decode that of one token; @ d: tokens in the "
                "cache before. tok/s at the time shown: llama-bench's own average is that of the rates."
            ),
        ),
    )


def _sentences(rows: Sequence[Row], fit: PhaseModel) -> tuple[str, ...]:
    """The wait for the longest prompt and an answer; else the rates that there are."""
    wait = _wait(rows, fit)
    rates = []
    for phase, verb in (("prefill", "Reading"), ("decode", "Writing")):
        row = _first(rows, phase)
        if row is not None and row.tokens_per_s is not None:
            rates.append(f"{verb} runs at {units.token_rate(row.tokens_per_s)}{_held(phase, row, fit)}.")
    if wait is None:
        missing = "writing" if _first(rows, "prefill") else "reading"
        return (*rates, f"No wait is told: {missing} was not measured from an empty cache on.")
    return (headline.wait_sentence(wait), *rates, *headline.crossover_sentence(fit, wait.prompt_tokens))


def _held(phase: str, row: Row, fit: PhaseModel) -> str:
    """Where the rate of one depth has to do for the whole answer, that is said."""
    if phase == "prefill" or fit.decode is not None:
        return ""
    return f", measured at depth {units.count(row.depth_tokens)} and taken for the whole answer"


def _first(rows: Sequence[Row], phase: str) -> Row | None:
    """Of prefill the longest prompt at an empty cache; of decode what was measured at the least depth."""
    found = [row for row in rows if row.phase == phase and (phase == "decode" or row.depth_tokens == 0)]
    if phase == "decode":
        return min(found, key=lambda row: row.depth_tokens or 0, default=None)
    return max(found, key=lambda row: row.prompt_tokens or 0, default=None)


def _wait(rows: Sequence[Row], fit: PhaseModel) -> headline.Wait | None:
    """Prefill as measured; decode from the fit over depths, with a single depth from the rate there."""
    read, write = _first(rows, "prefill"), _first(rows, "decode")
    if read is None or read.prompt_tokens is None or read.median_s is None:
        return None
    steps = headline.OUTPUT_TOKENS - 1
    answer = fit.decode_s(read.prompt_tokens, headline.OUTPUT_TOKENS)
    if answer is None and (write is None or write.median_s is None):
        return None
    decode_s = answer.value_s if answer else steps * (write.median_s or 0.0) if write else 0.0
    return headline.Wait(
        prompt_tokens=read.prompt_tokens,
        output_tokens=headline.OUTPUT_TOKENS,
        prefill_s=read.median_s,
        decode_s=decode_s,
        rest_s=0.0,
        low_s=None,
        high_s=None,
    )


def _charts(rows: Sequence[Row], fit: PhaseModel) -> ChartData:
    wait = _wait(rows, fit)
    return ChartData(
        ttft=tuple(
            Point(tokens=row.prompt_tokens, value=row.median_s)
            for row in rows
            if row.phase == "prefill" and row.depth_tokens == 0 and row.prompt_tokens and row.median_s
        ),
        ttft_title="Prefill time",
        decode=tuple(
            Point(tokens=row.depth_tokens, value=row.tokens_per_s)
            for row in rows
            if row.phase == "decode" and row.depth_tokens is not None and row.tokens_per_s
        ),
        wait=(Share(name="prefill", seconds=wait.prefill_s), Share(name="decode", seconds=wait.decode_s))
        if wait
        else (),
        wait_title=f"One request, load not measured: {units.count(wait.prompt_tokens)} prompt, "
        f"{wait.output_tokens} output tokens"
        if wait
        else "",
    )


def _phase_model(fit: PhaseModel) -> Facts:
    """The fitted costs, or why there is no fit."""
    return Facts(
        title="Phase model",
        facts=(
            Fact(name="prefill", value=_prefill_words(fit.prefill, fit.prefill_reason)),
            Fact(name="decode", value=_decode_words(fit.decode, fit.decode_reason)),
        ),
    )


def _prefill_words(fit: Fit | None, reason: str | None) -> str:
    if fit is None:
        return f"no fit: {reason}"
    start, per_token, squared = fit.coefficients
    text = f"{units.duration(start)} + {units.duration(per_token)} a token"
    if squared > 0:
        text += f", and {units.duration(squared * 1e6)} for each thousand tokens squared"
    return f"{text}; measured to {units.count(round(fit.largest_tokens))} tokens"


def _decode_words(fit: Fit | None, reason: str | None) -> str:
    if fit is None:
        return f"no fit: {reason}"
    start, per_depth = fit.coefficients
    text = (
        f"{units.duration(start)} a token, {units.duration(per_depth * 1000)} more for each thousand of depth"
    )
    return f"{text}; measured to depth {units.count(round(fit.largest_tokens))}"


def _placement(test: BenchTest) -> Facts:
    layers = "left to the engine" if test.n_gpu_layers in (None, -1) else str(test.n_gpu_layers)
    backend = units.unknown(_NOT_TOLD) if test.backends is None else clean(test.backends)
    return Facts(
        title="Placement, as asked: what was resolved is not in the file",
        facts=(Fact(name="layers on a device", value=layers), Fact(name="backend", value=backend)),
    )


def _settings(test: BenchTest) -> Facts:
    listed = ((name, getattr(test, name)) for name in DEFAULTS)
    return Facts(
        title="Settings",
        facts=tuple(
            Fact(name=name, value=_setting(value), is_default=value == DEFAULTS[name])
            for name, value in listed
            if value is not None
        ),
        is_flowing=True,
    )


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return clean(str(value), limit=80)


def _machine(tests: Sequence[BenchTest]) -> Facts:
    def joined(name: str, none: str) -> str:
        told = dict.fromkeys(getattr(test, name) for test in tests)
        known = [clean(value) or none for value in told if value is not None]
        return "; ".join(dict.fromkeys(known)) or units.unknown(_NOT_TOLD)

    return Facts(
        title="Machine",
        facts=(
            Fact(name="processor", value=joined("cpu_info", units.UNKNOWN)),
            Fact(name="GPUs", value=joined("gpu_info", "none listed")),
            Fact(
                name="engine", value=", ".join(dict.fromkeys(f"llama.cpp {_build(test)}" for test in tests))
            ),
        ),
    )
