"""`llmphase diagnose --log` and `--facts`, as people call them."""

from __future__ import annotations

import gzip
import json
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from program import PROGRAM, Command

from probes.log_lines import MOST_CHARACTERS, read_log_lines
from reports.logs import read_log

OLLAMA = """\
>>> why is the sky blue
total duration:       44.732s
load duration:        40.2ms
prompt eval count:    9683 token(s)
prompt eval duration: 40.391s
prompt eval rate:     239.73 tokens/s
eval count:           70 token(s)
eval duration:        4.297s
eval rate:            16.29 tokens/s
"""


def run(llmphase: Command, *arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    outcome = llmphase("diagnose", *arguments)
    assert outcome.returncode == code, (outcome.returncode, outcome.stderr)
    assert "Traceback" not in outcome.stderr
    return outcome


def found(llmphase: Command, *arguments: str | Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run(llmphase, *arguments, "--format", "json").stdout)
    return document


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "ollama.log"
    path.write_text(OLLAMA, "utf-8")
    return path


def test_a_log_has_a_verdict(llmphase: Command, log: Path) -> None:
    document = found(llmphase, "--log", log)
    assert document["verdict"] == "prompt-bound"
    assert document["phases"]["prefill"] == pytest.approx(40.391)
    assert document["log"]["source"] == "ollama run --verbose"
    assert document["sources"]["prefill_s"] == "log"


def test_the_object_is_that_of_a_live_diagnosis(llmphase: Command, log: Path, tiny_llama: Path) -> None:
    live = llmphase(
        "diagnose", tiny_llama, "-p", "64", "-n", "4", "--no-ceilings", "--format", "json", script={}
    )
    assert live.returncode == 0, live.stderr
    assert list(json.loads(live.stdout)) == list(found(llmphase, "--log", log))


def test_standard_input_and_facts(llmphase: Command, environment: dict[str, str], tmp_path: Path) -> None:
    piped = subprocess.run(
        [PROGRAM, "diagnose", "--log", "-", "--format", "json"],
        input=OLLAMA,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(piped.stdout)["verdict"] == "prompt-bound"
    facts = tmp_path / "facts.json"
    facts.write_text('{"n_prompt": 9683, "prefill_s": 40.4, "n_output": 70, "decode_s": 4.3}')
    document = found(llmphase, "--facts", facts)
    assert document["verdict"] == "prompt-bound"
    assert document["sources"]["prefill_s"] == "reported"


def test_more_can_be_said_beside_a_log(forked: Command, log: Path, tiny_llama: Path) -> None:
    document = found(
        forked, "--log", log, "--gpu", "RTX 3090", "--model", tiny_llama, "--memory-bandwidth", "50GB/s"
    )
    assert document["evidence"]["gpu_memory_bytes"] == 24 * 2**30
    assert document["evidence"]["memory_bandwidth_bytes_s"] == 50e9
    assert document["sources"]["model_bytes"] == "header"
    assert "data-sheet" in {warning["code"] for warning in document["warnings"]}


def test_gates_hold_for_a_log(forked: Command, log: Path) -> None:
    assert "Gate not met" in run(forked, "--log", log, "--fail-on", "prompt-bound", code=1).stderr
    run(forked, "--log", log, "--max-wait", "60s")


def test_a_page_of_eighty_columns(forked: Command, log: Path) -> None:
    text = run(forked, "--log", log).stdout
    assert text.startswith("Prompt-bound")
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"just words\nand more\n", "no timing was found"),
        (bytes(range(256)) * 64 + b"\0" * 4096, "binary"),
        (b"GGUF\x03\x00\x00\x00", "--model"),
        (gzip.compress(OLLAMA.encode()), "zcat"),
    ],
)
def test_what_is_no_log(forked: Command, tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "odd"
    path.write_bytes(content)
    outcome = run(forked, "--log", path, code=2)
    assert words in outcome.stderr
    assert outcome.stdout == ""


def test_without_a_timing_each_runner_is_named(forked: Command, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("hello\n")
    stderr = run(forked, "--log", "x.log", code=2).stderr
    for runner in (
        "llama-cli",
        "llama-cpp-python",
        "llama-server",
        "ollama",
        "koboldcpp",
        "LM Studio",
        "llama-bench",
    ):
        assert runner in stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--log", "none.log"),
        ("--log", "ollama.log", "--facts", "x"),
        ("--log", "ollama.log", "-n", "5"),
        ("--log", "ollama.log", "--memory-bandwidth", "fast"),
        ("--log", "ollama.log", "--model", "none.gguf"),
        ("--gpu", "RTX 3090"),
        ("--facts", "ollama.log"),
    ],
)
def test_wrong_use(forked: Command, log: Path, arguments: tuple[str, ...]) -> None:
    assert log.exists()
    assert run(forked, *arguments, code=2).stderr.startswith("llmphase: ")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_what_other_shells_write(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(OLLAMA.replace("\n", "\r\n").encode(encoding))
    (request,) = read_log(read_log_lines(str(path))).requests
    assert request.facts["n_output"] == 70


def test_a_long_log_takes_no_more_memory(tmp_path: Path) -> None:
    """Twenty megabytes, one line of them longer than any program writes: a few are held."""
    path = tmp_path / "long.log"
    with path.open("w") as file:
        for _ in range(30):
            file.write("12:00:00 a line that tells nothing of interest, again and again\n" * 4000)
            file.write(OLLAMA)
        file.write("x" * (3 * MOST_CHARACTERS) + "\n" + OLLAMA)
    tracemalloc.start()
    log = read_log(read_log_lines(str(path)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert log.n_requests == 31
    assert log.n_lines == 30 * (4000 + 9) + 10
    assert peak < 60e6


def test_a_crash_in_the_middle_of_a_line_leaves_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\x00\x00\xff" + OLLAMA.encode() + b"total duration:   12.\xff\x00")
    assert read_log(read_log_lines(str(path))).n_requests == 1
