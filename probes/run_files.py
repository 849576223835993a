"""Run files: a pure, versioned text form of `records.Run`, and the folder that holds them.

Format history (the version stands in `records.SCHEMA_VERSION`):

1  the first: the fields of `records.Run` as they are, an object for each record, a list for each tuple.
2  engine settings of placement, devices and remote servers, variants made of another file, cached tokens of a
   request, passes under disturbance. A program that knows 1 would pass over them and take different settings
   for the same, a variant for the user's own file, cached tokens for evaluated ones. What 1 lacks has the
   value that it was measured with as its default.

A change that an older program could not read right raises the version and adds one step to `_UPGRADES`.
A new field with a default does not.
"""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn

from probes import codec
from probes.atomic_file import replace_file
from probes.errors import UnmeasurableError, UsageError
from probes.records import SCHEMA_VERSION, CellStatus, Origin, Run

Document = dict[str, Any]

MAX_FILE_BYTES = 256 * 2**20
"""Larger files are refused unread: a long run is a few MiB."""

DATA_FOLDER_VARIABLE = "LLMPHASE_DATA_DIR"

_UPGRADES: tuple[Callable[[Document], Document], ...] = (lambda document: document,)
"""The step at index i takes a document of version i + 1 to version i + 2."""

_RUN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")
_LAST = re.compile(r"last(?:~(\d{1,9}))?")
_SAVE_PROBLEMS = {
    errno.ENOSPC: "no space is left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than is allowed here",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "there is no permission to write there",
    errno.EPERM: "there is no permission to write there",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunModel:
    """A model that a saved run measured, as far as a list needs it."""

    name: str
    """Untrusted text."""
    quantization: str
    path: str
    made_from: Origin | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One line of the list of saved runs."""

    run_id: str
    path: str
    started_at: str
    finished: bool
    models: tuple[RunModel, ...]
    """Each once, in the order measured."""
    cells_ok: int
    cells_failed: int
    cells_skipped: int
    """A load group that failed before it had cells counts as one cell."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableRun:
    """A file in the folder of runs that can not be read."""

    run_id: str
    path: str
    problem: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """A file in the folder of runs, with what tells whether it has changed."""

    run_id: str
    path: str
    """Text: of ten thousand files, few are opened."""
    changed_ns: int
    """The later one of the times of its content and, where the system has one, of its rights."""
    size: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _CellHead:
    status: CellStatus


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _GroupHead:
    model: RunModel
    status: CellStatus
    cells: tuple[_CellHead, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _RunHead:
    """The part of `records.Run` that a summary needs; the codec passes over the rest."""

    started_at: str
    finished: bool
    groups: tuple[_GroupHead, ...]


def dump(run: Run) -> str:
    """The text of a run file: ASCII, one line, so that any file name or model name can be held."""
    return json.dumps(codec.encode(run), allow_nan=False) + "\n"


def parse(text: str) -> Run:
    """Read the text of a run file of this version or an older one.

    Raises DecodeError (reason `bad-run-file`) for anything else, UsageError (reason `newer-run-file`) for
    a version that this program does not know yet.
    """
    return codec.decode(Run, _document(text))


def upgrade(
    document: Document,
    steps: Sequence[Callable[[Document], Document]] = _UPGRADES,
    newest: int = SCHEMA_VERSION,
) -> Document:
    """Take a document to the newest version, one step at a time."""
    version = document.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise codec.DecodeError("schema_version: expected a whole number from 1")
    if version > newest:
        raise UsageError(
            f"it was saved by a newer llmphase (format {version}; this one reads up to {newest}):"
            " update with `pip install --upgrade llmphase`",
            reason="newer-run-file",
        )
    for index in range(version - 1, newest - 1):
        document = {**steps[index](document), "schema_version": index + 2}
    return document


def new_run_id(moment: datetime | None = None) -> str:
    """An id that sorts by time and that two programs started in the same second do not share."""
    utc = (moment or datetime.now(timezone.utc)).astimezone(timezone.utc)
    return f"{utc:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def runs_folder() -> Path:
    """Where runs are saved: under `LLMPHASE_DATA_DIR` where it is set, else in the user's data folder."""
    chosen = os.environ.get(DATA_FOLDER_VARIABLE)
    if chosen:
        return Path(chosen) / "runs"
    import platformdirs

    return platformdirs.user_data_path("llmphase", appauthor=False) / "runs"


def _existing(path: Path) -> Path | None:
    """The path where a file is; a saved name may also be one that no system takes."""
    try:
        return path if path.is_file() else None
    except (OSError, ValueError):
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class RunStore:
    """The folder of saved runs. It is made by the first save; reading never makes it."""

    folder: Path = dataclasses.field(default_factory=runs_folder)

    def save(self, run: Run) -> Path:
        """Write the run so that its file is at every moment either the earlier or the new one, whole.

        Raises UnmeasurableError with reason `not-saved`; an earlier file of the same run is untouched then.
        """
        target = self._file(run.run_id)
        try:
            content = dump(run).encode("ascii")
        except (ValueError, TypeError) as problem:
            message = f"run {run.run_id} was not saved, it holds what a file can not: {problem}"
            raise UnmeasurableError(message, reason="not-saved") from problem
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(target, content)
        except OSError as problem:
            why = _SAVE_PROBLEMS.get(problem.errno or 0, problem.strerror or "unknown reason")
            raise UnmeasurableError(
                f"run {run.run_id} was not saved in {self.folder}: {why}. Make room there, or choose another"
                f" folder with {DATA_FOLDER_VARIABLE}, or pass --no-save",
                reason="not-saved",
            ) from problem
        return target

    def load(self, name: str | Path) -> Run:
        """Read a run by its id, by `last` or `last~N` (N runs before the last), or by the path of a file.

        Raises UsageError: `unknown-run` where there is none, else as `parse` does, the file named in
        front; UnmeasurableError (`unreadable`) where the system refuses to read it.
        """
        path = self.find(str(name))
        try:
            return parse(read_text(path))
        except UsageError as problem:
            raise UsageError(f"can not use {path}: {problem}", reason=problem.reason) from problem

    def list_runs(self, limit: int | None = None) -> tuple[RunSummary | UnreadableRun, ...]:
        """Saved runs, newest first, at most `limit`; files that can not be read are among them."""
        return tuple(summarize(path) for path in self._files()[:limit])

    def last_profiled_model(self) -> Path | None:
        """The file that the newest readable run measured first, or the one that it was made from; None
        without one or when it has gone."""
        for path in self._files():
            summary = summarize(path)
            if isinstance(summary, RunSummary) and summary.models:
                first = summary.models[0]
                return _existing(Path(first.made_from.path if first.made_from else first.path))
        return None

    def files(self) -> list[RunFile]:
        """The run files, newest first."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.folder) as entries:
            found = [file for entry in entries if (file := _run_file(entry))]
            return sorted(found, key=lambda file: file.run_id, reverse=True)
        return []

    def _files(self) -> list[Path]:
        """Run files, newest first: ids sort by time. Files being written begin with a dot."""
        paths = [path for path in self.folder.glob("*.json") if _RUN_ID.fullmatch(path.stem)]
        return sorted(paths, key=lambda path: path.stem, reverse=True)

    def _file(self, run_id: str) -> Path:
        if not _RUN_ID.fullmatch(run_id):
            raise UsageError(
                f"{json.dumps(run_id)[:120]} is no run id: letters, digits, '.', '_' and '-' only",
                reason="bad-run-id",
            )
        return self.folder / f"{run_id}.json"

    def find(self, name: str) -> Path:
        """The file that `load` reads for this name. Raises UsageError (`unknown-run`)."""
        last = _LAST.fullmatch(name)
        if last:
            return self._nth_last(int(last[1] or 0))
        if name.endswith(".json") or Path(name).name != name:
            return Path(name)
        saved = _existing(self.folder / f"{name}.json") if _RUN_ID.fullmatch(name) else None
        found = saved or _existing(Path(name))
        if found:
            return found
        self._file(name)  # refuses what can be no id
        raise UsageError(
            f"there is no saved run {name} in {self.folder}: `llmphase runs` lists what is there",
            reason="unknown-run",
        )

    def _nth_last(self, back: int) -> Path:
        paths = self._files()
        if not paths:
            raise UsageError(
                f"no run is saved yet in {self.folder}: `llmphase profile MODEL` makes one",
                reason="unknown-run",
            )
        if back >= len(paths):
            raise UsageError(
                f"there is no run last~{back}: {len(paths)} are saved in {self.folder}", reason="unknown-run"
            )
        return paths[back]


def _run_file(entry: os.DirEntry[str]) -> RunFile | None:
    """None for what is no run file, or has been removed since the folder was read."""
    run_id = entry.name.removesuffix(".json")
    if run_id == entry.name or not _RUN_ID.fullmatch(run_id):
        return None
    try:
        facts = entry.stat()
    except FileNotFoundError:
        return None
    return RunFile(
        run_id=run_id,
        path=entry.path,
        changed_ns=max(facts.st_mtime_ns, facts.st_ctime_ns),
        size=facts.st_size,
    )


def read_text(path: Path) -> str:
    """The text of a regular file of sane size.

    Raises UsageError that says what it is instead (`bad-run-file`) or that it is not there (`unknown-run`),
    UnmeasurableError (`unreadable`).
    """
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise codec.DecodeError("it is a folder or a device, not a run file")
        if facts.st_size > MAX_FILE_BYTES:
            raise codec.DecodeError(
                f"it is {facts.st_size / 2**20:.0f} MiB, and run files end at {MAX_FILE_BYTES // 2**20} MiB"
            )
        return _decoded(path.read_bytes())
    except UnicodeDecodeError:
        raise codec.DecodeError("it is not text, so no run file") from None
    except (OSError, ValueError) as problem:
        _raise_unread(path, problem)


def _decoded(data: bytes) -> str:
    """UTF-8, or UTF-16 where it says so: what PowerShell makes of another program's output."""
    is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if is_wide else "utf-8-sig")


def _raise_unread(path: Path, problem: OSError | ValueError) -> NoReturn:
    # A path with a NUL in it is refused by Python itself, with ValueError.
    if isinstance(problem, FileNotFoundError | NotADirectoryError | ValueError):
        raise UsageError("there is no such file: `llmphase runs` lists the saved runs", reason="unknown-run")
    raise UnmeasurableError(
        f"can not read {path}: {problem.strerror or problem}. Check who may read it", reason="unreadable"
    ) from problem


def _document(text: str) -> Document:
    """The parsed and upgraded object that a run file holds."""
    if not text.strip():
        raise codec.DecodeError("it is empty: the run was not written")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as problem:
        raise codec.DecodeError(
            f"it is not whole JSON (line {problem.lineno}, column {problem.colno}): cut short, or no run file"
        ) from None
    except (RecursionError, ValueError):
        raise codec.DecodeError("it is no run file: nested too deep, or a number too long") from None
    if not isinstance(document, dict) or "run_id" not in document:
        raise codec.DecodeError(
            "it is JSON, but no saved run: give a file from `llmphase runs`, not the output of --format json"
        )
    return upgrade(document)


def summarize(path: Path) -> RunSummary | UnreadableRun:
    """What a list says of one run file."""
    try:
        head = codec.decode(_RunHead, _document(read_text(path)))
    except (UsageError, UnmeasurableError) as problem:
        return UnreadableRun(run_id=path.stem, path=str(path), problem=str(problem))
    statuses = [status for group in head.groups for status in _statuses(group)]
    return RunSummary(
        run_id=path.stem,
        path=str(path),
        started_at=head.started_at,
        finished=head.finished,
        models=tuple(dict.fromkeys(group.model for group in head.groups)),
        cells_ok=statuses.count("ok"),
        cells_failed=statuses.count("failed"),
        cells_skipped=statuses.count("skipped"),
    )


def _statuses(group: _GroupHead) -> list[CellStatus]:
    return [cell.status for cell in group.cells] or [group.status]
