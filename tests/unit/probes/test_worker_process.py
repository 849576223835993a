"""What is said of a worker that was killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from probes import worker_process
from probes.worker_process import WorkerCrash, WorkerProcess

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")


@pytest.mark.parametrize(
    ("kills", "limit_bytes", "words"),
    [
        ([4, 5], 3 << 29, "(the system killed it for lack of memory; its control group may use 1.50 GiB)"),
        ([4, 5], None, "(the system killed it for lack of memory)"),
        ([4, 4], 3 << 29, "(killed from outside: most often the system ran out of memory)"),
        ([None, None], None, "(killed from outside: most often the system ran out of memory)"),
    ],
    ids=["by a limit", "by the whole system", "somebody killed it", "nothing counts"],
)
def test_a_kill_for_lack_of_memory_is_told_from_another(
    monkeypatch: pytest.MonkeyPatch, kills: list[int | None], limit_bytes: int | None, words: str
) -> None:
    monkeypatch.setenv("LLMPHASE_ENGINE", "fakes:scripted")
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[2])])
    counts = iter(kills)
    monkeypatch.setattr(worker_process, "oom_kills", lambda _folders: next(counts))
    monkeypatch.setattr(worker_process, "memory_limit_bytes", lambda _folders: limit_bytes)
    with WorkerProcess() as worker:
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerCrash) as crash:
            worker.receive(30)
    assert str(crash.value) == f"the measuring process was ended by SIGKILL {words}"
    assert crash.value.signal_name == "SIGKILL"
