"""The engine fails, hangs, crashes or is killed: that costs a cell, never what was measured before."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from killing import Tally, kill_programs, kill_workers
from program import PROGRAM, Command, scripted

from probes import cgroups

LENGTHS = "100,600,700"
GIB = 2**30
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="children are found in /proc")


def cells(outcome: subprocess.CompletedProcess[str]) -> dict[int, dict[str, Any]]:
    """The prefill row of each length."""
    assert "Traceback" not in outcome.stderr
    rows = json.loads(outcome.stdout)["rows"]
    return {row["prompt_tokens"]: row for row in rows if row["phase"] == "prefill"}


def last(tallies: Iterator[Tally]) -> Tally:
    *_, tally = tallies
    return tally


@on_linux
def test_random_kills_of_workers_lose_nothing(
    environment: dict[str, str], tiny_llama: Path, tmp_path: Path
) -> None:
    tally = last(kill_workers(environment, tiny_llama, tmp_path / "data", 8, seed=7, most=6))
    assert tally.is_clean, tally
    assert tally.kills == 8
    assert tally.finished_cells > 0


@on_linux
def test_a_killed_program_leaves_no_worker_and_a_run_to_resume(
    environment: dict[str, str], tiny_llama: Path, tmp_path: Path
) -> None:
    tally = last(kill_programs(environment, tiny_llama, tmp_path / "data", 2, seed=7))
    assert tally.is_clean, tally
    assert tally.finished_cells > 0


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ({"crash_at_position": 512, "crash_signal": "SIGKILL"}, "crash: "),
        ({"hang_at_position": 512}, "stall: the engine gave no sign of life for 1 s"),
        ({"garbage_at_position": 512, "garbage": '{"is": "Loaded", "open_ns": "soon"}\n'}, "protocol: "),
        ({"garbage_at_position": 512, "garbage": "\0\xff{[\n"}, "protocol: "),
        ({"garbage_at_position": 512, "garbage": "x" * 2**16, "garbage_times": 1100}, "protocol: "),
        (
            {
                "garbage_at_position": 512,
                "garbage": '{"is": "CellMeasured", "prompt_tokens": 77, "sample": {"pass_index": 0,'
                ' "started_ns": 0, "head_ns": 0, "tail_ns": 0, "decode_ns": [1]}}\n',
            },
            "protocol: a sample at 77 tokens was not asked for",
        ),
    ],
    ids=["killed", "hangs", "wrong-fields", "binary", "endless-line", "unasked"],
)
def test_it_costs_the_cell_alone(
    llmphase: Command, tiny_llama: Path, tmp_path: Path, script: dict[str, Any], reason: str
) -> None:
    outcome = llmphase(
        "profile", tiny_llama, "-p", LENGTHS, "--cell-timeout", "1s", "--format", "json",
        script=script | {"only_once": str(tmp_path / "once")},
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr
    found = cells(outcome)
    assert [found[length]["status"] for length in (100, 600, 700)] == ["ok", "failed", "ok"]
    assert found[600]["reason"].startswith(reason)
    assert found[600]["reason"].endswith("(while measuring 600 prompt tokens)")
    assert found[100]["samples"] >= 3


def test_after_three_failures_in_a_row_the_rest_is_left_out_and_says_so(
    llmphase: Command, tiny_llama: Path
) -> None:
    outcome = llmphase(
        "profile", tiny_llama, "-p", "100,600,700,800,900,1000", "--format", "json",
        script={"crash_at_position": 512},
    )  # fmt: skip
    found = cells(outcome)
    assert [row["status"] for row in found.values()] == ["ok", *["failed"] * 3, *["skipped"] * 2]
    assert "the last of 3 failures in a row" in found[900]["reason"]
    assert found[100]["samples"] >= 3


def test_a_load_that_crashes_once_is_tried_again(llmphase: Command, tiny_llama: Path, tmp_path: Path) -> None:
    script = {"crash_in_load": True, "only_once": str(tmp_path / "once")}
    outcome = llmphase("profile", tiny_llama, "-p", "100", "--format", "json", script=script)
    assert cells(outcome)[100]["status"] == "ok"
    assert "Load: crash" in llmphase("report", "--format", "json").stdout


def test_a_load_that_hangs_is_given_up(llmphase: Command, tiny_llama: Path) -> None:
    outcome = llmphase(
        "profile", tiny_llama, "-p", "100", "--cell-timeout", "1s", script={"hang_in_load": True}
    )
    assert outcome.returncode == 3
    assert "stall: the engine gave no sign of life" in outcome.stderr


def test_a_hanging_diagnosis_ends_too(llmphase: Command, tiny_llama: Path) -> None:
    outcome = llmphase(
        "diagnose", tiny_llama, "-p", "600", "--no-ceilings", "--cell-timeout", "1s",
        script={"hang_at_position": 0},
    )  # fmt: skip
    words = " ".join(outcome.stdout.split())
    assert "Nothing was measured at 600 tokens: stall: the engine gave no sign of life for 1 s" in words


@pytest.mark.parametrize("text", ["0s", "500ms", "soon", "-1s"])
def test_timeouts_that_mean_nothing(llmphase: Command, tiny_llama: Path, text: str) -> None:
    outcome = llmphase("profile", tiny_llama, f"--cell-timeout={text}")
    assert outcome.returncode == 2
    assert outcome.stderr.startswith("llmphase: --cell-timeout: ")


# Memory, under a limit that the system really holds the processes to


def limited(
    environment: dict[str, str], limit_bytes: int, *arguments: str | Path, script: dict[str, Any] | None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "profile", *arguments],
        env=environment | scripted(script) | {"OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@on_linux
def test_a_worker_out_of_memory_costs_its_cells(environment: dict[str, str], tiny_llama: Path) -> None:
    script = {"allocate_at_position": 512, "allocate_bytes": 8 * GIB}
    outcome = limited(environment, 2 * GIB, tiny_llama, "-p", LENGTHS, "--format", "json", script=script)
    found = cells(outcome)
    assert [row["status"] for row in found.values()] == ["ok", "failed", "failed"]
    assert found[600]["reason"].startswith("memory: out of memory")


@on_linux
def test_the_real_engine_out_of_memory_is_a_row(environment: dict[str, str], tiny_llama: Path) -> None:
    # 1,500,160 tokens of cache take 1.43 GiB, and as much again to compute with.
    outcome = limited(
        environment, 2 * GIB, tiny_llama, "-p", "64", "-n", "4", "--ctx", "1500000", "--force", "--no-repack",
        "--format", "json", script=None,
    )  # fmt: skip
    assert outcome.returncode == 3
    found = cells(outcome)
    assert found[64]["status"] == "failed"
    assert "failed to allocate" in found[64]["reason"]


@on_linux
def test_what_can_not_fit_is_refused_before_the_load(
    environment: dict[str, str], tiny_llama: Path, data_folder: Path
) -> None:
    outcome = limited(environment, 2 * GIB, tiny_llama, "-p", "4000000", "-n", "4", script={})
    assert outcome.returncode == 3
    assert "the load needs 7.63 GiB of memory and 1." in outcome.stderr
    named = outcome.stderr.split("a context of ")[1].split()[0]
    assert not data_folder.exists()
    # The context that it names does fit.
    again = limited(
        environment, 2 * GIB, tiny_llama, "-p", "64", "-n", "4", "--ctx", named.replace(",", ""), script={}
    )
    assert again.returncode == 0, again.stderr


LIMIT_VARIABLE = "LLMPHASE_TEST_LIMIT"
_LIMIT = "systemd-run --scope --quiet -p MemoryMax=1G -p MemorySwapMax=0 -p Delegate=yes"


_JOIN = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


@pytest.fixture(scope="module")
def in_control_group() -> Iterator[list[str]]:
    """Words before a command that put it into a control group of 1 GiB, without swap, whose other processes
    go on when one is killed. Such a group is asked for; under version 1 an administrator's process makes one
    below its own, which that one does not notice."""
    words = shlex.split(os.environ.get(LIMIT_VARIABLE, _LIMIT + ("" if os.getuid() == 0 else " --user")))
    refused = _refused(words)
    if refused is None:
        yield words
        return
    group = None if LIMIT_VARIABLE in os.environ else _group_below_ours()
    if group is None:
        pytest.skip(f"no control group with a limit, {words[0]}: {refused}; see {LIMIT_VARIABLE}")
    try:
        yield ["sh", "-c", _JOIN, str(group)]
    finally:
        group.rmdir()


def _refused(words: list[str]) -> str | None:
    """Why a command can not be run behind these words."""
    try:
        tried = subprocess.run([*words, "true"], capture_output=True, text=True, timeout=30, check=False)
    except OSError as problem:
        return problem.strerror
    return str(tried.stderr.strip().splitlines()[:1]) if tried.returncode else None


def _group_below_ours() -> Path | None:
    """A new group with the limit, by version 1's files; None where there are none, or not for us."""
    own = next(iter(cgroups.groups("memory")), None)
    if own is None or not (own / "memory.limit_in_bytes").exists():
        return None
    group = own / f"limited-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        return None
    for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
        (group / name).write_text(str(GIB))
    return group


def in_group(
    words: list[str], environment: dict[str, str], *arguments: str | Path, script: dict[str, Any]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*words, PROGRAM, "profile", *arguments],
        env=os.environ | environment | scripted(script),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@on_linux
def test_a_control_groups_limit_refuses_what_can_not_fit(
    environment: dict[str, str], tiny_llama: Path, in_control_group: list[str]
) -> None:
    outcome = in_group(in_control_group, environment, tiny_llama, "-p", "2000000", script={})
    assert outcome.returncode == 3
    assert re.search(r"the load needs 3\.\d\d GiB of memory and \d{3}\.\d MiB", outcome.stderr), (
        outcome.stderr
    )


@on_linux
def test_a_control_groups_kill_costs_its_cells(
    environment: dict[str, str], tiny_llama: Path, in_control_group: list[str]
) -> None:
    script = {"allocate_at_position": 512, "allocate_bytes": 2 * GIB}
    arguments = (tiny_llama, "-p", LENGTHS, "--format", "json")
    outcome = in_group(in_control_group, environment, *arguments, script=script)
    found = cells(outcome)
    assert [row["status"] for row in found.values()] == ["ok", "failed", "failed"]
    assert "killed it for lack of memory; its control group may use 1.00 GiB" in found[600]["reason"]


@on_linux
def test_of_several_loads_only_what_can_not_fit_is_refused(
    environment: dict[str, str], tiny_llama: Path
) -> None:
    # 1.6 GiB with a cache of keys in f16, 2.0 GiB in f32.
    outcome = limited(
        environment, 2 * GIB, tiny_llama, "-p", "64", "-n", "4", "-r", "1", "--ctx", "820000",
        "--type-k", "f16,f32", "--format", "json", script={},
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr
    rows = [row for row in json.loads(outcome.stdout)["rows"] if row["phase"] == "prefill"]
    assert [(row["type_k"], row["status"]) for row in rows] == [("f16", "ok"), ("f32", "failed")]
    assert rows[1]["reason"].startswith("memory: the load needs 1.9")


def test_a_process_that_can_not_be_started_is_one_line(environment: dict[str, str], tiny_llama: Path) -> None:
    outcome = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PROCESSES, "profile", str(tiny_llama), "-p", "64"],
        env=environment | scripted({}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 3
    assert "no-process: the measuring process can not be started" in outcome.stderr
    assert "Traceback" not in outcome.stderr


_WITHOUT_PROCESSES = """
import errno, subprocess, sys
def refuse(*arguments, **options):
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
subprocess.Popen = refuse
from profiler_cli.entry import main
main()
"""


# A busy machine


_BUSY = "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass"


@on_linux
def test_passes_beside_a_busy_neighbour_are_labelled_and_repeated(
    llmphase: Command, tiny_llama: Path, data_folder: Path
) -> None:
    neighbour = subprocess.Popen([sys.executable, "-c", _BUSY])
    try:
        outcome = llmphase(
            "profile", tiny_llama, "-p", "100", "-n", "4", "--budget", "20s", "--format", "json",
            script={"prefill_ns": 2_000_000}, engine="sleeping",
        )  # fmt: skip
    finally:
        neighbour.kill()
        neighbour.wait()
    row = cells(outcome)[100]
    saved = json.loads(next((data_folder / "runs").glob("*.json")).read_text())
    samples = saved["groups"][0]["cells"][0]["samples"]
    labelled = [sample for sample in samples if "foreign-cpu" in sample["disturbed"]]
    assert len(samples) > 3
    assert len(labelled) > 3
    assert "disturbed" in row["warnings"]
    assert "passes ran while the machine was busy" in " ".join(llmphase("report").stdout.split())
