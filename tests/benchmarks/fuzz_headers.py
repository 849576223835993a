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
import shutil
import sys
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import mutations
import tiny_models
from forked import Forks, Outcome

from probes.model_sources import resolve_models

LIMIT_BYTES = 1 << 30
LONGEST_S = {"header": 10.0, "scripted": 10.0, "real": 60.0}
ABSENT = "absent.gguf"
OPTIONS = ("-p", "8", "-n", "2", "-r", "1", "--budget", "5s", "--no-repack", "--no-save", "--quiet")
GENERATED = (
    *(tiny_models.write_tiny_llama, tiny_models.write_tiny_moe, tiny_models.write_tiny_sliding_window),
    *(tiny_models.write_tiny_recurrent, tiny_models.write_tiny_hybrid, tiny_models.write_encoder),
    *(tiny_models.write_projector, tiny_models.write_vocabulary_only, tiny_models.write_adapter),
)


class Runner:
    """The three ways in which a damaged file is given to the command."""

    def __init__(self, folder: Path) -> None:
        self._forks = Forks(folder, {"LLMPHASE_DATA_DIR": str(folder / "data"), "HOME": str(folder)})

    def header(self, path: Path) -> Outcome:
        """The command as far as the file's header decides."""
        return self._run("header", [str(path), ABSENT], LIMIT_BYTES)

    def scripted(self, path: Path) -> Outcome:
        """The whole command; the engine does nothing."""
        return self._run("scripted", [str(path)], LIMIT_BYTES, LLMPHASE_ENGINE="fakes:scripted")

    def real(self, path: Path) -> Outcome:
        """The whole command; what the engine may use is its own affair."""
        return self._run("real", [str(path)], None)

    def _run(self, engine: str, models: list[str], limit_bytes: int | None, **extra: str) -> Outcome:
        """A busy machine can make anything slow once: such a case is run a second time."""
        for _ in range(2):
            outcome = self._forks.run(
                ["profile", *models, *OPTIONS], limit_bytes=limit_bytes, longest_s=LONGEST_S[engine], **extra
            )
            if outcome.code is not None:
                break
        return outcome


def was_accepted(outcome: Outcome) -> bool:
    """The damaged file was believed: the absent one was complained of."""
    return outcome.code == 2 and f"no file {ABSENT}" in outcome.said


def problem_of(outcome: Outcome) -> str | None:
    """What is wrong with an outcome; None: all is well."""
    if outcome.code is None:
        return f"took {outcome.wall_s:.1f} s"
    if outcome.code not in (0, 2, 3):
        return f"exit code {outcome.code}"
    if "Traceback" in outcome.said:
        return "a traceback"
    lines = outcome.said.splitlines()
    if outcome.code and (len(lines) != 1 or not lines[0].startswith("llmphase: ")):
        return f"{len(lines)} lines on standard error"
    if any(unicodedata.category(char) in ("Cc", "Cf") for line in lines for char in line):
        return "control characters on standard error"
    return "a report of nothing" if outcome.code == 2 and outcome.output else None


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

    def take(self, engine: str, outcome: Outcome) -> None:
        self.longest_s[engine] = max(self.longest_s.get(engine, 0.0), outcome.wall_s)
        if engine == "header":
            self.cases += 1
            self.refused += not was_accepted(outcome)
            self.most_memory_bytes = max(self.most_memory_bytes, outcome.memory_bytes)
        else:
            codes = self.measured.setdefault(engine, {})
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
        figures.take("header", outcome)
        _judge(figures, case, outcome, path, kept / f"{number}.gguf")
        if not was_accepted(outcome):
            continue
        accepted += 1
        for engine, run, every in (
            ("scripted", runner.scripted, measure_every),
            ("real", runner.real, measure_every * engine_every),
        ):
            if every and accepted % every == 0:
                outcome = run(path)
                figures.take(engine, outcome)
                _judge(figures, case, outcome, path, kept / f"{number}-{engine}.gguf")
    return figures


def _judge(figures: Figures, case: mutations.Case, outcome: Outcome, path: Path, copy: Path) -> None:
    problem = problem_of(outcome)
    if problem is None:
        return
    copy.parent.mkdir(parents=True, exist_ok=True)
    if path.stat().st_blocks * 512 < 1 << 28:
        shutil.copyfile(path, copy)
    changes = "; ".join(case.changes)
    figures.problems.append(f"{problem}: {case.seed}, {changes}; kept as {copy}; {outcome.said[-300:]!r}")


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
