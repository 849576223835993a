"""A run of ours in llama-bench's formats: every field, in its order, with the figures of our samples."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import sqlite3
import statistics
from pathlib import Path

import pytest
import sample_runs as sample

from probes.records import CellSample, Run
from reports.formats import FORMATS, TerminalStyle
from reports.llama_bench import KINDS, bench_tests
from reports.report import build_report

STYLE = TerminalStyle(width=80, colour=False, unicode=True)
DATA = Path(__file__).parents[2] / "data" / "llama-bench"


def text(form: str, run: Run | None = None) -> str:
    return FORMATS[f"llama-bench-{form}"].render(build_report(run or sample.run()), STYLE)


def run_of(*prefill_ns: int, decode_ns: tuple[int, ...] = (), prompt: int = 100, passes_from: int = 1) -> Run:
    """A run with one cell of exactly these samples."""
    samples = tuple(
        CellSample(pass_index=index, started_ns=0, head_ns=0, tail_ns=prefill, decode_ns=decode_ns)
        for index, prefill in enumerate(prefill_ns, start=passes_from)
    )
    cell = dataclasses.replace(sample.cell(prompt), output_tokens=len(decode_ns), samples=samples)
    return sample.run(sample.group(cells=(cell,)))


def test_fields_stand_in_the_order_that_llama_bench_has() -> None:
    theirs = next(csv.reader(io.StringIO((DATA / "sample.csv").read_text())))
    assert list(KINDS) == theirs
    (first, *_) = json.loads(text("json"))
    assert list(first)[: len(theirs) + 2] == [*theirs, "samples_ns", "samples_ts"]
    head = text("csv").splitlines()[0].split(",")
    assert head[: len(theirs)] == theirs
    assert {"llmphase_version", "run_id"} <= set(head[len(theirs) :])


def test_json_values_have_the_types_that_llama_bench_writes() -> None:
    theirs = json.loads((DATA / "sample.json").read_text())[0]
    ours = json.loads(text("json"))[0]
    assert {name: type(ours[name]) for name in theirs} == {name: type(theirs[name]) for name in theirs}


def test_the_sql_table_is_llama_benchs_own() -> None:
    def table(script: str) -> list[tuple[object, ...]]:
        database = sqlite3.connect(":memory:")
        database.executescript(script)
        return database.execute("PRAGMA table_info(llama_bench)").fetchall()

    assert table(text("sql")) == table((DATA / "sample.sql").read_text())


def test_the_averages_are_those_of_the_samples() -> None:
    # 100 tokens in 1.0, 2.0 and 4.0 s: mean time 7/3 s; rates 100, 50 and 25 tok/s, mean 175/3
    run = run_of(10**9, 2 * 10**9, 4 * 10**9, decode_ns=(30_000_000, 50_000_000))
    decode, prefill = sorted(json.loads(text("json", run)), key=lambda test: test["n_prompt"])
    assert (prefill["n_prompt"], prefill["n_gen"], prefill["n_depth"]) == (100, 0, 0)
    assert prefill["samples_ns"] == [10**9, 2 * 10**9, 4 * 10**9]
    assert prefill["samples_ts"] == [100.0, 50.0, 25.0]
    assert prefill["avg_ns"] == 2_333_333_333
    assert prefill["avg_ts"] == pytest.approx(175 / 3)
    # deviations from the mean in seconds: -4/3, -1/3, 5/3; squares sum to 42/9; over n - 1: 7/3
    assert prefill["stddev_ns"] == pytest.approx((7 / 3) ** 0.5 * 1e9)
    assert prefill["stddev_ts"] == pytest.approx(statistics.stdev([100, 50, 25]))
    # two steps of 30 and 50 ms at depth 100: one sample of 80 ms for two tokens
    assert (decode["n_prompt"], decode["n_gen"], decode["n_depth"]) == (0, 2, 100)
    assert decode["samples_ns"] == [80_000_000] * 3
    assert decode["avg_ts"] == pytest.approx(25.0)


def test_a_deviation_of_long_tests_is_right() -> None:
    # 100 s a repetition: 64-bit whole numbers, as llama-bench reckons, would go wrong here
    run = run_of(99 * 10**9, 100 * 10**9, 101 * 10**9)
    (test,) = (test for test in bench_tests(run) if test.n_prompt)
    assert test.stddev_ns == 10**9


def test_one_repetition_deviates_by_nothing_as_llama_bench_says() -> None:
    (test,) = (test for test in bench_tests(run_of(10**9)) if test.n_prompt)
    assert (test.stddev_ns, test.stddev_ts) == (0, 0.0)


def test_a_first_pass_that_stands_apart_is_no_repetition() -> None:
    run = run_of(5 * 10**9, *[10**9] * 4, passes_from=0)
    (test,) = (test for test in bench_tests(run) if test.n_prompt)
    assert test.samples_ns == (10**9,) * 4


def test_what_was_not_measured_has_no_line() -> None:
    group = sample.group(cells=(sample.skipped_cell(4096), sample.failed_cell(8192)))
    run = sample.run(group, sample.failed_group())
    assert json.loads(text("json", run)) == []
    assert text("jsonl", run) == ""
    assert len(text("csv", run).splitlines()) == 1
    assert "INSERT" not in text("sql", run)
    assert "build" not in text("md", run)


def test_settings_are_told_as_llama_bench_tells_them() -> None:
    asked = sample.settings(
        n_gpu_layers=12,
        flash_attn="on",
        threads=2,
        kv_offload=False,
        op_offload=False,
        tensor_split=(0.5, 0.5),
        override_tensor=("exps=CPU", "a=CUDA0"),
        devices=("CUDA0", "CUDA1"),
        repack=False,
    )
    engine = sample.engine(
        devices=(
            sample.device(),
            sample.device(name="CUDA0", description="GPU A", kind="gpu"),
            sample.device(name="CUDA1", description="GPU B", kind="gpu"),
            sample.device(name="RPC0", description="far away", kind="gpu"),
        )
    )
    (test, *_) = json.loads(text("json", sample.run(sample.group(settings=asked), engine=engine)))
    assert test["backends"] == "CUDA,RPC"
    assert test["gpu_info"] == "GPU A, GPU B, far away"
    assert (test["n_gpu_layers"], test["flash_attn"]) == (12, 1)
    assert (test["no_kv_offload"], test["no_op_offload"], test["repack"]) == (True, 1, False)
    assert (test["tensor_split"], test["devices"]) == ("0.50/0.50", "CUDA0/CUDA1")
    assert test["tensor_buft_overrides"] == "exps=CPU;a=CUDA0"


def test_threads_are_those_of_the_phase() -> None:
    group = sample.group(resolved=sample.resolved(threads=4, threads_batch=8))
    for test in bench_tests(sample.run(group)):
        assert test.n_threads == (8 if test.n_prompt else 4)


def test_the_model_in_the_engines_own_words_where_it_told_them() -> None:
    group = sample.group(resolved=sample.resolved(description="llama 256M Q4_1"))
    assert {test.model_type for test in bench_tests(sample.run(group))} == {"llama 256M Q4_1"}
    assert {test.model_type for test in bench_tests(sample.run())} == {"llama 135M Q4_1"}


def test_settings_are_as_asked_and_what_came_of_them_stands_beside() -> None:
    group = sample.group(resolved=sample.resolved(n_batch=256, n_ubatch=256))
    (test, *_) = bench_tests(sample.run(group, engine=sample.engine(commit="0c1e570-dirty")))
    assert (test.n_batch, test.n_ubatch, test.build_commit) == (2048, 512, "0c1e570")
    assert dict(test.extras)["n_batch_resolved"] == 256


def test_an_unknown_build_is_named_as_llama_cpp_names_it() -> None:
    (test, *_) = bench_tests(sample.run(engine=sample.engine(commit=None)))
    assert (test.build_commit, test.build_number) == ("unknown", 0)


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "sql", "md"])
def test_names_of_any_kind_leave_the_form_whole(form: str) -> None:
    evil = sample.model(
        name="=cmd()\x1b[2J", path='/models/it\'s, "a" |pipe|\n\udcff.gguf', architecture="ll'ama|"
    )
    made = text(form, sample.run(sample.group(facts=evil)))
    assert "\x1b" not in made
    made.encode("utf-8")
    if form in ("json", "jsonl"):
        rows = json.loads(made) if form == "json" else [json.loads(line) for line in made.splitlines()]
        assert rows[0]["model_filename"] == '/models/it\'s, "a" |pipe| .gguf'
    elif form == "csv":
        (row, *_) = csv.DictReader(io.StringIO(made))
        assert row["model_name"].startswith("'=cmd()")
    elif form == "sql":
        database = sqlite3.connect(":memory:")
        database.executescript(made)
        names = database.execute("SELECT DISTINCT model_filename FROM llama_bench").fetchall()
        assert names == [('/models/it\'s, "a" |pipe| .gguf',)]
    else:
        cells = {line.replace("\\|", "").count("|") for line in made.splitlines() if line.startswith("|")}
        assert len(cells) == 1


def test_the_table_looks_like_llama_benchs() -> None:
    theirs = (DATA / "sample.md").read_text().splitlines()
    ours = text("md").splitlines()
    assert ours[:2] == theirs[:2]
    assert [len(line) for line in ours[2:9]] == [len(theirs[2])] * 7
    assert "|           pp128 |        441.88 ± 1.41 |" in ours[3]
    assert ours[-1] == "build: 6d18ec8 (0)"


def test_the_table_shows_what_is_not_usual_or_differs() -> None:
    made = text(
        "md",
        sample.run(
            sample.group(), sample.gpu_group(settings=sample.settings(type_k="q8_0", n_gpu_layers=12))
        ),
    )
    head = [cell.strip() for cell in made.splitlines()[0].split("|")]
    assert "type_k" in head
    assert "ngl" in head
    assert "type_v" not in head
