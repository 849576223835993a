"""A diagnosis from what people already have: another program's log, or facts in a file."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from probes.errors import UsageError
from probes.log_lines import read_log_lines
from probes.prompt_source import read_prompt
from profiler_cli.console import note
from profiler_cli.diagnosing import conclude
from profiler_cli.options import optional, parse_bandwidth
from profiler_cli.output import Destination
from profiler_cli.questions import Gates
from profiler_cli.wishes import Wishes
from reports.text import clean
from reports.units import count

if TYPE_CHECKING:
    from probes.records import ModelFacts
    from reports.diagnosis_report import DiagnosisReport
    from reports.log_evidence import Given


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What stands on the command line about evidence that is not measured here."""

    log: str | None
    facts: str | None
    gpu: str | None
    model: str | None
    """Beside a log: the file that was run."""
    memory_bandwidth: str | None

    @property
    def is_given(self) -> bool:
        """A log or facts take the place of a measurement."""
        return self.log is not None or self.facts is not None

    @staticmethod
    def one_model(argument: str | None, option: str | None) -> str | None:
        """MODEL and --model are the same. Raises UsageError where both are given."""
        if argument is not None and option is not None:
            raise UsageError("give the model once: as MODEL or as --model", reason="several-models")
        return argument if option is None else option

    def check(self, **others: object) -> None:
        """Raise UsageError for what does not go together. `others`: options of a measurement, as given."""
        if self.log is not None and self.facts is not None:
            raise UsageError(
                "--log and --facts exclude each other: diagnose one after the other", reason="log"
            )
        given = [name for name, value in others.items() if value is not None]
        if given and self.is_given:
            source = "--log" if self.log is not None else "--facts"
            raise UsageError(
                f"--{given[0].replace('_', '-')} goes with a measurement; {source} has its request already",
                reason="log",
            )
        alone = [
            name
            for name, value in (("--gpu", self.gpu), ("--memory-bandwidth", self.memory_bandwidth))
            if value
        ]
        if alone and not self.is_given:
            raise UsageError(f"{alone[0]} goes with --log FILE or --facts FILE", reason="log")


def diagnose_given(options: LogOptions, gates: Gates, wishes: Wishes, *, explain: bool) -> int:
    """Diagnose a log or a facts file; returns the exit code. Raises LlmphaseError."""
    destination = Destination.choose(wishes.form, wishes.output)
    given = _given(options, quiet=wishes.quiet)
    if options.log is not None:
        report = _from_log(options.log, given, explain=explain, quiet=wishes.quiet)
    else:
        report = _from_facts(options.facts or "-", given, explain=explain)
    return conclude(report, gates, destination, quiet=wishes.quiet)


def _given(options: LogOptions, *, quiet: bool) -> Given:
    from reports.datasheet import rows_of
    from reports.log_evidence import Given

    if options.gpu is not None and not options.gpu.strip():
        raise UsageError("--gpu: give the device's name, such as 'RTX 3090' or '2x RTX 3090'", reason="gpu")
    if options.gpu is not None and not rows_of(options.gpu):
        note(
            f"Note: no data-sheet figures are known for {clean(options.gpu, limit=60)}: its bandwidth and"
            " memory stay unknown.",
            quiet=quiet,
        )
    return Given(
        gpu_name=None if options.gpu is None else clean(options.gpu, limit=120),
        memory_bandwidth_bytes_s=optional(parse_bandwidth, options.memory_bandwidth),
        model=None if options.model is None else _header(options.model),
    )


def _header(name: str) -> ModelFacts:
    """The header of the one model that is named. Raises LlmphaseError."""
    from probes.gguf_header import read_model_facts
    from probes.model_sources import resolve_models

    sources = resolve_models([name], environment=os.environ)
    if len(sources) != 1:
        raise UsageError(
            f"--model: {clean(name)} names {len(sources)} models: name one", reason="several-models"
        )
    return read_model_facts(sources[0].path)


def _from_log(name: str, given: Given, *, explain: bool, quiet: bool) -> DiagnosisReport:
    from reports.log_report import build_log_report
    from reports.logs import PARSERS, read_log

    read = read_log(read_log_lines(name))
    report = build_log_report(read, given, explain=explain)
    if report is None:
        for parser in PARSERS:
            note(f"Looked for {parser.name}: {parser.looks_for}. To get it: {parser.obtain}.", quiet=quiet)
        raise UsageError(
            f"--log: no timing was found in {count(read.n_lines)} lines of"
            f" {'standard input' if name == '-' else clean(name, limit=80)}: add the lines that the program"
            " prints about its speed",
            reason="no-timing",
        )
    return report


def _from_facts(name: str, given: Given, *, explain: bool) -> DiagnosisReport:
    from reports.log_evidence import facts_evidence
    from reports.log_report import build_facts_report

    return build_facts_report(facts_evidence(read_prompt(name, "--facts"), given), explain=explain)
