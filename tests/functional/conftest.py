"""Runs the real command in real processes, on a scripted engine unless a test wants the real one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from program import PROGRAM, TESTS, Command, scripted
from tiny_models import write_tiny_llama

if TYPE_CHECKING:
    from forked import Forks


@pytest.fixture
def data_folder(tmp_path: Path) -> Path:
    """Where the command saves its runs."""
    return tmp_path / "data"


@pytest.fixture
def environment(data_folder: Path, tmp_path: Path) -> dict[str, str]:
    """Of the command: nothing of the person's own models or runs is in reach."""
    inherited = ("PATH", "LANG", "TMPDIR", "SYSTEMROOT", "OMP_WAIT_POLICY")
    kept = {name: os.environ[name] for name in inherited if name in os.environ}
    return kept | {
        "HOME": str(tmp_path),
        "LLMPHASE_DATA_DIR": str(data_folder),
        "PYTHONPATH": str(TESTS),
        "PYTHONIOENCODING": "utf-8",
    }


@pytest.fixture
def llmphase(environment: dict[str, str], tmp_path: Path) -> Command:
    """`llmphase(*arguments, script={...}, engine="scripted")` runs the command and returns its outcome.

    `script` chooses the scripted engine and what it does; without it the real engine runs.
    """

    def run(
        *arguments: str | Path,
        script: dict[str, Any] | None = None,
        engine: str = "scripted",
        timeout: float = 120,
        **extra: str,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, *arguments],
            env=environment | scripted(script, engine) | extra,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Forks:
    """The command without the time that an interpreter takes to start, in a folder that is its home."""
    pytest.importorskip("resource", reason="commands are forked")
    from forked import Forks

    return Forks.in_folder(tmp_path_factory.mktemp("forks"))


@pytest.fixture
def forked(
    request: pytest.FixtureRequest, llmphase: Command, environment: dict[str, str], tmp_path: Path
) -> Command:
    """As `llmphase`, in a fork where the system has them: for what does not depend on how an interpreter
    starts, of which a test of each kind is left to `llmphase`."""
    if not hasattr(os, "fork"):
        return llmphase
    forks: Forks = request.getfixturevalue("forks")

    def run(
        *arguments: str | Path, script: dict[str, Any] | None = None, **extra: str
    ) -> subprocess.CompletedProcess[str]:
        cache = {"LLMPHASE_CACHE_DIR": str(tmp_path / "cache")}
        outcome = forks.run(arguments, cwd=tmp_path, **(environment | cache | scripted(script) | extra))
        assert outcome.code is not None, f"{arguments} did not end"
        return subprocess.CompletedProcess(
            arguments, outcome.code, outcome.output.decode("utf-8"), outcome.said
        )

    return run


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small real model file."""
    return write_tiny_llama(tmp_path_factory.mktemp("models") / "tiny-llama.gguf")


@pytest.fixture
def rows(llmphase: Command) -> Callable[..., list[dict[str, Any]]]:
    """Rows of a successful `profile` on the scripted engine."""

    def measure(
        *arguments: str | Path, script: dict[str, Any] | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        outcome = llmphase("profile", *arguments, "--format", "json", script=script, **options)
        assert outcome.returncode == 0, outcome.stderr
        found = json.loads(outcome.stdout)["rows"]
        assert isinstance(found, list)
        return found

    return measure
