"""Reads results from wherever they are: a saved run, an export of ours, a file of llama-bench."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from probes.errors import UsageError
from probes.records import Run
from probes.run_files import RunStore, parse, read_text
from reports.imports.kinds import kind_of
from reports.imports.llama_bench import parse_llama_bench
from reports.llama_bench import BenchFile

if TYPE_CHECKING:
    from reports.comparable import Comparable
    from reports.report import Report


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Rows that `llmphase profile` wrote, not yet read."""

    form: Literal["csv", "json", "jsonl"]
    text: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What a name stands for."""

    label: str
    """The run's id or the file's name. Untrusted text."""
    content: Run | BenchFile | Export


def load_results(name: str, store: RunStore) -> Results:
    """Results by a run id, `last`, `last~N`, or the path of a file of any kind that is known.

    Raises UsageError with the name in front: `unknown-run`, `empty-file`, `unknown-file`, and as the reader
    of that kind does; UnmeasurableError (`unreadable`).
    """
    path = store.find(name)
    try:
        return _read(path)
    except UsageError as problem:
        raise UsageError(f"can not use {path}: {problem}", reason=problem.reason) from problem


def _read(path: Path) -> Results:
    text = read_text(path)
    kind = kind_of(text)
    if kind == "run":
        run = parse(text)
        return Results(label=run.run_id, content=run)
    if kind == "llama-bench":
        return Results(label=path.name, content=parse_llama_bench(text))
    forms: dict[str, Literal["csv", "json", "jsonl"]] = {
        "export-csv": "csv",
        "export-json": "json",
        "export-jsonl": "jsonl",
    }
    return Results(label=path.name, content=Export(form=forms[kind], text=text))


def report_of(results: Results) -> Report:
    """The report of measurements. Raises UsageError (`export`) for an export: its rows are a report."""
    from reports.bench_report import build_bench_report
    from reports.report import build_report

    if isinstance(results.content, Run):
        return build_report(results.content)
    if isinstance(results.content, BenchFile):
        return build_bench_report(results.content, results.label)
    raise UsageError(
        f"{results.label} is an export, which is a report already: `llmphase runs` lists the saved runs, and"
        " `llmphase compare` takes exports too",
        reason="export",
    )


def load_comparable(name: str, store: RunStore) -> Comparable:
    """What two measurements are compared by, from a file of any kind. Raises as `load_results` does."""
    import json

    from reports.comparable_exports import of_csv, of_json, of_jsonl
    from reports.comparable_runs import of_run
    from reports.imports.llama_bench_cells import of_llama_bench

    results = load_results(name, store)
    content, label = results.content, results.label
    if isinstance(content, Run):
        return of_run(content, label)
    if isinstance(content, BenchFile):
        return of_llama_bench(content, label)
    if content.form == "csv":
        return of_csv(content.text, label)
    return (
        of_jsonl(content.text, label) if content.form == "jsonl" else of_json(json.loads(content.text), label)
    )
