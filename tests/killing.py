"""Runs the real command on the scripted engine and kills its processes at random moments.

Used by a short seeded test and by the long run, `tests/benchmarks/kills.py`. Linux alone: children are
found in /proc.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from program import PROGRAM, scripted

LENGTHS = tuple(range(20, 260, 20))
SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT)
SCRIPT = {"prefill_ns": 200_000, "decode_ns": 2_000_000, "tensors_ns": 20_000_000, "tokenize_ns": 100_000}
"""A pass over all lengths takes about 0.4 s, a load a tenth of that."""
SWEEP = ("-p", ",".join(map(str, LENGTHS)), "-n", "4", "-r", "4", "--format", "json", "--quiet")
_DURING_LOAD = 0.25
_LOAD_S, _PASSES_S = 0.4, 1.0
_REASONS = ("crash", "budget")
WORKER_END_S = 2.0
"""A worker whose parent has gone has ended after so long."""

Samples = dict[int, list[dict[str, Any]]]
"""Of each prompt length, as they stand in the run file."""


@dataclasses.dataclass(kw_only=True)
class Tally:
    """What a number of kills came to."""

    kills: int = 0
    program_kills: int = 0
    lost_cells: int = 0
    finished_cells: int = 0
    """Cells that were finished and saved before a kill, over all kills."""
    failed_cells: int = 0
    orphans: int = 0
    half_files: int = 0
    without_reason: int = 0
    tracebacks: int = 0
    worker_ends_s: list[float] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        counts = (self.lost_cells, self.orphans, self.half_files, self.without_reason, self.tracebacks)
        return not any(counts) and not self.problems


def children(pid: int) -> list[int]:
    """Child processes, threads' children too."""
    found = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in listing.read_text().split()]
        except OSError:
            continue
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def samples_of(run_file: Path) -> Samples:
    """Raises ValueError for a file that is not whole."""
    cells = json.loads(run_file.read_text())["groups"][0]["cells"]
    return {cell["prompt_tokens"]: cell["samples"] for cell in cells if cell["samples"]}


def run_files(data: Path) -> list[Path]:
    return sorted((data / "runs").glob("*.json"))


def _unlabelled(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the label, that comes a moment after the sample."""
    return [{**sample, "disturbed": []} for sample in samples]


def _file() -> IO[str]:
    return tempfile.TemporaryFile(
        "w+", encoding="utf-8"
    )  # a pipe that nobody reads would hold the program up


def _text(file: IO[str]) -> str:
    file.seek(0)
    text = file.read()
    file.close()
    return text


class Sweep:
    """One run of the command, watched."""

    def __init__(self, environment: dict[str, str], model: Path, data: Path, tally: Tally) -> None:
        self._data = data
        self._tally = tally
        self._known: set[int] = set()
        self._earlier = set(run_files(data))
        self._saved: Samples = {}
        self._output, self._errors = _file(), _file()
        self._process = subprocess.Popen(
            [PROGRAM, "profile", model, *SWEEP],
            env=environment | {"LLMPHASE_DATA_DIR": str(data)} | scripted(dict(SCRIPT), "sleeping"),
            stdout=self._output,
            stderr=self._errors,
        )

    def kill_workers(self, draw: random.Random, most: int) -> None:
        """Kill up to `most` workers, each at a random moment of its life."""
        for _ in range(most):
            worker = self._next_worker()
            if worker is None:
                return
            self._wait_a_while(draw)
            self._remember()
            try:
                os.kill(worker, draw.choice(SIGNALS))
            except ProcessLookupError:
                continue  # it had done its work
            self._tally.kills += 1
            self._tally.finished_cells += len(self._saved)

    def kill_program(self, draw: random.Random) -> Path | None:
        """Kill the program itself; the file of its run, None where none was written yet."""
        if self._next_worker() is None:
            return None
        self._wait_a_while(draw)
        self._remember()
        workers = children(self._process.pid)
        began = time.monotonic()
        self._process.kill()
        self._process.wait()
        while any(map(is_running, workers)) and time.monotonic() - began < 10 * WORKER_END_S:
            time.sleep(0.01)
        self._tally.program_kills += 1
        self._tally.finished_cells += len(self._saved)
        self._tally.worker_ends_s.append(time.monotonic() - began)
        self._tally.orphans += sum(map(is_running, workers))
        self._check_saved()
        return next(iter(self._own_files()), None)

    def check_resumed(self, outcome: subprocess.CompletedProcess[str]) -> None:
        """What a later `--resume` of this run has printed and saved: all of it, and nothing lost."""
        if outcome.returncode != 0:
            self._tally.problems.append(f"--resume: {outcome.stderr.strip()[-300:]}")
            return
        self._check_saved()
        rows = json.loads(outcome.stdout)["rows"]
        if not all(row["status"] == "ok" for row in rows):
            self._tally.problems.append("--resume left cells open")

    def conclude(self) -> None:
        """Wait for the program's end and hold it to what it promises."""
        self._process.wait(120)
        output, errors = _text(self._output), _text(self._errors)
        self._tally.orphans += sum(map(is_running, self._known))
        self._tally.tracebacks += "Traceback" in errors
        if self._process.returncode not in (0, 3):
            self._tally.problems.append(f"exit code {self._process.returncode}: {errors.strip()[-300:]}")
            return
        self._check_saved()
        self._check_rows(json.loads(output)["rows"])

    def _check_rows(self, rows: list[dict[str, Any]]) -> None:
        prefill = {row["prompt_tokens"]: row for row in rows if row["phase"] == "prefill"}
        if set(prefill) != set(LENGTHS):
            self._tally.problems.append(f"rows of {sorted(prefill)} alone")
        for row in prefill.values():
            if row["status"] == "ok":
                continue
            self._tally.failed_cells += row["status"] == "failed"
            self._tally.without_reason += not (row["reason"] or "").startswith(_REASONS)

    def _check_saved(self) -> None:
        """All that was saved before is in the file now, and nothing half stands beside it."""
        try:
            now = {
                length: _unlabelled(found)
                for one in self._own_files()
                for length, found in samples_of(one).items()
            }
        except ValueError:
            self._tally.half_files += 1
            return
        for length, samples in self._saved.items():
            if now.get(length, [])[: len(samples)] != samples:
                self._tally.lost_cells += 1

    def _own_files(self) -> list[Path]:
        return [path for path in run_files(self._data) if path not in self._earlier]

    def _remember(self) -> None:
        try:
            for path in self._own_files():
                self._saved = {length: _unlabelled(found) for length, found in samples_of(path).items()}
        except ValueError:
            self._tally.half_files += 1

    def _wait_a_while(self, draw: random.Random) -> None:
        """Into the start or the load of a worker, or, three times of four, into what it measures."""
        if draw.random() < _DURING_LOAD:
            time.sleep(draw.uniform(0, _LOAD_S))
            return
        before = self._written()
        while self._written() == before and self._process.poll() is None:
            time.sleep(0.005)  # a run is saved once its model is loaded
        time.sleep(draw.uniform(0, _PASSES_S))

    def _written(self) -> list[int]:
        return [path.stat().st_mtime_ns for path in self._own_files()]

    def _next_worker(self) -> int | None:
        """A worker not seen before; None when the program ends without one more."""
        while self._process.poll() is None:
            for worker in children(self._process.pid):
                if worker not in self._known and is_running(worker):
                    self._known.add(worker)
                    return worker
            time.sleep(0.005)
        return None


def kill_workers(
    environment: dict[str, str], model: Path, data: Path, kills: int, seed: int, *, most: int = 4
) -> Iterator[Tally]:
    """Sweeps in which up to `most` workers are killed, until there were `kills`; the tally after each."""
    draw, tally = random.Random(seed), Tally()
    while tally.kills < kills:
        sweep = Sweep(environment, model, data, tally)
        sweep.kill_workers(draw, min(draw.randint(1, most), kills - tally.kills))
        sweep.conclude()
        tally.half_files += len(list((data / "runs").glob(".*.tmp")))
        yield tally


def kill_programs(
    environment: dict[str, str], model: Path, data: Path, kills: int, seed: int
) -> Iterator[Tally]:
    """Sweeps whose program is killed, each resumed then; the tally after each."""
    draw, tally = random.Random(seed), Tally()
    while tally.program_kills < kills:
        sweep = Sweep(environment, model, data, tally)
        run = sweep.kill_program(draw)
        if run is not None:
            sweep.check_resumed(_resume(environment, data, run))
        yield tally


def _resume(environment: dict[str, str], data: Path, run: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "profile", "--resume", run.stem, "--format", "json", "--quiet"],
        env=environment | {"LLMPHASE_DATA_DIR": str(data)} | scripted(dict(SCRIPT), "sleeping"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
