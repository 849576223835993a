"""The CI example is run: its shell script on the scripted engine; its workflow calls that script."""

from __future__ import annotations

import csv
import os
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from program import PROGRAM, scripted

FOLDER = Path(__file__).parents[2] / "examples" / "ci"
EXACT = {"prefill_ns": 1_000_000, "decode_ns": 5_000_000, "depth_ns": 0}


def run(
    script: dict[str, Any], environment: dict[str, str], folder: Path, model: Path, **extra: str
) -> subprocess.CompletedProcess[str]:
    path = {"PATH": f"{PROGRAM.parent}{os.pathsep}{environment['PATH']}"}
    return subprocess.run(
        ["sh", FOLDER / "latency.sh", model, "-p", "0,64", "-n", "4", "-r", "5"],
        env=environment | path | scripted(script) | extra,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_script_keeps_a_baseline_and_fails_on_a_slowdown(
    environment: dict[str, str], tmp_path: Path, tiny_llama: Path
) -> None:
    first = run(EXACT, environment, tmp_path, tiny_llama)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == "No baseline yet: this run is stored as llmphase-baseline.json.\n"
    baseline = (tmp_path / "llmphase-baseline.json").read_bytes()

    summary = tmp_path / "summary.md"
    slower = run(
        EXACT | {"decode_ns": 6_000_000},
        environment,
        tmp_path,
        tiny_llama,
        GITHUB_STEP_SUMMARY=str(summary),
    )
    assert slower.returncode == 1
    assert slower.stdout.startswith("Slower: decode at 0 and 64 tokens, by up to 20 %.")
    assert "Gate not met: decode at 64 tokens is 20 % slower, over 10 %." in slower.stderr
    assert "## llmphase comparison" in summary.read_text(encoding="utf-8")
    assert (tmp_path / "llmphase-baseline.json").read_bytes() == baseline

    results = tmp_path / "llmphase-results"
    root = ElementTree.fromstring((results / "comparison.xml").read_text(encoding="utf-8"))
    assert root.get("failures") == "2"
    with (results / "result.csv").open(encoding="utf-8", newline="") as file:
        decode = [row["median_s"] for row in csv.DictReader(file) if row["phase"] == "decode"]
    assert decode == ["0.006", "0.006"]


def test_two_runs_have_the_same_columns_and_rows(
    environment: dict[str, str], tmp_path: Path, tiny_llama: Path
) -> None:
    tables = []
    for _ in range(2):
        assert run(EXACT, environment, tmp_path, tiny_llama).returncode == 0
        with (tmp_path / "llmphase-results" / "result.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        tables.append([{k: v for k, v in row.items() if k not in ("run_id", "started_at")} for row in rows])
    assert [list(row) for row in tables[0]] == [list(row) for row in tables[1]]
    key = ("model_name", "phase", "prompt_tokens", "depth_tokens", "variant")
    assert [[row[name] for name in key] for row in tables[0]] == [
        [row[name] for name in key] for row in tables[1]
    ]


def test_a_model_that_can_not_be_measured_has_its_code(environment: dict[str, str], tmp_path: Path) -> None:
    outcome = run(EXACT, environment, tmp_path, tmp_path / "none.gguf")
    assert outcome.returncode == 2
    assert not (tmp_path / "llmphase-baseline.json").exists()


def test_the_workflow_runs_the_script_and_keeps_what_it_writes() -> None:
    text = (FOLDER / "latency.yml").read_text(encoding="utf-8")
    yaml = pytest.importorskip("yaml")
    steps = yaml.safe_load(text)["jobs"]["latency"]["steps"]
    assert "sh examples/ci/latency.sh demo" in [step.get("run") for step in steps]
    kept = next(step["with"]["path"] for step in steps if "upload-artifact" in step.get("uses", ""))
    script = (FOLDER / "latency.sh").read_text(encoding="utf-8")
    for line in kept.split():
        name = Path(line).name
        assert name in script
