"""Run files as they may be found: of earlier versions, damaged, from other machines; and folders in which
none can be saved."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sample_runs as sample
from program import PROGRAM, Command, scripted

from probes.records import SCHEMA_VERSION
from probes.run_files import MAX_FILE_BYTES, dump
from probes.run_lock import LOCK_NAME

if TYPE_CHECKING:
    from forked import Forks, Outcome

RUNS = Path(__file__).parents[1] / "data" / "runs"
RUN_ID = "20261130T205545Z-1a2b3c"


@pytest.fixture
def saved(forks: Forks) -> Iterator[Path]:
    """The folder of runs, empty before and after."""
    folder = forks.folder / "data" / "runs"
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


def done(outcome: Outcome) -> str:
    assert outcome.code == 0, outcome.said
    return outcome.output.decode()


def prefill_s(table: str) -> dict[int, float]:
    """Prompt length -> median prefill, of a CSV report."""
    rows = csv.DictReader(io.StringIO(table))
    return {int(row["prompt_tokens"]): float(row["median_s"]) for row in rows if row["phase"] == "prefill"}


# Earlier versions


def test_a_file_of_every_earlier_version_is_kept() -> None:
    assert {path.name for path in RUNS.glob("*.json")} == {
        f"schema-{version}.json" for version in range(1, SCHEMA_VERSION)
    }


def test_a_run_of_version_1_is_read_by_every_command(forks: Forks, saved: Path) -> None:
    shutil.copyfile(RUNS / "schema-1.json", saved / "20261201T012852Z-713a45.json")
    # Its only pass: 779,844,372 ns at 32 tokens, 2,380,264,606 ns at 64 and 2,045,343,850 ns at 72.
    measured = {32: 0.779844372, 64: 2.380264606, 72: 2.04534385}
    assert prefill_s(done(forks.run(["report", "--format", "csv"]))) == pytest.approx(measured)
    assert "Q4_1" in done(forks.run(["runs"]))
    assert "Q4_1" in done(forks.run(["history"]))
    assert "No change is shown" in done(forks.run(["compare", "last", "last"]))
    assert "64 tokens" in done(forks.run(["diagnose", "--run", "last", "-p", "64", "-n", "8"]))
    done(forks.run(["runs", "--export", "all.csv"]))
    assert prefill_s((forks.folder / "all.csv").read_text()) == pytest.approx(measured)


# Files that are no whole run of this version


def changed(**changes: Any) -> bytes:
    return json.dumps(json.loads(dump(sample.run())) | changes).encode()


def with_cell(**changes: Any) -> bytes:
    """The first cell changed."""
    document = json.loads(dump(sample.run()))
    document["groups"][0]["cells"][0].update(changes)
    return json.dumps(document).encode()


WHOLE = dump(sample.run()).encode()
BAD_FILES = {
    "empty": (b"", "is empty"),
    "zeros": (bytes(5000), "nor output of llama-bench"),
    "cut in the middle": (WHOLE[: len(WHOLE) // 2], "cut short"),
    "cut at its end": (WHOLE[:-3], "cut short"),
    "twice": (WHOLE + WHOLE, "not whole JSON"),
    "newer": (changed(schema_version=SCHEMA_VERSION + 1), "pip install --upgrade llmphase"),
    "version 0": (changed(schema_version=0), "schema_version"),
    "version as text": (changed(schema_version="1"), "schema_version"),
    "groups a number": (changed(groups=7), "groups: expected a list"),
    "machine a list": (changed(machine=[]), "machine: expected an object"),
    "a tenth of a token": (with_cell(prompt_tokens=0.1), "groups[0].cells[0].prompt_tokens"),
    "a negative length": (with_cell(prompt_tokens=-8), "groups[0].cells[0].prompt_tokens"),
    "a length beyond the engine": (with_cell(prompt_tokens=2**62), "groups[0].cells[0].prompt_tokens"),
    "another status": (with_cell(status="\x1b[31mfine"), "groups[0].cells[0].status"),
    "no samples": (with_cell(samples=None), "groups[0].cells[0].samples"),
    "deep": (b'{"run_id": ' + b"[" * 100_000, "nest|no run file|neither a saved run"),
    "a long number": (b'{"run_id": ' + b"9" * 100_000 + b"}", "number|neither a saved run"),
}


@pytest.mark.parametrize(("content", "words"), BAD_FILES.values(), ids=BAD_FILES)
def test_other_files_are_refused_with_what_is_wrong(
    forks: Forks, saved: Path, content: bytes, words: str
) -> None:
    path = saved / f"{RUN_ID}.json"
    path.write_bytes(content)
    for command in (["report", RUN_ID], ["compare", RUN_ID, RUN_ID], ["report", str(path)]):
        outcome = forks.run(command)
        assert outcome.code == 2, outcome
        assert re.search(words.replace("[", r"\[") if "|" not in words else words, outcome.said)
        assert len(outcome.said.splitlines()) == 1
        assert f"{RUN_ID}.json" in outcome.said
    assert RUN_ID in done(forks.run(["runs"]))
    assert forks.run(["history"]).code == 2
    assert forks.run(["diagnose", "--run", RUN_ID, "-p", "8"]).code == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no limits on memory")
def test_a_huge_file_is_refused_unread(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    path.touch()
    os.truncate(path, MAX_FILE_BYTES + 1)  # zeros that take no room
    command = shlex.join(map(str, [PROGRAM, "report", path]))
    outcome = subprocess.run(
        ["bash", "-c", f"ulimit -v {MAX_FILE_BYTES * 3 // 2 // 1024}; exec {command}"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 2, outcome.stderr
    assert "run files end at 256 MiB" in outcome.stderr


def test_what_was_refused_as_newer_is_read_once_it_can_be(forks: Forks, saved: Path) -> None:
    """The index of runs must not go on saying what was true of an earlier file."""
    path = saved / f"{RUN_ID}.json"
    path.write_bytes(changed(schema_version=SCHEMA_VERSION + 1))
    assert "can not be read" in done(forks.run(["runs"]))
    times = path.stat()
    path.write_bytes(changed(schema_version=SCHEMA_VERSION))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "can not be read" not in done(forks.run(["runs"]))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_run_from_windows_is_read(forks: Forks, saved: Path, encoding: str) -> None:
    model = r"C:\Users\Zoë\models\tiny model.gguf"
    run = sample.run(
        sample.group(facts=sample.model(path=model, files=(model,))),
        machine=sample.machine(os="Windows 11 AMD64", cpu_name=None, swap_used_bytes=None),
    )
    (saved / f"{RUN_ID}.json").write_text(dump(run).replace("\n", "\r\n"), encoding=encoding)
    report = done(forks.run(["report"]))
    assert "Windows 11" in report
    assert "SmolLM2" in done(forks.run(["runs"]))
    assert (
        "last" not in forks.run(["profile", "-p", "8", "--no-save"], longest_s=1).said
    )  # no such model here


# Saving


def test_two_programs_at_once_save_two_whole_runs(
    environment: dict[str, str], tiny_llama: Path, data_folder: Path
) -> None:
    script = {"prefill_ns": 200_000, "decode_ns": 500_000, "tensors_ns": 1_000_000}
    command = [PROGRAM, "profile", tiny_llama, "-p", "8,16,24,32,40", "-n", "2", "-r", "9", "-o"]
    programs = [
        subprocess.Popen(
            [*command, data_folder.parent / f"{number}.csv"],
            env=environment | scripted(script, "sleeping"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for number in range(2)
    ]
    for program in programs:
        _, errors = program.communicate(timeout=120)
        assert program.returncode == 0, errors
    files = sorted((data_folder / "runs").glob("[!.]*"))
    ids = {json.loads(path.read_text())["run_id"] for path in files}
    written = {
        next(csv.DictReader((data_folder.parent / f"{number}.csv").open()))["run_id"] for number in range(2)
    }
    assert ids == written == {path.stem for path in files}
    assert len(ids) == 2


def not_saved(outcome: subprocess.CompletedProcess[str]) -> str:
    """The warning of a run that was measured and not saved."""
    assert outcome.returncode == 0, outcome.stderr
    assert prefill_s(outcome.stdout) == pytest.approx({8: 0.008})
    warnings = [line for line in outcome.stderr.splitlines() if "was not saved" in line]
    assert warnings
    assert "Traceback" not in outcome.stderr
    assert "Run saved" not in outcome.stderr
    return warnings[-1]


PROFILE = ("profile", "-p", "8", "-n", "2", "-r", "5", "--format", "csv")


def test_a_limit_on_the_size_of_files_costs_the_saving_alone(
    llmphase: Command, environment: dict[str, str], tiny_llama: Path, data_folder: Path
) -> None:
    command = shlex.join(map(str, [PROGRAM, *PROFILE, tiny_llama]))
    outcome = subprocess.run(
        ["bash", "-c", f"ulimit -f 1; exec {command}"],  # in blocks of 1024 bytes
        env=environment | scripted({}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "larger than is allowed" in not_saved(outcome)
    assert [path.name for path in (data_folder / "runs").iterdir()] == [LOCK_NAME]
    assert "No run is saved yet" in llmphase("runs").stderr


Mounted = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def mounted(environment: dict[str, str], tmp_path: Path) -> Mounted:
    """`mounted(options, *arguments)` runs the command in a file system of its own at `mnt`, so mounted;
    what lies in `mnt` before is copied into it."""
    place = tmp_path / "mnt"
    place.mkdir()

    def run(options: str, *arguments: str | Path, **extra: str) -> subprocess.CompletedProcess[str]:
        where = shlex.quote(str(place))
        lines = [
            f"cp -r {where} {where}-before",
            f"mount -t tmpfs -o size=1m tmpfs {where}",
            f"cp -r {where}-before/. {where}",
            f"mount -o remount,{options} {where}",
            f"exec {shlex.join(map(str, [PROGRAM, *arguments]))}",
        ]
        return subprocess.run(
            [*_unshare(), "sh", "-c", " && ".join(lines)],
            env=environment | {"LLMPHASE_DATA_DIR": str(place)} | scripted({}) | extra,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def _unshare() -> list[str]:
    command = ["unshare", "-m"] if hasattr(os, "geteuid") and os.geteuid() == 0 else ["unshare", "-rm"]
    if not sys.platform.startswith("linux") or not shutil.which("unshare"):
        pytest.skip("no mounts of one's own here")
    if subprocess.run([*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False).returncode:
        pytest.skip("no right to mount here")
    return command


def test_a_folder_that_is_read_only(mounted: Mounted, tiny_llama: Path, tmp_path: Path) -> None:
    assert "read-only" in not_saved(mounted("ro", *PROFILE, tiny_llama))
    (tmp_path / "mnt" / "runs").mkdir()
    (tmp_path / "mnt" / "runs" / f"{RUN_ID}.json").write_bytes(WHOLE)
    shutil.rmtree(tmp_path / "mnt-before")
    assert RUN_ID in mounted("ro", "runs").stdout  # without an index
    shutil.rmtree(tmp_path / "mnt-before")
    removal = mounted("ro", "runs", "--prune", "--keep", "0")
    assert removal.returncode == 3
    assert "can not be removed: Read-only file system" in removal.stderr


def test_a_folder_that_is_full(mounted: Mounted, tiny_llama: Path, tmp_path: Path) -> None:
    (tmp_path / "mnt" / "full").write_bytes(bytes(2**20 - 8 * 2**10))
    assert "no space is left" in not_saved(mounted("rw", *PROFILE, tiny_llama))


def test_variants_on_a_full_disk(mounted: Mounted, tiny_llama: Path, tmp_path: Path) -> None:
    variables = {"LLMPHASE_CACHE_DIR": str(tmp_path / "mnt"), "LLMPHASE_ENGINE": ""}
    outcome = mounted("rw", *PROFILE, tiny_llama, "--quant", "Q8_0", **variables)
    assert outcome.returncode == 3
    assert "make room" in outcome.stderr.splitlines()[-1]
