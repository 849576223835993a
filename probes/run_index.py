"""An index of the saved runs: what lists and histories need of each, without reading all files again.

It is a cache, a small SQLite file beside the runs: an entry is believed while its file has the same size and
times and its own checksum is right; what is missing is read from the files. Several programs may
use it at once. A file that is no index is removed and made anew; where none can be written everything is read
each time: slower, never wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from probes.errors import LlmphaseError
from probes.records import SCHEMA_VERSION, Origin, Run
from probes.run_files import RunFile, RunModel, RunStore, RunSummary, UnreadableRun, summarize

INDEX_NAME = ".index-1.sqlite"
"""The number is that of the table's form: another form is another file."""
_BATCH = 500
"""Entries written at once: an interruption loses no more than these."""
_PATIENCE_S = 2.0
"""How long another program may be writing; then this one does without."""
_TABLE = """
CREATE TABLE IF NOT EXISTS entries (
  kind TEXT NOT NULL, run_id TEXT NOT NULL, changed_ns INTEGER NOT NULL, size INTEGER NOT NULL,
  content TEXT NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (kind, run_id)
) WITHOUT ROWID
"""
_SUMMARY_KIND = "summary-1"
_OUT_OF_REACH = ("locked", "readonly", "unable to open", "disk", "no such table")
"""In SQLite's words: what is no fault of the file itself."""

Content = Any
"""What `json.dumps` takes."""
Progress = Callable[[int, int], None]
"""Gets the files read so far and all that have to be read."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """What somebody wants of each run, made once and kept."""

    kind: str
    """Name and version: a change of what `make` returns is a new kind."""
    make: Callable[[Run], Content]


def _silent(_done: int, _all: int) -> None:
    return


@dataclasses.dataclass(frozen=True, slots=True)
class RunIndex:
    """The runs of one folder."""

    store: RunStore
    progress: Progress = _silent

    def list_runs(self, limit: int | None = None) -> tuple[RunSummary | UnreadableRun, ...]:
        """As `RunStore.list_runs`."""
        found = self._entries(
            _SUMMARY_KIND,
            self.store.files()[:limit],
            lambda file: dataclasses.asdict(summarize(Path(file.path))),
        )
        return tuple(_summary_of(file, content) for file, content in found)

    def digests(self, digest: Digest) -> tuple[tuple[str, Content], ...]:
        """(run id, digest) of every run that can be read, oldest first."""

        def made(file: RunFile) -> Content:
            try:
                return digest.make(self.store.load(file.path))
            except LlmphaseError:
                return None  # `llmphase runs` says what is wrong with the file

        found = self._entries(digest.kind, self.store.files()[::-1], made)
        return tuple((file.run_id, content) for file, content in found if content is not None)

    def _entries(
        self, kind: str, files: Sequence[RunFile], make: Callable[[RunFile], Content]
    ) -> list[tuple[RunFile, Content]]:
        """Each file's entry of this kind, from the index where it is there and true."""
        path = self.store.folder / INDEX_NAME
        kind = f"{kind} of schema {SCHEMA_VERSION}"  # what this program can not read, a newer one may
        known = _read(path, kind)
        contents = {file.run_id: known[_stamp(file)] for file in files if _stamp(file) in known}
        stale = [file for file in files if file.run_id not in contents]
        can_write = True
        for start in range(0, len(stale), _BATCH):
            batch = stale[start : start + _BATCH]
            made = {file.run_id: make(file) for file in batch}
            can_write = can_write and _write(path, kind, [(file, made[file.run_id]) for file in batch])
            contents |= made
            self.progress(start + len(batch), len(stale))
        return [(file, contents[file.run_id]) for file in files]


def _summary_of(file: RunFile, content: Content) -> RunSummary | UnreadableRun:
    content["path"] = file.path  # the folder may have been moved
    if "problem" in content:
        return UnreadableRun(**content)
    return RunSummary(**content | {"models": tuple(map(_model_of, content["models"]))})


def _model_of(content: Content) -> RunModel:
    origin = content["made_from"]
    return RunModel(**content | {"made_from": Origin(**origin) if origin else None})


_Stamp = tuple[str, int, int]
"""A file as it was when its entry was made."""


def _stamp(file: RunFile) -> _Stamp:
    return file.run_id, file.changed_ns, file.size


def _read(path: Path, kind: str) -> dict[_Stamp, Content]:
    """What the index holds of one kind; nothing where it can not be read."""
    if not path.exists():
        return {}
    with _forgiving(path), contextlib.closing(_connected(path)) as database:
        columns = "run_id, changed_ns, size, content, checksum"
        rows = database.execute(f"SELECT {columns} FROM entries WHERE kind = ?", (kind,))
        kept = [(row[:3], row[3]) for row in rows if row[4] == _checksum(row[3])]
        # One call for all: ten thousand would take several times as long.
        contents = json.loads(f"[{','.join(content for _, content in kept)}]")
        return dict(zip((stamp for stamp, _ in kept), contents, strict=True))
    return {}


def _write(path: Path, kind: str, entries: Sequence[tuple[RunFile, Content]]) -> bool:
    """Keep entries; False where they can not be kept."""
    rows = []
    for file, content in entries:
        text = json.dumps(content)
        rows.append((kind, file.run_id, file.changed_ns, file.size, text, _checksum(text)))
    with _forgiving(path), contextlib.closing(_connected(path)) as database, database:
        database.execute(_TABLE)
        database.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?)", rows)
        return True
    return False


def _checksum(content: str) -> int:
    return zlib.crc32(content.encode())


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_PATIENCE_S)


@contextlib.contextmanager
def _forgiving(path: Path) -> Iterator[None]:
    """The index is a cache: what goes wrong with it costs time alone. A file that is none is removed."""
    try:
        yield
    except sqlite3.OperationalError as problem:
        if not any(words in str(problem) for words in _OUT_OF_REACH):
            _remove(path)
    except (sqlite3.Error, ValueError, TypeError, AttributeError):
        _remove(path)


def _remove(path: Path) -> None:
    for file in (path, path.with_name(f"{path.name}-journal")):
        with contextlib.suppress(OSError):  # it may be gone already, or not ours to remove
            file.unlink()


def forget(store: RunStore, run_ids: Sequence[str]) -> None:
    """Drop the entries of runs that were removed."""
    path = store.folder / INDEX_NAME
    if not path.exists():
        return
    with _forgiving(path), contextlib.closing(_connected(path)) as database, database:
        database.executemany("DELETE FROM entries WHERE run_id = ?", [(run_id,) for run_id in run_ids])
