"""Damaged model files through the real command: it must refuse each with one clear line, or measure it.

python tests/benchmarks/fuzz_headers.py [--cases 20000] [--first 0] [--engine-every 20] [--folder FOLDER]

Each case is a file damaged by `tests/mutations.py`, from the demo model and generated ones, given to
`llmphase profile` in a process of its own: on a scripted engine and with its address space limited to 1 GiB
first, and every N-th of the files that were measured again on the real engine. Wanted of every case: the
exit code 2 or 3 with one line on standard error, or 0; no traceback, nothing over 10 s, no file that is
refused for its header over 1 GiB of memory. Ends with exit code 1 where a case broke that; the file is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

import mutations
import tiny_models

from probes.model_sources import resolve_models
from profiler_cli import entry

LIMIT_BYTES = 1 << 30
LONGEST_S = 10.0
PATIENCE_S = 60.0
OPTIONS = ("-p", "8", "-n", "2", "-r", "1", "--budget", "5s", "--no-repack", "--no-save", "--quiet")
GENERATED = (
    *(tiny_models.write_tiny_llama, tiny_models.write_tiny_moe, tiny_models.write_tiny_sliding_window),
    *(tiny_models.write_tiny_recurrent, tiny_models.write_tiny_hybrid, tiny_models.write_encoder),
    *(tiny_models.write_projector, tiny_models.write_vocabulary_only, tiny_models.write_adapter),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one command did."""

    code: int | None
    """None: it did not end."""
    output: bytes
    errors: bytes
    wall_s: float
    memory_bytes: int
    """Peak resident memory of the command and of the processes that it started."""

    def problem(self) -> str | None:
        """What is wrong with it; None: all is well."""
        if self.code is None or self.wall_s > LONGEST_S:
            return f"took {self.wall_s:.1f} s"
        if self.code not in (0, 2, 3):
            return f"exit code {self.code}"
        if self.code == 2 and self.memory_bytes > LIMIT_BYTES:
            return f"took {self.memory_bytes >> 20} MiB"
        text = self.errors.decode("utf-8", "replace")
        if "Traceback" in text:
            return "a traceback"
        return self._unclear(text)

    def _unclear(self, text: str) -> str | None:
        lines = text.splitlines()
        if self.code and (len(lines) != 1 or not lines[0].startswith("llmphase: ")):
            return f"{len(lines)} lines on standard error"
        if any(unicodedata.category(char) in ("Cc", "Cf") for line in lines for char in line):
            return "control characters on standard error"
        return "a report of nothing" if self.code == 2 and self.output else None


class Runner:
    """Runs the command in forks of this process, where everything it needs is imported already."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {"LLMPHASE_DATA_DIR": str(folder / "data"), "COLUMNS": "80", "HOME": str(folder)}
        import profiler_cli.app
        import profiler_cli.measuring
        import reports.report  # noqa: F401 - so that no fork has to

    def run(self, path: Path, *, scripted: bool) -> Outcome:
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            self._command(path, scripted=scripted)
        code, usage = self._wait(pid, began + PATIENCE_S)
        return Outcome(
            code=code,
            output=(self._folder / "output").read_bytes(),
            errors=(self._folder / "errors").read_bytes(),
            wall_s=time.monotonic() - began,
            memory_bytes=usage.ru_maxrss * 1024,
        )

    def _command(self, path: Path, *, scripted: bool) -> None:
        """The child: never returns."""
        code: object = 1
        try:
            os.setsid()
            for number, name in ((1, "output"), (2, "errors")):
                os.dup2(os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            os.environ.update(self._environment)
            if scripted:
                os.environ.update(LLMPHASE_ENGINE="fakes:scripted", PYTHONPATH=sys.path[0])
                resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
            sys.argv = ["llmphase", "profile", str(path), *OPTIONS]
            entry.main()
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
            os._exit(code if isinstance(code, int) else 1)

    def _wait(self, pid: int, end: float) -> tuple[int | None, resource.struct_rusage]:
        while time.monotonic() < end:
            done, status, usage = os.wait4(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status), usage
            time.sleep(0.002)
        os.killpg(pid, signal.SIGKILL)
        return None, os.wait4(pid, 0)[2]


@dataclasses.dataclass(slots=True)
class Figures:
    """What all cases together gave."""

    cases: int = 0
    refused: int = 0
    failed: int = 0
    measured: int = 0
    engine_cases: int = 0
    engine_refused: int = 0
    longest_s: float = 0.0
    most_memory_bytes: int = 0
    """Of refused files."""
    problems: list[str] = dataclasses.field(default_factory=list)

    def take(self, outcome: Outcome) -> None:
        self.cases += 1
        self.refused += outcome.code == 2
        self.failed += outcome.code == 3
        self.measured += outcome.code == 0
        self.longest_s = max(self.longest_s, outcome.wall_s)
        if outcome.code == 2:
            self.most_memory_bytes = max(self.most_memory_bytes, outcome.memory_bytes)

    def take_engine(self, outcome: Outcome) -> None:
        self.engine_cases += 1
        self.engine_refused += outcome.code == 3
        self.longest_s = max(self.longest_s, outcome.wall_s)

    def text(self) -> str:
        lines = [
            f"{self.cases:,} damaged files: {self.refused:,} refused (2), {self.failed:,} not measurable (3), "
            f"{self.measured:,} measured (0)",
            f"again on the real engine: {self.engine_cases:,}, of these {self.engine_refused:,} ended with 3",
            f"longest {self.longest_s:.1f} s; most memory of a refused one "
            f"{self.most_memory_bytes / 2**20:.0f} MiB",
            f"problems: {len(self.problems)}",
            *(f"  {problem}" for problem in self.problems),
        ]
        return "\n".join(lines)


def seeds(folder: Path) -> Iterator[mutations.Seed]:
    """The demo's header where it is installed, and generated files of all kinds."""
    for write in GENERATED:
        yield mutations.seed_of(write(folder / f"{write.__name__.removeprefix('write_')}.gguf"))
    with contextlib.suppress(Exception):
        demo = resolve_models(["demo"], environment=os.environ)[0].path
        yield mutations.seed_of(demo, whole=False)


def fuzz(folder: Path, cases: Iterator[mutations.Case], engine_every: int, kept: Path) -> Figures:
    """Run the cases; files that broke a promise are copied to `kept`."""
    figures, runner = Figures(), Runner(folder)
    path = folder / "damaged.gguf"
    for number, case in enumerate(cases):
        case.write(path)
        outcome = _twice_if_slow(runner, path, scripted=True)
        figures.take(outcome)
        _judge(figures, case, outcome, path, kept / f"{number}.gguf")
        if outcome.code == 0 and engine_every and figures.measured % engine_every == 0:
            outcome = _twice_if_slow(runner, path, scripted=False)
            figures.take_engine(outcome)
            _judge(figures, case, outcome, path, kept / f"{number}-engine.gguf")
    return figures


def _twice_if_slow(runner: Runner, path: Path, *, scripted: bool) -> Outcome:
    """A busy machine can make anything slow once."""
    outcome = runner.run(path, scripted=scripted)
    return runner.run(path, scripted=scripted) if outcome.wall_s > LONGEST_S else outcome


def _judge(figures: Figures, case: mutations.Case, outcome: Outcome, path: Path, copy: Path) -> None:
    problem = outcome.problem()
    if problem is None:
        return
    copy.parent.mkdir(parents=True, exist_ok=True)
    if path.stat().st_blocks * 512 < 1 << 28:
        shutil.copyfile(path, copy)
    said = outcome.errors.decode("utf-8", "replace")[-300:]
    figures.problems.append(f"{problem}: {case.seed}, {'; '.join(case.changes)}; kept as {copy}; {said!r}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--engine-every", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=Path("fuzz-problems"))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="llmphase-fuzz-") as name:
        good = list(seeds(Path(name)))
        cases = mutations.damaged(good, asked.first, asked.cases)
        figures = fuzz(Path(name), cases, asked.engine_every, asked.folder)
    print(json.dumps(dataclasses.asdict(figures)) if asked.json else figures.text())
    return 1 if figures.problems else 0


if __name__ == "__main__":
    sys.exit(main())
