"""llama-bench's formats through the real command: out, in, and into llama.cpp's own comparison script."""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import os
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from program import Command

DATA = Path(__file__).parents[1] / "data" / "llama-bench"
SCRIPT_NAME = "compare-llama-bench.py"
EXACT = {"prefill_ns": 1_000_000, "slope_ns": 0, "decode_ns": 5_000_000, "depth_ns": 0}
"""1,000 tok/s prefill, 200 tok/s decode."""


@pytest.fixture
def saved(forked: Command, tiny_llama: Path) -> None:
    outcome = forked("profile", tiny_llama, "-p", "0,64", "-n", "4", "-r", "3", "--quiet", script=EXACT)
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.usefixtures("saved")
def test_a_run_in_every_format(llmphase: Command) -> None:
    rows = json.loads(llmphase("report", "--format", "llama-bench-json").stdout)
    rates = {(row["n_prompt"], row["n_gen"], row["n_depth"]): row["avg_ts"] for row in rows}
    assert rates == {
        (0, 4, 0): pytest.approx(200),
        (64, 0, 0): pytest.approx(1000),
        (0, 4, 64): pytest.approx(200),
    }
    assert {len(row["samples_ns"]) for row in rows} == {3}
    lines = llmphase("report", "--format", "llama-bench-jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == rows
    table = list(csv.DictReader(io.StringIO(llmphase("report", "--format", "llama-bench-csv").stdout)))
    assert [float(row["avg_ts"]) for row in table] == [row["avg_ts"] for row in rows]
    database = sqlite3.connect(":memory:")
    database.executescript(llmphase("report", "--format", "llama-bench-sql").stdout)
    assert database.execute("SELECT count(*), max(avg_ts) FROM llama_bench").fetchone() == (3, 1000.0)
    markdown = llmphase("report", "--format", "llama-bench-md").stdout
    assert "pp64 |       1000.00 ± 0.00 |" in markdown


def test_straight_from_a_measurement(llmphase: Command, tiny_llama: Path) -> None:
    outcome = llmphase(
        *("profile", tiny_llama, "-p", "64", "--quiet", "--no-save", "--format", "llama-bench-jsonl"),
        script=EXACT,
    )
    assert outcome.returncode == 0
    assert outcome.stderr == ""
    assert {json.loads(line)["build_commit"] for line in outcome.stdout.splitlines()} == {"abc1234"}


@pytest.mark.usefixtures("saved")
def test_a_file_named_sql_is_llama_benchs(forked: Command, tmp_path: Path) -> None:
    assert forked("report", "last", "-o", tmp_path / "bench.sql").returncode == 0
    assert (tmp_path / "bench.sql").read_text().startswith("CREATE TABLE IF NOT EXISTS llama_bench (")


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "sql", "md"])
def test_reports_on_files(forked: Command, form: str) -> None:
    outcome = forked("report", DATA / f"sample.{form}")
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr == ""
    answer = " ".join(outcome.stdout.split())
    assert "llama 256M Q4_1" in answer
    assert "At 256 prompt and 256 output tokens you wait 2." in answer
    assert max(map(len, outcome.stdout.splitlines())) <= 80


def test_one_format_becomes_another(forked: Command) -> None:
    outcome = forked("report", DATA / "sample.jsonl", "--format", "llama-bench-json")
    theirs = [json.loads(line) for line in (DATA / "sample.jsonl").read_text().splitlines()]
    for ours, their in zip(json.loads(outcome.stdout), theirs, strict=True):
        assert ours["samples_ns"] == their["samples_ns"]
        same = [name for name in their if name not in ("avg_ts", "stddev_ts", "stddev_ns", "samples_ts")]
        assert {name: ours[name] for name in same} == {name: their[name] for name in same}


def test_a_file_cut_short_is_read_as_far_as_it_goes(forked: Command, tmp_path: Path) -> None:
    path = tmp_path / "crashed.json"
    path.write_text("ggml_cuda_init: found 1 devices\n" + (DATA / "sample.json").read_text()[:-400])
    outcome = forked("report", path)
    assert outcome.returncode == 0
    assert "cut short" in outcome.stdout
    assert "[cut-short]" in outcome.stdout


def test_utf_16_as_powershell_writes_it(llmphase: Command, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text((DATA / "sample.json").read_text(), encoding="utf-16")
    assert llmphase("report", path).returncode == 0


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("empty.json", "", "empty"),
        ("other.csv", "a,b\n1,2\n", "neither a saved run"),
        ("none.json", "[\n]\n", "neither a saved run"),
        ("nan.jsonl", '{"n_prompt": 5, "n_gen": 0, "avg_ts": nan}\n', "row 1 (line 1), pp5: avg_ts is nan"),
        ("negative.csv", '"n_prompt","n_gen","avg_ts"\n"5","0","-1"\n', "row 1 (line 2), pp5: avg_ts is -1"),
        ("inf.sql", "INSERT INTO llama_bench (n_gen, avg_ts) VALUES ('5', 'inf');\n", "tg5: avg_ts is inf"),
    ],
)
def test_files_that_can_not_be_used(
    llmphase: Command, tmp_path: Path, name: str, text: str, words: str
) -> None:
    (tmp_path / name).write_text(text)
    outcome = llmphase("report", name)
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    (line,) = outcome.stderr.splitlines()
    assert name in line
    assert words in line


@pytest.mark.usefixtures("saved")
def test_an_export_is_refused_with_advice(forked: Command, tmp_path: Path) -> None:
    for ending in ("csv", "json", "jsonl"):
        forked("report", "last", "-o", tmp_path / f"rows.{ending}")
        outcome = forked("report", f"rows.{ending}")
        assert outcome.returncode == 2
        assert "export" in outcome.stderr


@pytest.mark.usefixtures("saved")
def test_a_diagnosis_has_no_such_format(forked: Command) -> None:
    outcome = forked(
        *("diagnose", "--run", "last", "--prompt-tokens", "64", "--output-tokens", "4"),
        *("--format", "llama-bench-json"),
    )
    assert outcome.returncode == 2
    assert "--format" in outcome.stderr


@pytest.fixture(scope="module")
def comparison_script(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """llama.cpp's script, out of the source archive of the engine's own package; kept between test runs."""
    pytest.importorskip("tabulate")
    pytest.importorskip("git")
    version = importlib.metadata.version("llama-cpp-python")
    assert request.config.cache is not None
    kept = Path(request.config.cache.mkdir("llama-cpp")) / f"{version}-{SCRIPT_NAME}"
    if not kept.exists():
        kept.write_bytes(_from_source_archive(version, tmp_path_factory.mktemp("sources")))
    return kept


def _from_source_archive(version: str, folder: Path) -> bytes:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    command += ["--no-binary", "llama-cpp-python", f"llama-cpp-python=={version}"]
    try:
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("the source archive could not be fetched in time")
    archives = list(folder.glob("*.tar.gz"))
    if outcome.returncode or not archives:
        pytest.skip("the source archive of llama-cpp-python can not be fetched here")
    with tarfile.open(archives[0]) as archive:
        for member in archive:
            if member.name.endswith(f"vendor/llama.cpp/scripts/{SCRIPT_NAME}"):
                file = archive.extractfile(member)
                assert file is not None
                return file.read()
    pytest.fail(f"no {SCRIPT_NAME} in the source archive")


@pytest.fixture
def two_builds(forked: Command, tiny_llama: Path, data_folder: Path) -> None:
    """Two runs of one model, the second twice as fast and made with another build."""
    for decode_ns, prefill_ns in ((5_000_000, 1_000_000), (2_500_000, 500_000)):
        script = EXACT | {"decode_ns": decode_ns, "prefill_ns": prefill_ns}
        arguments = ("-p", "0,64", "-n", "4", "-r", "3", "--quiet")
        assert forked("profile", tiny_llama, *arguments, script=script).returncode == 0
    newest = max((data_folder / "runs").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_text(newest.read_text().replace('"abc1234"', '"def5678"'))


def compared(script: Path, file: Path) -> list[list[str]]:
    """The cells of the table that llama.cpp's script prints of both builds."""
    outcome = subprocess.run(
        [sys.executable, script, "--tool", "llama-bench", "-i", file, "-b", "abc1234", "-c", "def5678"],
        cwd=file.parent,
        env=os.environ | {"GIT_PYTHON_REFRESH": "quiet", "GIT_CEILING_DIRECTORIES": str(file.parent.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    lines = [line for line in outcome.stdout.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.usefixtures("two_builds")
@pytest.mark.parametrize("form", ["jsonl", "sql"])
def test_llama_cpps_own_script_compares_our_exports(
    forked: Command, comparison_script: Path, tmp_path: Path, form: str
) -> None:
    texts = [forked("report", run, "--format", f"llama-bench-{form}").stdout for run in ("last~1", "last")]
    folder = tmp_path / "compared"
    folder.mkdir()
    if form == "jsonl":
        file = folder / "both.jsonl"
        file.write_text("".join(texts))
    else:
        file = folder / "both.sqlite"
        database = sqlite3.connect(file)
        for text in texts:
            database.executescript(text)
        database.close()
    head, _, *rows = compared(comparison_script, file)
    assert head[-4:] == ["Test", "t/s abc1234", "t/s def5678", "Speedup"]
    assert [row[-4:] for row in rows] == [
        ["pp64", "1000.00", "2000.00", "2.00"],
        ["tg4", "200.00", "400.00", "2.00"],
        ["tg4@d64", "200.00", "400.00", "2.00"],
    ]
