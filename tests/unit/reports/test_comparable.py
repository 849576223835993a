"""Runs and exports as comparable files: what is kept, and which row of a bad file is named."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable

import pytest
import sample_runs as samples

from probes.errors import UsageError
from probes.records import Run
from reports import frame
from reports.comparable_exports import of_csv, of_json, of_jsonl
from reports.comparable_runs import of_run
from reports.comparison import compare
from reports.formats import TerminalStyle
from reports.formats.json_format import render as render_json
from reports.report import build_report

STYLE = TerminalStyle(width=80, colour=False, unicode=True)


def exported(run: Run | None = None) -> str:
    return frame.csv(build_report(run or samples.run()).rows)


def problem(read: Callable[[str, str], object], text: str) -> UsageError:
    with pytest.raises(UsageError) as error:
        read(text, "file")
    return error.value


def test_a_run_keeps_the_samples_that_count() -> None:
    slow_first = samples.group(cells=(samples.cell(512, passes=6, slow_first=1.6),))
    found = {cell.phase: cell for cell in of_run(samples.run(slow_first)).cells if cell.phase != "load"}
    assert len(found["prefill"].samples_s) == 5
    assert found["prefill"].prompt_tokens == 512
    assert (found["decode"].depth_tokens, found["decode"].output_tokens) == (512, samples.OUTPUT_TOKENS)
    # 2 ms + 2.2 ms * 512 + 0.35 µs * 512^2 = 1.2202 s, the noise of a few per mille aside.
    assert found["prefill"].samples_s[0] == pytest.approx(1.220, rel=0.01)
    assert found["ttft"].samples_s[0] > found["prefill"].samples_s[0]


def test_loads_are_parted_by_cache_state() -> None:
    loads = {
        cell.cache_state: len(cell.samples_s) for cell in of_run(samples.run()).cells if cell.phase == "load"
    }
    assert loads == {"cold": 2, "warm": 3}


def test_settings_are_as_resolved_and_unknown_ones_left_out() -> None:
    settings = of_run(samples.run(samples.gpu_group())).cells[0].settings
    assert settings["n_gpu_layers"] == "12"
    assert settings["flash_attn"] == "enabled"
    assert settings["backend"] == "CUDA,CPU"
    assert "override_tensor" not in settings
    failed = of_run(samples.run(samples.failed_group())).cells[0]
    assert "n_gpu_layers" not in failed.settings
    assert failed.problem is not None
    assert failed.problem.startswith("failed: memory:")


def test_notes_tell_of_drift_and_disturbance() -> None:
    notes = " ".join(of_run(samples.troubled_run()).notes)
    assert of_run(samples.troubled_run()).is_disturbed
    assert not of_run(samples.run()).is_disturbed
    for part in ("interrupted", "Other programs used", "hypervisor", "swap"):
        assert part in notes


def test_no_time_at_all_is_no_measurement() -> None:
    cell = samples.cell(0)
    zero = tuple(dataclasses.replace(sample, decode_ns=(0,) * 4) for sample in cell.samples)
    run = samples.run(samples.group(cells=(dataclasses.replace(cell, samples=zero),)))
    decode = next(cell for cell in of_run(run).cells if cell.phase == "decode")
    assert decode.samples_s == ()
    assert decode.problem is not None
    assert decode.problem.startswith("impossible")


@pytest.mark.parametrize("form", ["csv", "json", "jsonl"])
def test_exports_hold_the_run_they_come_from(form: str) -> None:
    run = samples.run()
    report = build_report(run)
    if form == "csv":
        export = of_csv(frame.csv(report.rows), "export")
    elif form == "json":
        export = of_json(json.loads(render_json(report, STYLE)), "export")
    else:
        export = of_jsonl("\n".join(json.dumps(dataclasses.asdict(row)) for row in report.rows), "export")
    found = compare(of_run(run), export)
    assert found.like_for_like
    assert found.unmatched == ()
    assert [cell.ratio for cell in found.cells] == pytest.approx([1.0] * len(found.cells))
    assert {(cell.phase, cell.base_n == cell.new_n) for cell in found.cells} == {
        ("load", True),
        ("prefill", True),
        ("decode", True),
    }


def test_a_guarded_name_is_the_same_model() -> None:
    run = samples.run(samples.group(facts=samples.model(name="=SUM(A1)")))
    assert compare(of_run(run), of_csv(exported(run), "x.csv")).like_for_like


def edited(**changes: str) -> str:
    """An export whose first decode row, row 7, is changed."""
    rows = list(csv.DictReader(io.StringIO(exported())))
    number = next(i for i, row in enumerate(rows) if row["phase"] == "decode")
    assert number == 5
    rows[number] |= changes
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("median_s", "nan", "bad-duration"),
        ("median_s", "inf", "bad-duration"),
        ("median_s", "-0.1", "bad-duration"),
        ("median_s", "0", "bad-duration"),
        ("median_s", "fast", "bad-duration"),
        ("median_s", "", "bad-duration"),
        ("median_s", "1e300", "bad-duration"),
        ("stddev_s", "-1", "bad-duration"),
        ("ci_high_s", "nan", "bad-duration"),
        ("samples", "2.5", "bad-row"),
        ("samples", "-1", "bad-row"),
        ("depth_tokens", "deep", "bad-row"),
        ("output_tokens", "1e999", "bad-row"),
    ],
)
def test_a_bad_value_is_named_with_its_row(field: str, value: str, reason: str) -> None:
    error = problem(of_csv, edited(**{field: value}))
    assert error.reason == reason
    assert str(error).startswith(f"file, row 6: {field} is {value or 'missing'}, which is no ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty-file"),
        (exported().split("\n", 1)[0], "empty-file"),
        ("a,b\n1,2\n", "not-an-export"),
        (exported()[:-40], "bad-row"),
        ('"' + "x" * 200_000, "not-an-export"),
        (exported() + exported(samples.run(run_id="other")).split("\n", 1)[1], "several-runs"),
    ],
)
def test_a_bad_csv_is_refused(text: str, reason: str) -> None:
    assert problem(of_csv, text).reason == reason


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"schema_version": 99, "rows": [{"phase": "decode"}]}, "newer-export"),
        ({"schema_version": 1, "rows": []}, "empty-file"),
        ({"schema_version": 1, "rows": [1]}, "not-an-export"),
        ({"schema_version": 1, "rows": [{"phase": "decode"}]}, "not-an-export"),
        ({"rows": {}}, "not-an-export"),
        ({"some": "thing"}, "not-an-export"),
    ],
)
def test_a_bad_json_is_refused(document: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError) as error:
        of_json(document, "file")
    assert error.value.reason == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty-file"),
        ("{", "bad-row"),
        ("1\n", "not-an-export"),
        ('{"phase": "load"}\n', "not-an-export"),
    ],
)
def test_a_bad_jsonl_is_refused(text: str, reason: str) -> None:
    assert problem(of_jsonl, text).reason == reason


def test_a_doubled_row_is_refused() -> None:
    text = exported()
    doubled = of_csv(text + text.splitlines(keepends=True)[6], "x.csv")
    with pytest.raises(UsageError) as error:
        compare(doubled, doubled)
    assert error.value.reason == "duplicate-rows"
    assert "x.csv, row 6 and x.csv, row" in str(error.value)
