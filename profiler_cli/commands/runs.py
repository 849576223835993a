"""`llmphase runs`: the saved runs, listed, exported, removed."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from probes.errors import UsageError
from profiler_cli.streams import say, show, show_line

if TYPE_CHECKING:
    from probes.run_files import RunStore, RunSummary, UnreadableRun

SCHEMA_VERSION = 1
_COLUMNS = ("run", "started", "model", "quantization", "ok", "failed", "skipped", "finished")
_FIELDS = (
    *("run_id", "path", "started_at", "finished", "model_names", "quantizations"),
    *("cells_ok", "cells_failed", "cells_skipped", "problem"),
)


class RunsFormat(str, enum.Enum):
    """How the list is written."""

    TERMINAL = "terminal"
    JSON = "json"
    CSV = "csv"


def runs(
    form: Annotated[
        RunsFormat, typer.Option("--format", help="terminal, json or csv.")
    ] = RunsFormat.TERMINAL,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Take the newest N only.", metavar="N")
    ] = None,
    export: Annotated[
        str | None,
        typer.Option(
            "--export",
            help="Write the rows of all these runs to FILE, .csv or .parquet.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove runs: those beyond --keep and --older-than.")
    ] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep", min=0, help="With --prune: keep the newest N.", metavar="N", show_default=False
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            help="With --prune: keep what is younger: 12h, 30d, 8w.",
            metavar="AGE",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --prune: only say which.")] = False,
) -> None:
    """List the saved runs, newest first; export them, or remove old ones.

    The first column is what `llmphase report` takes as RUN.
    """
    from probes.run_files import RunStore
    from profiler_cli import past_runs
    from profiler_cli.options import optional, parse_age_s

    store = RunStore()
    _check_together(prune=prune, prunes=(keep, older_than, dry_run or None), others=(export, limit))
    if prune:
        age_s = optional(lambda text: parse_age_s(text, "--older-than"), older_than)
        past_runs.prune(store, keep=keep, older_than_s=age_s, dry_run=dry_run)
    elif export is not None:
        past_runs.export(store, export, limit)
    else:
        _list(past_runs.saved_runs(store).list_runs(limit), form, store)


def _check_together(*, prune: bool, prunes: tuple[object, ...], others: tuple[object, ...]) -> None:
    if not prune and any(value is not None for value in prunes):
        raise UsageError("--keep, --older-than and --dry-run belong to --prune: add it", reason="prune")
    if prune and any(value is not None for value in others):
        raise UsageError("--prune goes with neither --export nor --limit: leave one out", reason="prune")


def _list(found: tuple[RunSummary | UnreadableRun, ...], form: RunsFormat, store: RunStore) -> None:
    if form is RunsFormat.JSON:
        _write_json(found)
    elif form is RunsFormat.CSV:
        _write_csv(found)
    elif found:
        _write_table(found)
    else:
        say(f"No run is saved yet in {store.folder}: `llmphase profile MODEL` makes one.")


def _record(run: RunSummary | UnreadableRun) -> dict[str, object]:
    """One run as a flat row; what is not known is None."""
    models = getattr(run, "models", None)
    known = {
        "model_names": None if models is None else [model.name for model in models],
        "quantizations": None if models is None else [model.quantization for model in models],
    }
    return {field: known[field] if field in known else getattr(run, field, None) for field in _FIELDS}


def _write_json(found: Iterable[RunSummary | UnreadableRun]) -> None:
    import json

    document = {"schema_version": SCHEMA_VERSION, "runs": [_record(run) for run in found]}
    show_line(json.dumps(document, indent=2))


def _write_csv(found: Iterable[RunSummary | UnreadableRun]) -> None:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_FIELDS)
    for run in found:
        writer.writerow(_csv_cell(value) for value in _record(run).values())
    show(text.getvalue())


def _csv_cell(value: object) -> object:
    from reports.text import csv_safe

    if isinstance(value, list):
        return csv_safe("; ".join(map(str, value)))
    return csv_safe(value) if isinstance(value, str) else value


def _write_table(found: Sequence[RunSummary | UnreadableRun]) -> None:
    from probes.run_files import UnreadableRun
    from profiler_cli.tables import aligned, shown

    # Ten thousand runs are of few models: each name is made safe once.
    safe = functools.cache(shown)
    rows = [_cells(run, safe) for run in found if not isinstance(run, UnreadableRun)]
    if rows:
        show_line(aligned([_COLUMNS, *rows]))
    for run in found:
        if isinstance(run, UnreadableRun):
            show_line(f"{run.run_id}  {shown(f'can not be read: {run.problem}')}")


def _cells(run: RunSummary, safe: Callable[..., str]) -> tuple[str, ...]:
    return (
        *(run.run_id, safe(run.started_at, limit=20)),
        safe(", ".join(model.name for model in run.models) or "none", limit=40),
        safe(", ".join(dict.fromkeys(model.quantization for model in run.models)) or "none", limit=24),
        *(str(run.cells_ok), str(run.cells_failed), str(run.cells_skipped)),
        "yes" if run.finished else "no",
    )
