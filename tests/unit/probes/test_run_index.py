"""The index of saved runs: a cache that is believed while it is true, and never in the way."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import sample_runs as sample

from probes import run_index
from probes.records import Run
from probes.run_files import RunStore, RunSummary, UnreadableRun
from probes.run_index import INDEX_NAME, Digest, RunIndex, forget

ROOT = Path(run_index.__file__).parents[1]
IDS = [f"2026010{day}T000000Z-aaaaaa" for day in (1, 2, 3)]


def save(store: RunStore, run_id: str, **changes: Any) -> Path:
    group = sample.group(cells=(sample.cell(8, passes=1, output_tokens=1),), passes=1)
    return store.save(sample.run(group, run_id=run_id, **changes))


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    made = RunStore(tmp_path / "runs")
    for run_id in IDS:
        save(made, run_id)
    (made.folder / "20260104T000000Z-bbbbbb.json").write_text("{")
    return made


class Counting:
    """A digest that says how often it was made."""

    def __init__(self, kind: str = "test-1") -> None:
        self.made: list[str] = []
        self.digest = Digest(kind=kind, make=self._make)

    def _make(self, run: Run) -> Any:
        self.made.append(run.run_id)
        return {"id": run.run_id, "finished": run.finished}


def opened(index: RunIndex, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Any]:
    """The run files that a list opened, and the list."""
    names: list[str] = []
    summarize = run_index.summarize

    def counting(path: Path) -> RunSummary | UnreadableRun:
        names.append(path.stem)
        return summarize(path)

    with monkeypatch.context() as patched:
        patched.setattr(run_index, "summarize", counting)
        return names, index.list_runs()


def test_a_list_is_that_of_the_store(store: RunStore) -> None:
    plain = store.list_runs()
    index = RunIndex(store)
    assert index.list_runs() == plain
    assert index.list_runs() == plain
    assert index.list_runs(2) == plain[:2]
    assert isinstance(plain[0], UnreadableRun)
    assert plain[1].run_id == IDS[2]


def test_files_are_read_once(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = opened(RunIndex(store), monkeypatch)
    assert len(first) == 4
    second, _ = opened(RunIndex(store), monkeypatch)
    assert second == []


def test_what_changed_is_read_again(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    RunIndex(store).list_runs()
    save(store, IDS[1], finished=False)
    save(store, "20260109T000000Z-aaaaaa")
    (store.folder / f"{IDS[0]}.json").unlink()
    names, found = opened(RunIndex(store), monkeypatch)
    assert sorted(names) == [IDS[1], "20260109T000000Z-aaaaaa"]
    assert found == store.list_runs()


def test_a_change_within_one_size_is_seen_by_its_time(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    RunIndex(store).list_runs()
    path = store.folder / f"{IDS[0]}.json"
    path.write_text(path.read_text().replace("SmolLM2", "Smollm3"))
    os.utime(path, ns=(1, 1))
    _, found = opened(RunIndex(store), monkeypatch)
    assert found[-1].models[0].name.startswith("Smollm3")


def test_digests_of_what_can_be_read_oldest_first(store: RunStore) -> None:
    counting = Counting()
    first = RunIndex(store).digests(counting.digest)
    assert [run_id for run_id, _ in first] == IDS
    assert first[0][1] == {"id": IDS[0], "finished": True}
    assert RunIndex(store).digests(counting.digest) == first
    assert counting.made == IDS


def test_another_kind_is_made_anew(store: RunStore) -> None:
    RunIndex(store).digests(Counting().digest)
    newer = Counting("test-2")
    RunIndex(store).digests(newer.digest)
    assert newer.made == IDS


def damaged(path: Path) -> None:
    path.write_bytes(b"this is no database" * 100)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def scrambled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(byte ^ 0x55 for byte in data[4096:])
    path.write_bytes(data)


def removed(path: Path) -> None:
    path.unlink()


def other_table(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE entries (something TEXT)")
    database.close()


def false_content(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE entries SET content = '[1, 2'")
    database.close()


def other_content(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE entries SET content = replace(content, 'SmolLM2', 'Liar')")
    database.close()


@pytest.mark.parametrize(
    "harm", [damaged, emptied, cut, scrambled, removed, other_table, false_content, other_content]
)
def test_a_false_index_is_made_anew(store: RunStore, monkeypatch: pytest.MonkeyPatch, harm: Any) -> None:
    wanted = RunIndex(store).list_runs()
    harm(store.folder / INDEX_NAME)
    assert RunIndex(store).list_runs() == wanted
    # It is whole again by the second look at the latest: the first may only have cleared the way.
    RunIndex(store).list_runs()
    names, found = opened(RunIndex(store), monkeypatch)
    assert names == []
    assert found == wanted


def test_content_that_is_no_text(store: RunStore) -> None:
    wanted = RunIndex(store).list_runs()
    with sqlite3.connect(store.folder / INDEX_NAME) as database:
        database.execute("UPDATE entries SET content = x'ff00'")
    database.close()
    assert RunIndex(store).list_runs() == wanted


def test_a_folder_in_its_place_costs_time_alone(store: RunStore) -> None:
    (store.folder / INDEX_NAME).mkdir()
    assert RunIndex(store).list_runs() == store.list_runs()


def test_a_locked_index_costs_time_alone(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    RunIndex(store).list_runs()
    save(store, "20260109T000000Z-aaaaaa")
    monkeypatch.setattr(run_index, "_PATIENCE_S", 0.01)
    other = sqlite3.connect(store.folder / INDEX_NAME, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        assert RunIndex(store).list_runs() == store.list_runs()
    finally:
        other.execute("ROLLBACK")
        other.close()
    assert (store.folder / INDEX_NAME).exists()


def test_a_folder_that_can_not_be_written(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr(run_index, "_connected", refuse)
    assert RunIndex(store).list_runs() == store.list_runs()
    assert not (store.folder / INDEX_NAME).exists()


def test_reading_makes_no_folder(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "none")
    assert RunIndex(store).list_runs() == ()
    assert RunIndex(store).digests(Counting().digest) == ()
    assert not store.folder.exists()


def test_the_index_is_no_run(store: RunStore) -> None:
    RunIndex(store).list_runs()
    assert len(store.list_runs()) == 4
    assert store.load("last~1").run_id == IDS[2]


def test_progress_counts_what_is_read(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_index, "_BATCH", 3)
    seen: list[tuple[int, int]] = []
    RunIndex(store, lambda done, every: seen.append((done, every))).list_runs()
    assert seen == [(3, 4), (4, 4)]
    RunIndex(store, lambda done, every: seen.append((done, every))).list_runs()
    assert len(seen) == 2


def test_an_interruption_keeps_what_was_read(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_index, "_BATCH", 2)

    def stop(_done: int, _every: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RunIndex(store, stop).list_runs()
    names, _ = opened(RunIndex(store), monkeypatch)
    assert len(names) == 2


def test_removed_runs_are_forgotten(store: RunStore) -> None:
    RunIndex(store).list_runs()
    forget(store, IDS[:1])
    with sqlite3.connect(store.folder / INDEX_NAME) as database:
        (left,) = database.execute("SELECT count(*) FROM entries").fetchone()
    database.close()
    assert left == 3


def test_two_programs_at_once(store: RunStore) -> None:
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from probes import run_index
        from probes.run_files import RunStore

        run_index._BATCH = 1
        store = RunStore(Path(sys.argv[1]))
        for turn in range(20):
            if sys.argv[2] == "breaks" and turn % 7 == 3:
                (store.folder / run_index.INDEX_NAME).write_bytes(b"broken")
            (store.folder / "20260101T000000Z-aaaaaa.json").touch()
            assert len(run_index.RunIndex(store).list_runs()) == 4
        """
    )
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(store.folder), kind], cwd=ROOT)
        for kind in ("plain", "plain", "breaks")
    ]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert RunIndex(store).list_runs() == store.list_runs()


def test_a_file_that_can_be_read_at_last_is_read(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rights change without the content; what an earlier program could not read, this one may."""
    path = store.folder / f"{IDS[1]}.json"
    text = path.read_text()
    path.write_text(" " * len(text))
    assert any(isinstance(run, UnreadableRun) and run.run_id == IDS[1] for run in RunIndex(store).list_runs())
    times = path.stat()
    path.write_text(text)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if os.name == "posix":
        assert RunIndex(store).list_runs() == store.list_runs()
    monkeypatch.setattr(run_index, "SCHEMA_VERSION", 10**6)
    names, _ = opened(RunIndex(store), monkeypatch)
    assert len(names) == 4
