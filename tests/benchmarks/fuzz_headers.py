"""Damaged model files through the real command: it must refuse each with one clear line, or measure it.

PYTHONPATH=tests python tests/benchmarks/fuzz_headers.py [--cases 20000] [--first 0] [--measure-every 4]
                                                         [--engine-every 5] [--folder FOLDER] [--json]

Each case is a file damaged by `tests/mutations.py`, from the demo model and generated ones, given to
`llmphase profile` in a process of its own with its address space limited to 1 GiB. Beside it stands a model
that is not there, so that a file whose damage its header does not show ends the command, too. Every 4th of
those is then measured on a scripted engine, and every 5th of these again on the real engine. Wanted of every
case: the exit code 2 or 3 with one line on standard error, or 0 with a report; no traceback, no control
character, no answer later than after 10 s (60 s on the real engine, which reads a hostile vocabulary in its
own time). Ends with exit code 1 where a case broke that; such a file is kept.
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

import mutations
import tiny_models

from probes.errors import LlmphaseError
from probes.model_sources import resolve_models
from profiler_cli import entry

TESTS_FOLDER = Path(__file__).parents[1]
LIMIT_BYTES = 1 << 30
LONGEST_S = {"header": 10.0, "scripted": 10.0, "real": 60.0}
ABSENT = "absent.gguf"
OPTIONS = ("-p", "8", "-n", "2", "-r", "1", "--budget", "5s", "--no-repack", "--no-save", "--quiet")
GENERATED = (
    *(tiny_models.write_tiny_llama, tiny_models.write_tiny_moe, tiny_models.write_tiny_sliding_window),
    *(tiny_models.write_tiny_recurrent, tiny_models.write_tiny_hybrid, tiny_models.write_encoder),
    *(tiny_models.write_projector, tiny_models.write_vocabulary_only, tiny_models.write_adapter),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one command did."""

    engine: str
    """`header`: none was needed."""
    code: int | None
    """None: it did not end in time."""
    output: bytes
    errors: bytes
    wall_s: float
    memory_bytes: int
    """Peak resident memory of the command and of the processes that it started."""

    @property
    def was_accepted(self) -> bool:
        """The damaged file was believed: the absent one was complained of."""
        return self.code == 2 and f"no file {ABSENT}" in self.errors.decode("utf-8", "replace")

    def problem(self) -> str | None:
        """What is wrong with it; None: all is well."""
        if self.code is None:
            return f"took {self.wall_s:.1f} s"
        if self.code not in (0, 2, 3):
            return f"exit code {self.code}"
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
        self._import_all()

    def _import_all(self) -> None:
        """One command here, so that no fork has to import anything."""
        from profiler_cli import app, measuring
        from reports import report

        assert measuring
        assert report
        with contextlib.suppress(LlmphaseError):
            app.run(["profile", ABSENT, *OPTIONS])

    def header(self, path: Path) -> Outcome:
        """The command as far as the file's header decides."""
        return self._run("header", [str(path), ABSENT], LIMIT_BYTES)

    def scripted(self, path: Path) -> Outcome:
        """The whole command; the engine does nothing."""
        variables = {"LLMPHASE_ENGINE": "fakes:scripted", "PYTHONPATH": str(TESTS_FOLDER)}
        return self._run("scripted", [str(path)], LIMIT_BYTES, **variables)

    def real(self, path: Path) -> Outcome:
        """The whole command; what the engine may use is its own affair."""
        return self._run("real", [str(path)], None)

    def _run(self, engine: str, models: list[str], limit_bytes: int | None, **extra: str) -> Outcome:
        """A busy machine can make anything slow once: such a case is run a second time."""
        outcome = self._run_once(engine, models, limit_bytes, extra)
        return outcome if outcome.code is not None else self._run_once(engine, models, limit_bytes, extra)

    def _run_once(
        self, engine: str, models: list[str], limit_bytes: int | None, extra: dict[str, str]
    ) -> Outcome:
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            self._command(models, limit_bytes, extra)
        code, usage = self._wait(pid, began + LONGEST_S[engine])
        return Outcome(
            engine=engine,
            code=code,
            output=(self._folder / "output").read_bytes(),
            errors=(self._folder / "errors").read_bytes(),
            wall_s=time.monotonic() - began,
            memory_bytes=usage.ru_maxrss * 1024,
        )

    def _command(self, models: list[str], limit_bytes: int | None, extra: dict[str, str]) -> None:
        """The child: never returns."""
        code: object = 1
        try:
            os.setsid()
            for number, name in ((1, "output"), (2, "errors")):
                os.dup2(os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            os.environ.update(self._environment | extra)
            if limit_bytes is not None:
                resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
            sys.argv = ["llmphase", "profile", *models, *OPTIONS]
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
    """By their headers."""
    measured: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    """Engine -> exit code -> cases, of files that were not refused."""
    longest_s: dict[str, float] = dataclasses.field(default_factory=dict)
    """Engine -> the longest that a command took."""
    most_memory_bytes: int = 0
    """Of the command before an engine is asked for."""
    problems: list[str] = dataclasses.field(default_factory=list)

    def take(self, outcome: Outcome) -> None:
        longest_s = self.longest_s.get(outcome.engine, 0.0)
        self.longest_s[outcome.engine] = max(longest_s, outcome.wall_s)
        if outcome.engine == "header":
            self.cases += 1
            self.refused += not outcome.was_accepted
            self.most_memory_bytes = max(self.most_memory_bytes, outcome.memory_bytes)
        else:
            codes = self.measured.setdefault(outcome.engine, {})
            codes[str(outcome.code)] = codes.get(str(outcome.code), 0) + 1

    def text(self) -> str:
        measured = [
            f"{sum(codes.values()):,} of the others on the {engine} engine, longest"
            f" {self.longest_s[engine]:.1f} s; exit codes "
            + ", ".join(f"{code}: {count:,}" for code, count in sorted(codes.items()))
            for engine, codes in self.measured.items()
        ]
        header_s = self.longest_s.get("header", 0.0)
        lines = [
            f"{self.cases:,} damaged files",
            f"{self.refused:,} refused by their headers, longest {header_s:.1f} s",
            *measured,
            f"most memory until an engine is asked for: {self.most_memory_bytes / 2**20:.0f} MiB",
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


def fuzz(
    folder: Path, cases: Iterator[mutations.Case], kept: Path, *, measure_every: int, engine_every: int
) -> Figures:
    """Run the cases; files that broke a promise are copied to `kept`."""
    figures, runner = Figures(), Runner(folder)
    path = folder / "damaged.gguf"
    accepted = 0
    for number, case in enumerate(cases):
        case.write(path)
        outcome = runner.header(path)
        figures.take(outcome)
        _judge(figures, case, outcome, path, kept / f"{number}.gguf")
        if not outcome.was_accepted:
            continue
        accepted += 1
        for run, every in ((runner.scripted, measure_every), (runner.real, measure_every * engine_every)):
            if every and accepted % every == 0:
                outcome = run(path)
                figures.take(outcome)
                _judge(figures, case, outcome, path, kept / f"{number}-{outcome.engine}.gguf")
    return figures


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
    parser.add_argument("--measure-every", type=int, default=4)
    parser.add_argument("--engine-every", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("fuzz-problems"))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="llmphase-fuzz-") as name:
        good = list(seeds(Path(name)))
        cases = mutations.damaged(good, asked.first, asked.cases)
        figures = fuzz(
            Path(name),
            cases,
            asked.folder,
            measure_every=asked.measure_every,
            engine_every=asked.engine_every,
        )
    print(json.dumps(dataclasses.asdict(figures)) if asked.json else figures.text())
    return 1 if figures.problems else 0


if __name__ == "__main__":
    sys.exit(main())
