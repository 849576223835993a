"""The saved runs as a whole: their index, their history, their removal and their export."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from probes.errors import LlmphaseError, UnmeasurableError, UsageError
from probes.run_files import RunStore, RunSummary, UnreadableRun
from probes.run_index import Digest, RunIndex, forget
from profiler_cli.console import note
from profiler_cli.output import Render, require_writable, write_data
from profiler_cli.streams import say, show_line

if TYPE_CHECKING:
    from reports.rows import Row

_WORTH_A_WORD = 1000
"""Run files to read from which on the person is told what takes so long."""


def saved_runs(store: RunStore) -> RunIndex:
    """The index of the saved runs; a long first reading is announced."""
    return RunIndex(store, _announced("Reading {:,} run files; the next time their index answers at once."))


def _announced(words: str) -> Callable[[int, int], None]:
    told = False

    def progress(done: int, all_files: int) -> None:
        nonlocal told
        if not told and all_files - done >= _WORTH_A_WORD:
            note(words.format(all_files))
            told = True

    return progress


# --- history -------------------------------------------------------------------------------------


def history_renderer(model: str | None, prompt_tokens: int | None) -> Render:
    """The history of a model in any form. Raises UsageError as `reports.history.build_history` does."""
    from reports.formats import HISTORY_FORMATS
    from reports.history import DIGEST_KIND, build_history, digest

    found = saved_runs(RunStore()).digests(Digest(kind=DIGEST_KIND, make=digest))
    history = build_history(found, _names(model), prompt_tokens)
    return lambda form, style: HISTORY_FORMATS[form].render(history, style)


def _names(model: str | None) -> tuple[str, ...]:
    """What MODEL may stand for: its own words, and the file that they name as they do for `profile`. A model
    that has gone from this disk still has its history."""
    if model is None:
        return ()
    from probes.model_sources import resolve_models

    try:
        sources = resolve_models([model], environment=os.environ)
    except LlmphaseError:
        return (model,)
    return (model, *(str(source.path.absolute()) for source in sources))


# --- removal -------------------------------------------------------------------------------------


def prune(store: RunStore, *, keep: int | None, older_than_s: float | None, dry_run: bool) -> None:
    """Remove saved runs and print their ids; with `dry_run` print them alone.

    Raises UsageError without a condition, UnmeasurableError where a file can not be removed.
    """
    if keep is None and older_than_s is None:
        raise UsageError(
            "--prune: say which runs may go: --keep N keeps the newest N, --older-than 30d the younger ones",
            reason="prune",
        )
    found = saved_runs(store).list_runs()
    doomed = prunable(found, keep=keep, older_than_s=older_than_s, now=datetime.now(timezone.utc))
    for run in doomed:
        if not dry_run:
            _remove(Path(run.path))
        show_line(run.run_id)
    if not dry_run:
        forget(store, [run.run_id for run in doomed])
    say(f"{'Would remove' if dry_run else 'Removed'} {len(doomed):,} of {len(found):,} runs.")


def prunable(
    found: Iterable[RunSummary | UnreadableRun],
    *,
    keep: int | None,
    older_than_s: float | None,
    now: datetime,
) -> tuple[RunSummary, ...]:
    """The runs, of a list newest first, that meet every condition given. What can not be read stays: a newer
    program may know it."""
    readable = [run for run in found if isinstance(run, RunSummary)]
    beyond = readable[keep or 0 :]
    if older_than_s is None:
        return tuple(beyond)
    oldest = now - timedelta(seconds=older_than_s)
    return tuple(run for run in beyond if (began := _began(run)) is not None and began < oldest)


def _began(run: RunSummary) -> datetime | None:
    try:
        moment = datetime.fromisoformat(run.started_at.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as problem:
        raise UnmeasurableError(
            f"{path} can not be removed: {problem.strerror or problem}. Check who may write there",
            reason="not-removed",
        ) from problem


# --- export --------------------------------------------------------------------------------------


def export(store: RunStore, target: str, limit: int | None) -> None:
    """All rows of the saved runs, oldest run first, as one CSV or Parquet file.

    Raises UsageError for another ending, without the Parquet extra, or with no run that can be read.
    """
    path = Path(target)
    write = _export_writer(path)
    require_writable(path, "--export")
    rows: list[Row] = []
    runs, unreadable = 0, 0
    files = store.files()[:limit][::-1]
    progress = _announced("Reading {:,} run files in full; --limit N takes the newest alone.")
    from reports.report import run_rows

    for number, file in enumerate(files):
        progress(number, len(files))
        try:
            rows += run_rows(store.load(file.path))
            runs += 1
        except LlmphaseError as problem:
            unreadable += 1
            say(f"Left out: {problem}")
    if not runs:
        raise UsageError(
            f"no run in {store.folder} can be exported: `llmphase runs` lists them", reason="unknown-run"
        )
    write_data(path, write(rows), option="--export")
    left = f"; {unreadable} could not be read" if unreadable else ""
    note(f"{len(rows):,} rows of {runs:,} runs written to {path}{left}")


def _export_writer(path: Path) -> Callable[[Sequence[Row]], bytes]:
    """What makes the file's bytes of rows. What is missing for it is found before reading many files."""
    from reports import frame

    if path.suffix.lower() == ".csv":
        return lambda rows: frame.csv(rows).encode("utf-8", "replace")
    if path.suffix.lower() != ".parquet":
        raise UsageError(
            f"--export: {path.name} ends neither in .csv nor in .parquet: name one that does",
            reason="unknown-ending",
        )
    if not any(importlib.util.find_spec(engine) for engine in ("pyarrow", "fastparquet")):
        raise UsageError(
            "--export: Parquet needs one more package: pip install 'llmphase[parquet]', or name a .csv file",
            reason="no-parquet",
        )
    return frame.parquet
