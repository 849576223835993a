"""Systems that tell less than Linux does: what can not be known is unknown, with its reason, and no more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from program import PROGRAM, scripted


def run(
    environment: dict[str, str], without: str, *arguments: str | Path
) -> subprocess.CompletedProcess[str]:
    """The command in an interpreter that lacks something."""
    code = f"{without}\nfrom profiler_cli.entry import main\nmain()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment | scripted({}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def saved(data_folder: Path) -> dict[str, Any]:
    (path,) = (data_folder / "runs").glob("*.json")
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_without_a_way_to_drop_pages_a_cold_load_is_not_claimed(
    environment: dict[str, str], tiny_llama: Path, data_folder: Path
) -> None:
    tiny_llama.read_bytes()  # in memory
    outcome = run(environment, "import os\ndel os.posix_fadvise", "profile", tiny_llama, "-p", "64", "--cold")
    assert outcome.returncode == 0, outcome.stderr
    assert {load["cache_state"] for load in saved(data_folder)["groups"][0]["loads"]} == {"warm"}
    assert "no way to let go of a file's pages" in " ".join(outcome.stdout.split())


_AS_ON_WINDOWS = """
import os, sys
del os.posix_fadvise
from probes import disturbance, machine, page_cache, worker
page_cache.sys = type("sys", (), {"platform": "win32"})
read, sampler = machine.read_machine_facts, disturbance.Sampler
machine.read_machine_facts = lambda: read(system="Windows")
from probes import conversation
conversation.Sampler = lambda pid, **given: sampler(pid, use_proc=False, **given)
"""


def test_with_the_answers_of_windows(
    environment: dict[str, str], tiny_llama: Path, data_folder: Path
) -> None:
    outcome = run(
        environment, _AS_ON_WINDOWS, "profile", tiny_llama, "-p", "64", "--cold", "--format", "json"
    )
    assert outcome.returncode == 0, outcome.stderr
    document = saved(data_folder)
    (group,) = document["groups"]
    assert {load["cache_state"] for load in group["loads"]} == {"unknown"}
    assert document["machine"]["memory_limit_bytes"] is None
    assert document["machine"]["unknown"]["memory_limit_bytes"] == "Windows has none"
    for one in document["disturbances"]:
        assert one["steal_fraction"] is None
        assert one["throttled_fraction"] is None
        assert one["cpu_clock_hz"] is None
    assert {row["status"] for row in json.loads(outcome.stdout)["rows"]} == {"ok"}


_HIDE = ("unshare", "--map-root-user", "--mount", "sh", "-c")


def _can_hide_proc() -> bool:
    try:
        trial = subprocess.run([*_HIDE, "mount -t tmpfs none /proc"], capture_output=True, check=False)
    except OSError:
        return False
    return trial.returncode == 0


@pytest.mark.skipif(not _can_hide_proc(), reason="needs a mount namespace of one's own")
@pytest.mark.parametrize(
    "command",
    ["profile MODEL -p 64 --cold", "diagnose MODEL -p 64 --no-ceilings", "doctor"],
)
def test_without_proc(environment: dict[str, str], tiny_llama: Path, command: str) -> None:
    line = f"mount -t tmpfs none /proc && {PROGRAM} {command.replace('MODEL', str(tiny_llama))}"
    outcome = subprocess.run(
        [*_HIDE, line], env=environment | scripted({}), capture_output=True, text=True, check=False
    )
    assert "Traceback" not in outcome.stderr
    assert outcome.returncode in (0, 1)
    if command == "doctor":
        assert "the system does not list its processes here" in " ".join(outcome.stdout.split())
    if command.startswith("profile"):
        assert "memory        unknown (Linux does not tell its memory here)" in outcome.stdout
