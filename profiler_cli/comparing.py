"""From names of files to a delivered comparison: what `llmphase compare` and `profile --baseline` do."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from probes.errors import EXIT_DONE, EXIT_GATE, UnmeasurableError, UsageError
from probes.run_files import RunStore
from profiler_cli.comparison_options import ComparisonOptions
from profiler_cli.console import note, style_of
from profiler_cli.loading import load_comparable
from profiler_cli.options import COMPARISON_FORMATS, parse_choice, parse_share
from profiler_cli.output import Destination, deliver
from profiler_cli.streams import show
from reports.comparable import PHASES, Comparable, ComparedPhase, with_repetitions
from reports.comparison import DEFAULT_PHASES, SAME_WITHIN, compare
from reports.comparison_gate import Gate
from reports.comparison_report import ComparisonReport, build_comparison_report
from reports.formats import COMPARISON_FORMATS as RENDERERS
from reports.formats import TerminalStyle

if TYPE_CHECKING:
    from probes.records import Run

_MAX_REPETITIONS = 1000
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparing:
    """How to compare, as the options say."""

    phases: tuple[ComparedPhase, ...]
    same_within: float
    gate: Gate
    repetitions: int | None
    """Of files that do not say."""
    anyway: bool
    summary: Path | None
    """Where GitHub wants the job's summary."""

    @classmethod
    def read(cls, given: ComparisonOptions) -> Comparing:
        """Raises UsageError for values that mean nothing."""
        limit = None if given.fail_over is None else parse_share(given.fail_over, "--fail-over")
        within = SAME_WITHIN if given.same_within is None else parse_share(given.same_within, "--same-within")
        return cls(
            phases=DEFAULT_PHASES if given.phase is None else _phases(given.phase),
            same_within=within,
            gate=Gate(fail_over=limit, noise_is_failure=given.noise_is_failure),
            repetitions=_repetitions(given.assume_repetitions),
            anyway=given.anyway,
            summary=_summary_file() if given.github else None,
        )

    def load(self, name: str, store: RunStore) -> Comparable:
        """The file of that name, with the repetitions that it does not tell. Raises LlmphaseError."""
        loaded = load_comparable(name, store)
        return loaded if self.repetitions is None else with_repetitions(loaded, self.repetitions)


def _repetitions(number: int | None) -> int | None:
    if number is not None and not 2 <= number <= _MAX_REPETITIONS:
        raise UsageError(
            f"--assume-repetitions: {number} is not between 2 and {_MAX_REPETITIONS:,}", reason="range"
        )
    return number


def _phases(text: str) -> tuple[ComparedPhase, ...]:
    chosen = [parse_choice(part, "--phase", PHASES) for part in text.split(",")]
    return tuple(dict.fromkeys(chosen))


def _summary_file() -> Path:
    named = os.environ.get(SUMMARY_VARIABLE)
    if not named:
        raise UsageError(
            f"--github writes to the file that {SUMMARY_VARIABLE} names, which GitHub Actions sets: it is not"
            " set here, use --format markdown",
            reason="no-summary",
        )
    return Path(named)


def compare_files(
    names: Sequence[str], comparing: Comparing, form: str | None, output: str | None, *, quiet: bool
) -> int:
    """Compare the files after the first with the first; the exit code. Raises LlmphaseError."""
    if len(names) < 2:
        raise UsageError(
            "name the file to compare with and at least one other: `llmphase compare last~1 last`",
            reason="one-file",
        )
    destination = Destination.choose(form, output, COMPARISON_FORMATS)
    store = RunStore()
    base, *others = (comparing.load(name, store) for name in names)
    report = _report(base, others, comparing)
    deliver(
        lambda chosen, style: RENDERERS[chosen].render(report, style),
        destination,
        show_too=not quiet,
        quiet=quiet,
    )
    return _conclude(report, comparing)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What a run about to be measured will be compared with: read before, so that a wrong name costs no
    minutes."""

    file: Comparable
    comparing: Comparing

    @classmethod
    def read(cls, name: str | None, given: ComparisonOptions) -> Baseline | None:
        """From `--baseline` and the options of a comparison. Raises UsageError."""
        if name is None:
            if given.given:
                option = given.given[0].replace("_", "-")
                raise UsageError(
                    f"--{option} needs --baseline: name the file to compare with", reason="baseline"
                )
            return None
        comparing = given.read()
        return cls(file=comparing.load(name, RunStore()), comparing=comparing)

    def compare_with(self, run: Run, destination: Destination, *, quiet: bool) -> int:
        """Compare a run just measured; the exit code. The comparison follows the report where a person reads
        that; where a program does, it is a remark. Raises UsageError."""
        from reports.comparable_runs import of_run

        report = _report(self.file, [of_run(run)], self.comparing)
        if destination.form == "terminal" or (destination.path is not None and not quiet):
            show("\n" + RENDERERS["terminal"].render(report, style_of(sys.stdout)))
        else:
            note(" ".join(report.headline), quiet=quiet)
        return _conclude(report, self.comparing)


def _report(base: Comparable, others: Sequence[Comparable], comparing: Comparing) -> ComparisonReport:
    comparisons = [
        compare(
            base,
            other,
            phases=comparing.phases,
            same_within=comparing.same_within,
            anyway=comparing.anyway,
        )
        for other in others
    ]
    return build_comparison_report(comparisons, comparing.gate)


def _conclude(report: ComparisonReport, comparing: Comparing) -> int:
    """Append to the job's summary, then hold the gate."""
    if comparing.summary is not None:
        _append_summary(comparing.summary, report)
    for failure in report.failures:
        note(f"Gate not met: {failure}.")
    return EXIT_GATE if report.failures else EXIT_DONE


def _append_summary(path: Path, report: ComparisonReport) -> None:
    plain = TerminalStyle(width=100, colour=False, unicode=True)
    text = RENDERERS["markdown"].render(report, plain)
    try:
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(text + "\n")
    except OSError as error:
        raise UnmeasurableError(
            f"--github: {path} was not written: {error.strerror or error}", reason="unwritable"
        ) from error
