"""The flat rows: columns, statuses, figures, and their way through pandas into CSV and JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import pytest
import sample_runs as sample
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.records import Run
from reports.formats import FORMATS, TerminalStyle
from reports.frame import csv as frame_csv
from reports.frame import frame
from reports.report import build_report
from reports.rows import COLUMNS, Row

STYLE = TerminalStyle(width=80, colour=False, unicode=True)
PROMISED = [
    "run_id",
    "started_at",
    "llmphase_version",
    "engine_version",
    "model_name",
    "architecture",
    "quantization",
    "model_bytes",
    "n_params",
    "backend",
    "devices",
    "n_gpu_layers_requested",
    "n_gpu_layers",
    "layers_total",
    "n_ctx",
    "n_batch",
    "n_ubatch",
    "threads",
    "threads_batch",
    "flash_attn",
    "type_k",
    "type_v",
    "load_mode",
    "phase",
    "prompt_tokens",
    "output_tokens",
    "depth_tokens",
    "cache_state",
    "status",
    "reason",
    "samples",
    "median_s",
    "ci_low_s",
    "ci_high_s",
    "mean_s",
    "stddev_s",
    "min_s",
    "max_s",
    "tokens_per_s",
    "p95_s",
    "warnings",
]


def rows_of(run: Run) -> tuple[Row, ...]:
    return build_report(run).rows


def only(run: Run, phase: str, prompt_tokens: int | None = None) -> Row:
    found = [row for row in rows_of(run) if row.phase == phase and row.prompt_tokens == prompt_tokens]
    assert len(found) == 1
    return found[0]


def as_csv(run: Run) -> str:
    return FORMATS["csv"].render(build_report(run), STYLE)


def test_the_promised_columns_come_first_and_in_order() -> None:
    assert list(COLUMNS[: len(PROMISED)]) == PROMISED
    assert as_csv(sample.run()).splitlines()[0] == ",".join(COLUMNS)


def test_each_phase_has_its_rows() -> None:
    counts: dict[str, int] = {}
    for row in rows_of(sample.run()):
        counts[row.phase] = counts.get(row.phase, 0) + 1
    # Lengths 0, 128, 512, 2048; no reading at length 0. Two cache states, two sampler chains.
    assert counts == {
        "load": 2,
        "context": 1,
        "sampling": 2,
        "tokenize": 3,
        "prefill": 3,
        "decode": 4,
        "ttft": 3,
    }


def test_prefill_figures() -> None:
    row = only(sample.run(), "prefill", 512)
    # 2 ms + 2.2 ms * 512 + 350 ns * 512^2 = 2 + 1126.4 + 91.7504 = 1220.1504 ms,
    # times the median of 1.006 0.999 1.002 1.000 0.997 1.003 = 1.001.
    assert row.median_s == pytest.approx(1.2201504 * 1.001, rel=1e-6)
    assert row.tokens_per_s == pytest.approx(512 / (1.2201504 * 1.001), rel=1e-6)
    # Six samples: the interval runs from the smallest to the largest.
    assert (row.ci_low_s, row.ci_high_s) == (row.min_s, row.max_s)
    assert (row.samples, row.status, row.reason, row.depth_tokens) == (6, "ok", None, 0)
    assert row.p95_s is None


def test_decode_is_seconds_per_token_and_its_p95_is_over_all_steps() -> None:
    row = only(sample.run(), "decode", 2048)
    # Depths 2048 to 2079, mean 2063.5: 6.6 ms + 0.6 us * 2063.5 = 7.8381 ms, times 1.001;
    # steps 3, 10, 17, 24 and 31 take 40 us more: 5 * 40 / 32 = 6.25 us a step.
    assert row.median_s == pytest.approx(7.8381e-3 * 1.001 + 6.25e-6, rel=1e-6)
    assert row.tokens_per_s == pytest.approx(1 / (7.8381e-3 * 1.001 + 6.25e-6), rel=1e-6)
    assert row.p95_s is not None
    assert row.p95_s > row.median_s
    assert (row.depth_tokens, row.output_tokens, row.samples) == (2048, 32, 6)


def test_ttft_is_tokenizing_and_prefill_and_one_draw() -> None:
    run = sample.run()
    row = only(run, "ttft", 512)
    # Tokenizing 1025 us (median of 1024 1025 1026), a draw 93.5 us (median of 90 to 97).
    prefill = only(run, "prefill", 512)
    assert prefill.median_s is not None
    assert row.median_s == pytest.approx(prefill.median_s + 1025e-6 + 93.5e-6)
    assert row.tokens_per_s is None


def test_load_is_all_stages_and_context_is_apart() -> None:
    run = sample.run()
    warm = next(row for row in rows_of(run) if row.phase == "load" and row.cache_state == "warm")
    # 120 + 38 + 24 + 21 = 203, 121 + 37 + 25 + 22 = 205, 122 + 38 + 24 + 21 = 205.
    assert warm.median_s == pytest.approx(0.205)
    assert (warm.samples, warm.min_s) == (3, pytest.approx(0.203))
    # 24 25 24 25 24
    assert only(run, "context").median_s == pytest.approx(0.024)


def test_tokenizing_rates_count_the_tokens_that_came_out() -> None:
    group = sample.group(cells=[sample.cell(128)])
    told = tuple(dataclasses.replace(one, evaluated_tokens=120) for one in group.tokenize)
    row = only(sample.run(dataclasses.replace(group, tokenize=told)), "tokenize", 128)
    # Median of 256 257 258 us.
    assert row.tokens_per_s == pytest.approx(120 / 257e-6)


def test_what_the_budget_left_out_is_predicted_with_its_reason() -> None:
    run = sample.run(sample.group(cells=[*map(sample.cell, (0, 128, 512, 2048)), sample.skipped_cell(4096)]))
    row = only(run, "prefill", 4096)
    truth = sample.prefill_ns(4096) * 1e-9
    assert (row.status, row.samples, row.stddev_s) == ("predicted", 0, None)
    assert row.reason == "budget: 98 s needed, 12 s left; raise --budget"
    assert row.ci_low_s is not None
    assert row.ci_high_s is not None
    assert row.ci_low_s < truth < row.ci_high_s
    assert only(run, "decode", 4096).status == "predicted"


def test_without_a_fit_a_skipped_cell_stays_skipped() -> None:
    run = sample.run(sample.group(cells=[sample.cell(128), sample.skipped_cell(4096)]))
    row = only(run, "prefill", 4096)
    assert (row.status, row.median_s, row.tokens_per_s) == ("skipped", None, None)


def test_a_crashed_cell_is_never_predicted() -> None:
    run = sample.run(sample.group(cells=[*map(sample.cell, (128, 512)), sample.failed_cell(4096)]))
    row = only(run, "prefill", 4096)
    assert (row.status, row.median_s) == ("failed", None)
    assert row.reason == "crash: the engine's process ended with signal 9"


def test_a_model_that_could_not_load_has_rows_that_say_so() -> None:
    found = rows_of(sample.run(sample.failed_group()))
    # One load, then decode at 4 lengths, prefill and ttft at 3.
    assert [row.phase for row in found].count("load") == 1
    assert len(found) == 1 + 4 + 3 + 3
    assert {row.status for row in found} == {"failed"}
    assert all(row.reason and row.reason.startswith("memory:") for row in found)
    assert all(row.n_gpu_layers is None and row.backend is None for row in found)


def test_warnings_stand_in_the_rows_they_concern() -> None:
    run = sample.run(sample.group(cells=[sample.cell(128, slow_first=2.0), sample.cell(512)]))
    assert only(run, "prefill", 128).warnings == "first-pass-apart"
    assert only(run, "prefill", 512).warnings is None


def test_csv_leaves_the_unknown_empty_and_keeps_zero() -> None:
    read = list(csv.DictReader(io.StringIO(as_csv(sample.run()))))
    load = next(line for line in read if line["phase"] == "load")
    assert (load["prompt_tokens"], load["n_gpu_layers_requested"], load["reason"]) == ("", "", "")
    assert load["n_gpu_layers"] == "0"
    decode = next(line for line in read if line["phase"] == "decode" and line["prompt_tokens"] == "0")
    assert decode["depth_tokens"] == "0"


def test_a_model_name_can_not_become_a_formula() -> None:
    read = list(csv.DictReader(io.StringIO(as_csv(sample.troubled_run()))))
    assert read[0]["model_name"].startswith("'=cmd")
    assert "\x1b" not in read[0]["model_name"]


def test_csv_reads_back_as_the_rows() -> None:
    run = sample.run()
    for line, row in zip(csv.DictReader(io.StringIO(as_csv(run))), rows_of(run), strict=True):
        for name, value in dataclasses.asdict(row).items():
            if value is None:
                assert line[name] == ""
            elif isinstance(value, float):
                assert float(line[name]) == pytest.approx(value, rel=1e-8)
            else:
                assert line[name] == str(value)


@given(name=st.text(min_size=1, max_size=30), reason=st.text(max_size=30))
@settings(max_examples=25, deadline=None)
def test_no_text_breaks_the_csv(name: str, reason: str) -> None:
    group = sample.group(
        cells=[sample.cell(128), sample.failed_cell(512, reason)], facts=sample.model(name=name)
    )
    run = sample.run(group)
    assert len(list(csv.DictReader(io.StringIO(as_csv(run))))) == len(rows_of(run))


def test_json_has_a_version_and_null_for_the_unknown() -> None:
    report = build_report(sample.troubled_run())
    document = json.loads(FORMATS["json"].render(report, STYLE))
    assert document["schema_version"] == 1
    assert document["run"]["run_id"] == "20261130T205545Z-1a2b3c"
    assert [list(row) for row in document["rows"]] == [list(COLUMNS)] * len(report.rows)
    assert document["rows"][0]["n_gpu_layers_requested"] is None
    assert {notice["code"] for notice in document["run"]["notices"]} >= {"unfinished", "swap-in"}


def test_jsonl_has_one_row_a_line() -> None:
    report = build_report(sample.run())
    lines = FORMATS["jsonl"].render(report, STYLE).splitlines()
    assert [json.loads(line) for line in lines] == [dataclasses.asdict(row) for row in report.rows]


def test_the_frame_keeps_integers_and_missing_values() -> None:
    table = frame(rows_of(sample.run()))
    assert str(table["prompt_tokens"].dtype) == "Int64"
    assert str(table["median_s"].dtype) == "Float64"
    assert int(table["n_gpu_layers_requested"].isna().sum()) == len(table)


def test_large_integers_stay_exact_beside_missing_values() -> None:
    first = next(iter(rows_of(sample.run())))
    odd = 2**62 + 1  # as a float it would be 2**62
    rows = [dataclasses.replace(first, model_bytes=size) for size in (odd, None)]
    assert frame(rows)["model_bytes"][0] == odd
    assert str(odd) in frame_csv(rows)


def test_no_row_holds_a_negative_or_endless_figure() -> None:
    for row in rows_of(sample.troubled_run()):
        figures = [value for value in dataclasses.asdict(row).values() if isinstance(value, float)]
        assert all(0 <= value < 1e9 for value in figures)


def test_a_pass_without_duration_has_no_rate() -> None:
    cell = sample.cell(128)
    still = tuple(dataclasses.replace(one, head_ns=0, tail_ns=0) for one in cell.samples)
    row = only(sample.run(sample.group(cells=[dataclasses.replace(cell, samples=still)])), "prefill", 128)
    assert (row.median_s, row.tokens_per_s) == (0.0, None)
