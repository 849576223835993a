"""`llmphase compare` and `profile --baseline`, on runs of the scripted engine, whose costs are exact."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from program import PROGRAM, TESTS, Command, scripted

EXACT = {"prefill_ns": 1_000_000, "slope_ns": 0, "decode_ns": 5_000_000, "depth_ns": 0}
SLOW_DECODE = EXACT | {"decode_ns": 6_000_000}
CELLS = ("-p", "0,64", "-n", "4", "-r", "5")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Path:
    """A data folder with two runs: decode got a fifth slower, 5 to 6 ms a token."""
    folder = tmp_path_factory.mktemp("data")
    for script in (EXACT, SLOW_DECODE):
        subprocess.run(
            [PROGRAM, "profile", tiny_llama, *CELLS, "-q"],
            env=os.environ
            | {"LLMPHASE_DATA_DIR": str(folder), "PYTHONPATH": str(TESTS), "HOME": str(folder)}
            | scripted(script),
            stdout=subprocess.DEVNULL,
            check=True,
        )
    return folder


@pytest.fixture
def two_runs(measured: Path, data_folder: Path) -> None:
    """They are `last~1` and `last`."""
    shutil.copytree(measured, data_folder)


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
    assert llmphase("compare", "last~1", "last", "--fail-over", "5%", "--phase", "prefill").returncode == 0


@pytest.mark.usefixtures("two_runs")
def test_noise_is_a_failure_where_asked(forked: Command, tiny_llama: Path) -> None:
    assert (
        forked("profile", tiny_llama, "-p", "0,64", "-n", "4", "-r", "1", "-q", script=EXACT).returncode == 0
    )
    chosen = ("compare", "last~2", "last", "--phase", "decode", "--fail-over", "5%")
    assert forked(*chosen).returncode == 0
    outcome = forked(*chosen, "--noise-is-failure")
    assert outcome.returncode == 1
    assert "one repetition does not show how much it varies" in outcome.stderr


@pytest.mark.usefixtures("two_runs")
def test_csv_has_one_row_a_cell(forked: Command) -> None:
    rows = table(forked("compare", "last~1", "last", "--format", "csv", "--phase", "decode,prefill").stdout)
    found = {(row["phase"], row["prompt_tokens"] or row["depth_tokens"]): row for row in rows}
    assert set(found) == {("prefill", "64"), ("decode", "0"), ("decode", "64")}
    row = found["decode", "0"]
    assert (row["base_median_s"], row["new_median_s"], row["ratio"]) == ("0.005", "0.006", "1.2")
    assert (row["verdict"], row["like_for_like"], row["base_samples"]) == ("slower", "true", "5")
    assert found["prefill", "64"]["verdict"] == "same"


@pytest.mark.usefixtures("two_runs")
def test_json_and_jsonl(forked: Command) -> None:
    found = json.loads(forked("compare", "last~1", "last", "--format", "json").stdout)
    assert found["schema_version"] == 1
    assert found["comparisons"][0]["like_for_like"] is True
    lines = forked("compare", "last~1", "last", "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == found["rows"]


@pytest.mark.usefixtures("two_runs")
def test_junit_fails_what_the_gate_fails(forked: Command, tmp_path: Path) -> None:
    target = tmp_path / "comparison.xml"
    outcome = forked("compare", "last~1", "last", "--fail-over", "5%", "-o", target, "-q")
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


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize(
    ("form", "notes"),
    [
        ("csv", "does not name its machine"),
        ("jsonl", "does not name its machine"),
        ("llama-bench-jsonl", ""),
    ],
)
def test_exports_are_compared_as_runs_are(forked: Command, tmp_path: Path, form: str, notes: str) -> None:
    for name in ("last~1", "last"):
        assert forked("report", name, "--format", form, "-o", tmp_path / name).returncode == 0
    outcome = forked("compare", tmp_path / "last~1", tmp_path / "last", "--format", "json")
    assert outcome.returncode == 0, outcome.stderr
    found = json.loads(outcome.stdout)
    decode = [(row["verdict"], round(row["ratio"], 4)) for row in found["rows"] if row["phase"] == "decode"]
    assert decode == [("slower", 1.2)] * 2
    assert notes in " ".join(found["notes"])
    beside_a_run = forked("compare", "last~1", tmp_path / "last", "--phase", "decode", "--anyway")
    assert beside_a_run.returncode == 0, beside_a_run.stderr
    assert "Slower: decode at 0 and 64 tokens" in beside_a_run.stdout


@pytest.mark.usefixtures("two_runs")
def test_several_files_against_the_first(forked: Command) -> None:
    outcome = forked("compare", "last~1", "last", "last~1")
    assert outcome.returncode == 0, outcome.stderr
    text = " ".join(outcome.stdout.split())
    assert "File 2: Slower: decode at 0 and 64 tokens" in text
    assert "File 3: No change is shown." in text
    assert "Time over the first file's" in text
    decode = next(line for line in outcome.stdout.splitlines() if line.startswith("decode  2"))
    assert decode.endswith("1.20")
    assert max(len(line) for line in outcome.stdout.splitlines()) <= 80


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize("width", [50])
def test_screens_fit_and_are_ascii_where_the_encoding_is(llmphase: Command, width: int) -> None:
    outcome = llmphase("compare", "last~1", "last", "last~1", COLUMNS=str(width), PYTHONIOENCODING="ascii")
    assert outcome.stdout.isascii()
    assert max(len(line) for line in outcome.stdout.splitlines()) <= width


@pytest.mark.usefixtures("two_runs")
def test_settings_that_differ_are_refused_unless_asked_for(forked: Command, tiny_llama: Path) -> None:
    assert forked("profile", tiny_llama, *CELLS, "-t", "1", "-q", script=EXACT).returncode == 0
    outcome = forked("compare", "last", "last~1")
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert "not like for like" in outcome.stderr
    assert "threads 1 against 2" in outcome.stderr
    outcome = forked("compare", "last", "last~1", "--anyway")
    assert outcome.returncode == 0
    assert outcome.stdout.startswith("Not like for like: threads 1 against 2; threads batch 1 against 2.\n")


@pytest.mark.usefixtures("two_runs")
def test_a_baseline_is_compared_right_after(llmphase: Command, tiny_llama: Path, tmp_path: Path) -> None:
    base = tmp_path / "base.csv"
    assert llmphase("report", "last~1", "-o", base).returncode == 0
    chosen = ("profile", tiny_llama, *CELLS, "--baseline", base, "--fail-over", "5%", "--phase", "decode")
    outcome = llmphase(*chosen, script=SLOW_DECODE)
    assert outcome.returncode == 1
    # The profile's own report first, then the comparison.
    assert 0 < outcome.stdout.index("Machine") < outcome.stdout.index("Slower: decode at 0 and 64 tokens")
    assert "Gate not met: decode at 0 tokens is 20 % slower, over 5 %." in outcome.stderr
    outcome = llmphase(*chosen, "--quiet", "--format", "csv", script=EXACT)
    assert outcome.returncode == 0
    assert outcome.stderr == ""
    assert {row["status"] for row in table(outcome.stdout)} == {"ok"}


def test_a_wrong_baseline_costs_no_measurement(forked: Command, tiny_llama: Path, data_folder: Path) -> None:
    outcome = forked("profile", tiny_llama, "--baseline", "none.csv", script=EXACT)
    assert outcome.returncode == 2
    assert "none.csv" in outcome.stderr
    outcome = forked("profile", tiny_llama, "--fail-over", "5%", script=EXACT)
    assert outcome.returncode == 2
    assert "--fail-over needs --baseline" in outcome.stderr
    assert not (data_folder / "runs").exists()


@pytest.mark.usefixtures("two_runs")
def test_a_bad_file_is_refused_in_one_line(forked: Command, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    assert forked("report", "last", "-o", good).returncode == 0
    text = good.read_text(encoding="utf-8")
    bad.write_text(text.replace(table(text)[0]["median_s"], "nan"), encoding="utf-8")
    outcome = forked("compare", good, bad)
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert len(outcome.stderr.splitlines()) == 1
    assert "bad.csv, row 1: median_s is nan" in outcome.stderr


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("last",), "at least one other"),
        (("last~1", "last", "--phase", "sampling"), "none of load, prefill, decode, ttft"),
        (("last~1", "last", "--fail-over", "much"), "--fail-over"),
        (("last~1", "last", "-o", "x.pdf"), ".xml"),
    ],
)
def test_wrong_use_is_one_line(forked: Command, arguments: tuple[str, ...], expected: str) -> None:
    outcome = forked("compare", *arguments)
    assert outcome.returncode == 2
    assert expected in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1


@pytest.mark.usefixtures("two_runs")
def test_untrusted_names_stay_harmless(forked: Command, data_folder: Path) -> None:
    saved = next((data_folder / "runs").glob("*.json"))
    run: dict[str, Any] = json.loads(saved.read_text())
    run["groups"][0]["model"]["name"] = "=cmd|'x'!A0 <b>\x1b[31m|evil"
    saved.write_text(json.dumps(run))
    outputs = {}
    for form in ("terminal", "csv", "markdown"):
        outcome = forked("compare", "last", "last~1", "--anyway", "--format", form)
        assert outcome.returncode == 0, outcome.stderr
        outputs[form] = outcome.stdout
    assert "evil" in outputs["terminal"]
    assert "\x1b" not in "".join(outputs.values())
    assert ",=cmd" not in outputs["csv"]
    assert "<b>" not in outputs["markdown"].replace("\\<b\\>", "")
