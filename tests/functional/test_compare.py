"""`llmphase compare` and `profile --baseline`, on runs of the scripted engine, whose costs are exact."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from program import Command

EXACT = {"prefill_ns": 1_000_000, "slope_ns": 0, "decode_ns": 5_000_000, "depth_ns": 0}
SLOW_DECODE = EXACT | {"decode_ns": 6_000_000}
CELLS = ("-p", "0,64", "-n", "4", "-r", "5")


@pytest.fixture
def two_runs(llmphase: Command, tiny_llama: Path) -> None:
    """`last~1` and `last`: decode got a fifth slower, 5 to 6 ms a token."""
    for script in (EXACT, SLOW_DECODE):
        outcome = llmphase("profile", tiny_llama, *CELLS, "-q", script=script)
        assert outcome.returncode == 0, outcome.stderr


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.usefixtures("two_runs")
def test_the_answer_comes_first(llmphase: Command) -> None:
    outcome = llmphase("compare", "last~1", "last")
    assert outcome.returncode == 0, outcome.stderr
    answer = " ".join(outcome.stdout.split("\n\n")[0].split())
    assert answer.startswith("Slower: decode at 0 and 64 tokens, by up to 20 %. The same within 5 %: ")
    assert max(len(line) for line in outcome.stdout.splitlines()) <= 80
    assert "\x1b" not in outcome.stdout


@pytest.mark.usefixtures("two_runs")
def test_the_gate(llmphase: Command) -> None:
    outcome = llmphase("compare", "last~1", "last", "--fail-over", "5%", "-q")
    assert outcome.returncode == 1
    assert outcome.stderr.splitlines() == [
        "Gate not met: decode at 0 tokens is 20 % slower, over 5 %.",
        "Gate not met: decode at 64 tokens is 20 % slower, over 5 %.",
    ]
    assert llmphase("compare", "last~1", "last", "--fail-over", "25%").returncode == 0
    assert llmphase("compare", "last~1", "last", "--fail-over", "5%", "--phase", "prefill").returncode == 0
    assert llmphase("compare", "last", "last~1", "--fail-over", "5%").returncode == 0


@pytest.mark.usefixtures("two_runs")
def test_noise_is_a_failure_where_asked(llmphase: Command, tiny_llama: Path) -> None:
    assert (
        llmphase("profile", tiny_llama, "-p", "0,64", "-n", "4", "-r", "1", "-q", script=EXACT).returncode
        == 0
    )
    chosen = ("compare", "last~2", "last", "--phase", "decode", "--fail-over", "5%")
    assert llmphase(*chosen).returncode == 0
    outcome = llmphase(*chosen, "--noise-is-failure")
    assert outcome.returncode == 1
    assert "one repetition does not show how much it varies" in outcome.stderr


@pytest.mark.usefixtures("two_runs")
def test_csv_has_one_row_a_cell(llmphase: Command) -> None:
    rows = table(llmphase("compare", "last~1", "last", "--format", "csv", "--phase", "decode,prefill").stdout)
    found = {(row["phase"], row["prompt_tokens"] or row["depth_tokens"]): row for row in rows}
    assert set(found) == {("prefill", "64"), ("decode", "0"), ("decode", "64")}
    row = found["decode", "0"]
    assert (row["base_median_s"], row["new_median_s"], row["ratio"]) == ("0.005", "0.006", "1.2")
    assert (row["verdict"], row["like_for_like"], row["base_samples"]) == ("slower", "true", "5")
    assert found["prefill", "64"]["verdict"] == "same"


@pytest.mark.usefixtures("two_runs")
def test_json_and_jsonl(llmphase: Command) -> None:
    found = json.loads(llmphase("compare", "last~1", "last", "--format", "json").stdout)
    assert found["schema_version"] == 1
    assert found["comparisons"][0]["like_for_like"] is True
    lines = llmphase("compare", "last~1", "last", "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == found["rows"]


@pytest.mark.usefixtures("two_runs")
def test_junit_fails_what_the_gate_fails(llmphase: Command, tmp_path: Path) -> None:
    target = tmp_path / "comparison.xml"
    outcome = llmphase("compare", "last~1", "last", "--fail-over", "5%", "-o", target, "-q")
    assert outcome.returncode == 1
    assert outcome.stdout == ""
    root = ElementTree.fromstring(target.read_text(encoding="utf-8"))
    cases = root.findall("testsuite/testcase")
    failed = [case.get("name") for case in cases if case.find("failure") is not None]
    assert failed == ["decode at 0 tokens", "decode at 64 tokens"]
    assert root.get("failures") == "2"
    assert root.get("tests") == str(len(cases))


@pytest.mark.usefixtures("two_runs")
def test_github_gets_a_summary(llmphase: Command, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n", encoding="utf-8")
    outcome = llmphase("compare", "last~1", "last", "--github", GITHUB_STEP_SUMMARY=str(summary))
    assert outcome.returncode == 0
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("before\n## llmphase comparison\n")
    assert "| decode | 64 | 5.00 ms | 6.00 ms | 5 / 5 | +20.0 % |" in text
    outcome = llmphase("compare", "last~1", "last", "--github")
    assert outcome.returncode == 2
    assert "GITHUB_STEP_SUMMARY" in outcome.stderr


def test_exports_are_compared_as_runs_are(llmphase: Command, tiny_llama: Path, tmp_path: Path) -> None:
    for form in ("csv", "json", "jsonl"):
        target = tmp_path / f"base.{form}"
        assert llmphase("profile", tiny_llama, *CELLS, "-o", target, "-q", script=EXACT).returncode == 0
    assert llmphase("profile", tiny_llama, *CELLS, "-q", script=SLOW_DECODE).returncode == 0
    for form in ("csv", "json", "jsonl"):
        outcome = llmphase(
            "compare", tmp_path / f"base.{form}", "last", "--phase", "decode", "--format", "csv"
        )
        assert outcome.returncode == 0, outcome.stderr
        assert [(row["verdict"], row["ratio"]) for row in table(outcome.stdout)] == [("slower", "1.2")] * 2
    printed = llmphase("compare", tmp_path / "base.csv", "last").stdout
    assert "base.csv does not name its machine" in " ".join(printed.split())


def test_what_llama_bench_writes_is_compared_too(llmphase: Command, tiny_llama: Path, tmp_path: Path) -> None:
    for name, script in (("base", EXACT), ("new", SLOW_DECODE)):
        assert llmphase("profile", tiny_llama, *CELLS, "-q", script=script).returncode == 0
        target = tmp_path / f"{name}.jsonl"
        assert llmphase("report", "last", "--format", "llama-bench-jsonl", "-o", target).returncode == 0
    outcome = llmphase("compare", tmp_path / "base.jsonl", tmp_path / "new.jsonl", "--format", "csv")
    assert outcome.returncode == 0, outcome.stderr
    decode = [row for row in table(outcome.stdout) if row["phase"] == "decode"]
    assert [(row["verdict"], row["ratio"][:5]) for row in decode] == [("slower", "1.2")] * 2


@pytest.mark.usefixtures("two_runs")
def test_several_files_against_the_first(llmphase: Command) -> None:
    outcome = llmphase("compare", "last~1", "last", "last~1")
    assert outcome.returncode == 0, outcome.stderr
    text = " ".join(outcome.stdout.split())
    assert "File 2: Slower: decode at 0 and 64 tokens" in text
    assert "File 3: No change is shown." in text
    assert "Time over the first file's" in text
    decode = next(line for line in outcome.stdout.splitlines() if line.startswith("decode  2"))
    assert decode.endswith("1.20")
    assert max(len(line) for line in outcome.stdout.splitlines()) <= 80


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize("width", [50, 80, 140])
def test_screens_fit_and_are_ascii_where_the_encoding_is(llmphase: Command, width: int) -> None:
    outcome = llmphase("compare", "last~1", "last", "last~1", COLUMNS=str(width), PYTHONIOENCODING="ascii")
    assert outcome.stdout.isascii()
    assert max(len(line) for line in outcome.stdout.splitlines()) <= width


def test_settings_that_differ_are_refused_unless_asked_for(llmphase: Command, tiny_llama: Path) -> None:
    for threads in ("1", "2"):
        arguments = ("profile", tiny_llama, *CELLS, "-t", threads, "-q")
        assert llmphase(*arguments, script=EXACT).returncode == 0
    outcome = llmphase("compare", "last~1", "last")
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert "not like for like" in outcome.stderr
    assert "threads 1 against 2" in outcome.stderr
    outcome = llmphase("compare", "last~1", "last", "--anyway")
    assert outcome.returncode == 0
    assert outcome.stdout.startswith("Not like for like: threads 1 against 2; threads batch 1 against 2.\n")


def test_a_baseline_is_compared_right_after(llmphase: Command, tiny_llama: Path, tmp_path: Path) -> None:
    base = tmp_path / "base.csv"
    assert llmphase("profile", tiny_llama, *CELLS, "-o", base, "-q", script=EXACT).returncode == 0
    chosen = ("profile", tiny_llama, *CELLS, "--baseline", base, "--fail-over", "5%", "--phase", "decode")
    outcome = llmphase(*chosen, script=SLOW_DECODE)
    assert outcome.returncode == 1
    report, answer = (
        outcome.stdout.index("Which phase") if "Which phase" in outcome.stdout else 0,
        "Slower: decode",
    )
    assert outcome.stdout.index(answer) > report
    assert "Gate not met: decode at 0 tokens is 20 % slower, over 5 %." in outcome.stderr
    outcome = llmphase(*chosen, "--quiet", "--format", "csv", script=EXACT)
    assert outcome.returncode == 0
    assert outcome.stderr == ""
    assert {row["status"] for row in table(outcome.stdout)} == {"ok"}


def test_a_wrong_baseline_costs_no_measurement(
    llmphase: Command, tiny_llama: Path, data_folder: Path
) -> None:
    outcome = llmphase("profile", tiny_llama, "--baseline", "none.csv", script=EXACT)
    assert outcome.returncode == 2
    assert "none.csv" in outcome.stderr
    outcome = llmphase("profile", tiny_llama, "--fail-over", "5%", script=EXACT)
    assert outcome.returncode == 2
    assert "--fail-over needs --baseline" in outcome.stderr
    assert not (data_folder / "runs").exists()


def edited(rows: list[dict[str, str]], **changes: str) -> str:
    """The rows as CSV, the first decode row changed."""
    first = next(row for row in rows if row["phase"] == "decode")
    out = io.StringIO()
    writer = csv.DictWriter(out, list(first), lineterminator="\n")
    writer.writeheader()
    writer.writerows(row | changes if row is first else row for row in rows)
    return out.getvalue()


def test_bad_exports_are_refused_with_their_row(llmphase: Command, tiny_llama: Path, tmp_path: Path) -> None:
    good = tmp_path / "good.csv"
    assert llmphase("profile", tiny_llama, *CELLS, "-o", good, "-q", script=EXACT).returncode == 0
    text = good.read_text(encoding="utf-8")
    rows = table(text)
    number = 1 + next(i for i, row in enumerate(rows) if row["phase"] == "decode")
    lines = text.splitlines(keepends=True)
    other_run = text.replace(rows[0]["run_id"], "20200101T000000Z-000000")
    cases: dict[str, tuple[str, str]] = {
        "nan": (edited(rows, median_s="nan"), f"row {number}: median_s is nan"),
        "inf": (edited(rows, median_s="inf"), f"row {number}: median_s is inf"),
        "negative": (edited(rows, median_s="-0.1"), f"row {number}: median_s is -0.1"),
        "zero": (edited(rows, median_s="0"), f"row {number}: median_s is 0"),
        "words": (edited(rows, median_s="fast"), f"row {number}: median_s is fast"),
        "deviation": (edited(rows, stddev_s="-1"), f"row {number}: stddev_s is -1"),
        "samples": (edited(rows, samples="2.5"), f"row {number}: samples is 2.5"),
        "duplicate": (text + lines[number], "is there twice"),
        "truncated": (text[:-40], "cut short"),
        "several": (text + other_run.split("\n", 1)[1], "it holds 2 runs"),
        "head": (lines[0], "it has no rows"),
        "empty": ("", "empty"),
        "columns": ("a,b\n1,2\n", "bad-columns"),
        "json": (json.dumps({"schema_version": 99, "rows": [{"phase": "decode"}]}), "version 99"),
        "object": ('{"some": "thing"}', "bad-object"),
    }
    for name, (content, expected) in cases.items():
        bad = tmp_path / f"{name}.csv"
        bad.write_text(content, encoding="utf-8")
        outcome = llmphase("compare", good, bad)
        assert outcome.returncode == 2, (name, outcome.stdout, outcome.stderr)
        assert outcome.stdout == "", name
        assert len(outcome.stderr.splitlines()) == 1, (name, outcome.stderr)
        assert name in outcome.stderr
        if not expected.startswith("bad-"):
            assert expected in outcome.stderr, name


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("last",), "at least one other"),
        (("last", "last~9"), "no run last~9"),
        (("last~1", "last", "--phase", "sampling"), "none of load, prefill, decode, ttft"),
        (("last~1", "last", "--fail-over", "much"), "--fail-over"),
        (("last~1", "last", "--format", "xml"), "none of terminal"),
        (("last~1", "last", "-o", "x.pdf"), ".xml"),
    ],
)
def test_wrong_use_is_one_line(llmphase: Command, arguments: tuple[str, ...], expected: str) -> None:
    outcome = llmphase("compare", *arguments)
    assert outcome.returncode == 2
    assert expected in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1


def test_untrusted_names_stay_harmless(llmphase: Command, tiny_llama: Path, data_folder: Path) -> None:
    assert llmphase("profile", tiny_llama, *CELLS, "-q", script=EXACT).returncode == 0
    saved = next((data_folder / "runs").glob("*.json"))
    run: dict[str, Any] = json.loads(saved.read_text())
    run["groups"][0]["model"]["name"] = "=cmd|'x'!A0 <b>\x1b[31m|evil"
    run["run_id"] = "20200101T000000Z-000000"
    (saved.parent / "20200101T000000Z-000000.json").write_text(json.dumps(run))
    for form in ("terminal", "csv", "markdown", "junit", "json"):
        outcome = llmphase("compare", "last", "last~1", "--anyway", "--format", form)
        assert outcome.returncode == 0, outcome.stderr
        assert "\x1b" not in outcome.stdout
        assert ",=cmd" not in outcome.stdout
    markdown = llmphase("compare", "last", "last~1", "--anyway", "--format", "markdown").stdout
    assert "<b>" not in markdown.replace("\\<b\\>", "")
    shutil.rmtree(data_folder)
