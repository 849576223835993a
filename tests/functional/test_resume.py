"""`llmphase profile --resume RUN`: only what an unfinished run lacks is measured."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from program import PROGRAM, TESTS, Command, scripted

if TYPE_CHECKING:
    from forked import Forks

Document = dict[str, Any]
FAST = {"prefill_ns": 1_000_000, "decode_ns": 5_000_000, "depth_ns": 0}


@pytest.fixture
def run_file(data_folder: Path) -> Callable[[], Path]:
    """The one saved run."""

    def find() -> Path:
        (found,) = (data_folder / "runs").glob("*.json")
        return found

    return find


@pytest.fixture(scope="module")
def crashed_run(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose cells of 600 and 700 tokens crashed; those of 0 and 100 are measured, one pass each."""
    folder = tmp_path_factory.mktemp("crashed")
    script = scripted(FAST | {"crash_at_position": 512})
    subprocess.run(
        [PROGRAM, "profile", tiny_llama, "-p", "0,100,600,700", "-n", "4", "-r", "1", "--threads", "3"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(TESTS), "LLMPHASE_DATA_DIR": str(folder)} | script,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    (found,) = (folder / "runs").glob("*.json")
    return found


@pytest.fixture
def crashed(crashed_run: Path, data_folder: Path) -> Path:
    """A copy of it, as the only saved run."""
    copy = data_folder / "runs" / crashed_run.name
    copy.parent.mkdir(parents=True)
    copy.write_bytes(crashed_run.read_bytes())
    return copy


def cells(document: Document) -> dict[int, Document]:
    return {cell["prompt_tokens"]: cell for cell in document["groups"][0]["cells"]}


def edit(path: Path, change: Callable[[Document], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_what_was_interrupted_goes_on(
    llmphase: Command,
    environment: dict[str, str],
    tiny_llama: Path,
    run_file: Callable[[], Path],
    data_folder: Path,
) -> None:
    process = subprocess.Popen(
        [PROGRAM, "profile", tiny_llama, "-p", "50,6000", "-n", "2", "-r", "2"],
        env=environment | scripted({"prefill_ns": 2_000_000}, "sleeping"),
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    end = time.monotonic() + 60
    while not any('"tail_ns"' in path.read_text() for path in (data_folder / "runs").glob("*.json")):
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    before = json.loads(run_file().read_text())
    assert not before["finished"]

    outcome = llmphase("profile", "--resume", "last", "--format", "json", script=FAST)
    assert outcome.returncode == 0, outcome.stderr
    assert "1 of 2 cells are measured" in outcome.stderr
    after = json.loads(run_file().read_text())
    assert after["finished"]
    assert after["run_id"] == before["run_id"]
    assert after["wall_ns"] > before["wall_ns"]
    # The pass that was there counts: one more makes the two that were asked for.
    assert cells(after)[50]["samples"][0] == cells(before)[50]["samples"][0]
    assert [len(cell["samples"]) for cell in cells(after).values()] == [2, 2]
    rows = json.loads(outcome.stdout)["rows"]
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["run_id"] for row in rows} == {before["run_id"]}


@contextmanager
def measuring(
    arguments: Sequence[str | Path], environment: dict[str, str], runs: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that goes on measuring and has saved a cell of 50 tokens or more."""
    process = subprocess.Popen(
        [PROGRAM, *arguments],
        env=environment | scripted({"prefill_ns": 2_000_000}, "sleeping"),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert process.stderr is not None
    try:
        assert process.stderr.readline()  # what it is going to do: a run that it resumes is its own by now
        end = time.monotonic() + 60
        while not any(_has_samples(path) for path in runs.glob("*.json")):
            assert time.monotonic() < end
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def _has_samples(path: Path) -> bool:
    return any(cell["samples"] for cell in json.loads(path.read_text())["groups"][0]["cells"])


def _refuse_second(llmphase: Command, path: Path) -> None:
    second = llmphase("profile", "--resume", "last", script=FAST)
    assert second.returncode == 3
    assert second.stderr.count("\n") == 1
    assert f"{path.stem} is being measured by another llmphase" in second.stderr
    assert second.stdout == ""
    assert not cells(json.loads(path.read_text()))[60_000]["samples"]


def test_a_run_that_is_being_measured_is_refused(
    llmphase: Command, environment: dict[str, str], tiny_llama: Path, run_file: Callable[[], Path]
) -> None:
    """Until its program ends, even by a kill: nothing has to be cleaned up by hand."""
    sweep = ("profile", tiny_llama, "-p", "50,60000", "-n", "2", "-r", "2", "--budget", "1h")
    runs = Path(environment["LLMPHASE_DATA_DIR"]) / "runs"
    with measuring(sweep, environment, runs) as first:
        _refuse_second(llmphase, run_file())
        first.kill()
        first.wait()
    with measuring(("profile", "--resume", "last"), environment, runs):
        _refuse_second(llmphase, run_file())
    outcome = llmphase("profile", "--resume", "last", script=FAST)
    assert outcome.returncode == 0, outcome.stderr
    assert {cell["status"] for cell in cells(json.loads(run_file().read_text())).values()} == {"ok"}


def test_other_runs_are_free_meanwhile(
    llmphase: Command, environment: dict[str, str], tiny_llama: Path, crashed: Path, data_folder: Path
) -> None:
    sweep = ("profile", tiny_llama, "-p", "50,60000", "-n", "2", "-r", "2", "--budget", "1h")
    with measuring(sweep, environment, data_folder / "runs"):
        assert llmphase("profile", "--resume", crashed.stem, script=FAST).returncode == 0


def test_without_locks_it_is_said(forks: Forks, crashed_run: Path) -> None:
    """A system, or a drive, that has none."""
    copy = forks.folder / "data" / "runs" / crashed_run.name
    copy.parent.mkdir(parents=True)
    copy.write_bytes(crashed_run.read_bytes())
    arguments = ["profile", "--resume", copy.stem]
    outcome = forks.run(arguments, without=("fcntl",), **scripted(FAST))
    assert outcome.code == 0, outcome.said
    (warning,) = (line for line in outcome.said.splitlines() if line.startswith("Warning: "))
    assert "can not be locked" in warning
    assert json.loads(copy.read_text())["finished"]


def test_only_what_is_missing_is_measured(llmphase: Command, crashed: Path) -> None:
    before = json.loads(crashed.read_text())
    outcome = llmphase("profile", "--resume", crashed.stem, "--format", "json", script=FAST)
    assert outcome.returncode == 0, outcome.stderr
    after = json.loads(crashed.read_text())
    for length in (0, 100):
        assert cells(after)[length] == cells(before)[length]
    for length in (600, 700):
        assert cells(before)[length]["status"] == "failed"
        assert len(cells(after)[length]["samples"]) == 1
    assert after["groups"][0]["settings"] == before["groups"][0]["settings"]
    rows = json.loads(outcome.stdout)["rows"]
    assert {row["status"] for row in rows} == {"ok"}  # tokenizing at the new lengths is measured, too
    assert {row["threads"] for row in rows} == {3}


def test_a_whole_run_is_only_reported(
    llmphase: Command, tiny_llama: Path, run_file: Callable[[], Path]
) -> None:
    assert llmphase("profile", tiny_llama, "-p", "64", "-r", "2", script=FAST).returncode == 0
    before = json.loads(run_file().read_text())["groups"]
    outcome = llmphase("profile", "--resume", "last", script=FAST | {"fail_load": "must not be loaded"})
    assert outcome.returncode == 0, outcome.stderr
    assert "1 of 1 cells are measured" in outcome.stderr
    assert "At 64 prompt" in outcome.stdout
    assert json.loads(run_file().read_text())["groups"] == before


def test_what_fails_again_stays_a_row_with_its_reason(llmphase: Command, crashed: Path) -> None:
    outcome = llmphase("profile", "--resume", "last", script=FAST | {"crash_at_position": 512})
    assert outcome.returncode == 0, outcome.stderr
    after = cells(json.loads(crashed.read_text()))
    assert [after[length]["status"] for length in (0, 100, 600, 700)] == ["ok", "ok", "failed", "failed"]
    assert after[700]["reason"].startswith("crash: ")


def other_cpu(document: Document) -> None:
    document["machine"]["cpu_name"] = "Another Processor"


def other_memory(document: Document) -> None:
    document["machine"]["memory_bytes"] //= 2


def other_engine(document: Document) -> None:
    document["engine"]["version"] = "scripted 0"


def other_device(document: Document) -> None:
    document["engine"]["devices"][0]["description"] = "another device"


def other_size(document: Document) -> None:
    document["groups"][0]["model"]["file_bytes"] += 1


def other_date(document: Document) -> None:
    document["groups"][0]["model"]["modified_at"] += 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_cpu, "cpu name Another Processor is now"),
        (other_memory, "memory bytes"),
        (other_engine, "engine version scripted 0 is now scripted 1"),
        (other_device, "devices CPU (another device) is now CPU (scripted device)"),
        (other_size, "bytes of tiny-llama.gguf"),
        (other_date, "tiny-llama.gguf was written to since"),
    ],
)
def test_what_changed_is_refused_unless_asked_for(
    llmphase: Command, crashed: Path, change: Callable[[Document], None], words: str
) -> None:
    edit(crashed, change)
    before = crashed.read_text()
    outcome = llmphase("profile", "--resume", "last", script=FAST)
    assert outcome.returncode == 2
    assert words in outcome.stderr
    assert "--anyway" in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1
    assert crashed.read_text() == before
    if change is other_engine:
        assert llmphase("profile", "--resume", "last", "--anyway", script=FAST).returncode == 0
        assert "resumed although it changed" in json.loads(crashed.read_text())["warnings"][-1]


def test_a_model_that_has_gone_is_one_line(llmphase: Command, crashed: Path, tiny_llama: Path) -> None:
    edit(crashed, lambda document: document["groups"][0]["model"].update(path=str(tiny_llama) + ".gone"))
    outcome = llmphase("profile", "--resume", "last", script=FAST)
    assert outcome.returncode in (2, 3)
    assert ".gone" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_a_new_budget_and_timeout_may_be_given(llmphase: Command, crashed: Path) -> None:
    outcome = llmphase(
        "profile", "--resume", "last", "--budget", "30s", "--cell-timeout", "9s", "--no-save", script=FAST
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "at most 30.0 s more" in outcome.stderr
    assert not json.loads(crashed.read_text())["groups"][0]["cells"][2]["samples"]  # --no-save


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("model.gguf",), "leave out MODEL"),
        (("-p", "64"), "leave out MODEL"),
        (("--threads", "2"), "leave out MODEL"),
        (("--cold",), "leave out MODEL"),
        (("--quant", "Q8_0"), "leave out MODEL"),
        (("--fail-over", "5%"), "--baseline"),
        (("-o", "report.xyz"), "ending"),
    ],
)
def test_wrong_use(llmphase: Command, crashed: Path, arguments: tuple[str, ...], words: str) -> None:
    before = crashed.read_text()
    outcome = llmphase("profile", "--resume", crashed.stem, *arguments)
    assert outcome.returncode == 2
    assert words in outcome.stderr
    assert crashed.read_text() == before


def test_without_a_run_there_is_nothing_to_resume(llmphase: Command) -> None:
    assert "no run is saved yet" in llmphase("profile", "--resume", "last").stderr


@pytest.mark.parametrize(
    "request_options",
    [("-p", "64", "-n", "16"), ("-p", "64", "-n", "16", "--cold"), ("--prompt", "my prompt.txt", "-n", "16")],
)
def test_a_diagnosis_is_not_resumed_and_the_line_says_how_to_repeat_it(
    llmphase: Command, tiny_llama: Path, tmp_path: Path, request_options: tuple[str, ...]
) -> None:
    (tmp_path / "my prompt.txt").write_text("words " * 40)
    command = ["diagnose", str(tiny_llama), *request_options]
    assert llmphase(*command, "--no-ceilings", script=FAST).returncode == 0
    outcome = llmphase("profile", "--resume", "last")
    assert outcome.returncode == 2
    assert f"`llmphase {shlex.join(command)}` again" in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    report = re.findall(r"`llmphase (report \S+)`", outcome.stderr)[0]
    assert llmphase(*report.split()).returncode == 0


def test_a_resumed_run_is_compared_with_a_baseline(llmphase: Command, crashed: Path) -> None:
    outcome = llmphase("profile", "--resume", "last", "--baseline", str(crashed), script=FAST)
    assert outcome.returncode == 0, outcome.stderr
    assert crashed.stem[:15] in outcome.stdout
