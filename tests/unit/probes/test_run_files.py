"""Run files: the text form, the folder, and what happens when either goes wrong."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import subprocess
import sys
import textwrap
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import sample_runs as sample

from probes import run_files
from probes.codec import DecodeError
from probes.errors import EXIT_UNMEASURED, EXIT_USAGE, LlmphaseError, UnmeasurableError, UsageError
from probes.records import SCHEMA_VERSION, CellResult, CellStatus, GroupResult, ModelFacts, Run
from probes.run_files import (
    RunStore,
    RunSummary,
    UnreadableRun,
    dump,
    new_run_id,
    parse,
    runs_folder,
    upgrade,
)


def model(name: str = "Tiny", path: str = "/models/tiny.gguf") -> ModelFacts:
    return sample.model(name=name, path=path, files=(path,), quantization="Q4_0")


def cell(status: CellStatus = "ok") -> CellResult:
    if status == "ok":
        return sample.cell(8, passes=1, output_tokens=2)
    return sample.failed_cell(8) if status == "failed" else sample.skipped_cell(8)


def group(*cells: CellResult, status: CellStatus = "ok", facts: ModelFacts | None = None) -> GroupResult:
    return sample.group(cells=cells, facts=facts or model(), status=status, passes=1)


def run_record(run_id: str = "20260101T000000Z-aaaaaa", **changes: Any) -> Run:
    return sample.run(group(cell()), run_id=run_id, **changes)


def refused(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(text)
    return str(caught.value)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


class TestText:
    def test_a_run_survives(self) -> None:
        run = run_record()
        assert parse(dump(run)) == run

    def test_names_that_are_no_unicode_text_survive(self) -> None:
        odd = os.fsdecode(b"/models/\xff\xfe.gguf")
        run = run_record(groups=(group(cell(), facts=model(name="\u202e模型\x00", path=odd)),))
        text = dump(run)
        assert text.isascii()
        assert parse(text) == run

    def test_the_version_and_the_id_stand_first(self) -> None:
        assert list(json.loads(dump(run_record())))[:2] == ["schema_version", "run_id"]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "empty"),
            ("  \n", "empty"),
            ("not json", "not whole JSON"),
            (dump(run_record())[:-40], "cut short"),
            ("[]", "no saved run"),
            ('{"schema_version": 1, "rows": []}', "not the output of --format json"),
            ("[" * 100_000, "nested too deep"),
            ('{"run_id": ' + "9" * 5000 + "}", "number too long"),
            ('{"run_id": "x"}', "schema_version"),
            ('{"run_id": "x", "schema_version": true}', "schema_version"),
            ('{"run_id": "x", "schema_version": 0}', "schema_version"),
            ('{"run_id": "x", "schema_version": 1}', "started_at: is missing"),
        ],
    )
    def test_anything_else_is_refused_in_one_line(self, text: str, words: str) -> None:
        message = refused(text)
        assert words in message
        assert "\n" not in message

    def test_a_wrong_field_is_named(self) -> None:
        document = json.loads(dump(run_record()))
        document["groups"][0]["cells"][0]["samples"] = "none"
        assert refused(json.dumps(document)) == "groups[0].cells[0].samples: expected a list, got a string"

    def test_a_newer_version_is_refused_with_advice(self) -> None:
        document = {**json.loads(dump(run_record())), "schema_version": SCHEMA_VERSION + 1}
        with pytest.raises(UsageError) as caught:
            parse(json.dumps(document))
        assert caught.value.reason == "newer-run-file"
        assert "pip install --upgrade llmphase" in str(caught.value)


class TestUpgrade:
    def test_there_is_a_step_for_each_version_but_the_newest(self) -> None:
        assert len(run_files._UPGRADES) == SCHEMA_VERSION - 1

    def test_steps_run_in_order_from_the_version_of_the_file(self) -> None:
        steps = [
            lambda document: {**document, "trail": document.get("trail", "") + "1>2 "},
            lambda document: {**document, "trail": document.get("trail", "") + "2>3"},
        ]
        assert upgrade({"schema_version": 1}, steps, 3) == {"schema_version": 3, "trail": "1>2 2>3"}
        assert upgrade({"schema_version": 2}, steps, 3) == {"schema_version": 3, "trail": "2>3"}
        assert upgrade({"schema_version": 3}, steps, 3) == {"schema_version": 3}


class TestRunId:
    def test_ids_sort_by_time_and_differ_within_a_second(self) -> None:
        early = datetime(2026, 1, 31, 23, 59, 59, tzinfo=timezone.utc)
        late = datetime(2026, 2, 1, tzinfo=timezone.utc)
        assert new_run_id(early).startswith("20260131T235959Z-")
        assert new_run_id(early) < new_run_id(late)
        assert new_run_id(early) != new_run_id(early)

    def test_a_new_id_is_accepted_by_the_store(self, store: RunStore) -> None:
        assert store.save(run_record(new_run_id())).is_file()

    @pytest.mark.parametrize(
        "run_id", ["../up", "a/b", "a\\b", "", ".hidden", "x" * 101, "nul\0", "new\nline"]
    )
    def test_ids_that_could_leave_the_folder_are_refused(self, store: RunStore, run_id: str) -> None:
        with pytest.raises(UsageError) as caught:
            store.save(run_record(run_id))
        assert caught.value.reason == "bad-run-id"


class TestFolder:
    def test_the_variable_moves_it(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("LLMPHASE_DATA_DIR", str(tmp_path))
        assert runs_folder() == tmp_path / "runs"
        assert RunStore().folder == tmp_path / "runs"

    def test_else_it_is_the_users(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("LLMPHASE_DATA_DIR", raising=False)
        folder = runs_folder()
        assert folder.name == "runs"
        assert "llmphase" in folder.parts


class TestStore:
    def test_saving_again_replaces_the_file(self, store: RunStore) -> None:
        first = run_record(finished=False)
        path = store.save(first)
        assert store.load(first.run_id) == first
        assert store.save(run_record()) == path
        assert store.load(first.run_id).finished
        assert [item.name for item in store.folder.iterdir()] == [path.name]

    def test_runs_are_found_by_id_by_age_and_by_path(self, store: RunStore) -> None:
        ids = [f"2026010{day}T000000Z-aaaaaa" for day in (3, 1, 2)]
        paths = {run_id: store.save(run_record(run_id)) for run_id in ids}
        assert store.load("last").run_id == ids[0]
        assert store.load("last~1").run_id == ids[2]
        assert store.load("last~2").run_id == ids[1]
        assert store.load(ids[1]).run_id == ids[1]
        assert store.load(paths[ids[2]]).run_id == ids[2]
        assert store.load(str(paths[ids[2]])).run_id == ids[2]

    @pytest.mark.parametrize(
        "name", ["last~3", "20250101T000000Z-bbbbbb", "no/such/file", "gone.json", "nul\0.json"]
    )
    def test_a_run_that_is_not_there(self, store: RunStore, name: str) -> None:
        store.save(run_record())
        with pytest.raises(UsageError) as caught:
            store.load(name)
        assert caught.value.reason == "unknown-run"
        assert caught.value.exit_code == EXIT_USAGE

    def test_before_the_first_run(self, store: RunStore) -> None:
        with pytest.raises(UsageError, match="llmphase profile"):
            store.load("last")
        assert store.list_runs() == ()
        assert store.last_profiled_model() is None
        assert not store.folder.exists()

    def test_damaged_files_are_refused_by_name(self, store: RunStore, tmp_path: Path) -> None:
        binary = tmp_path / "binary.json"
        binary.write_bytes(b"GGUF\x03\x00\xff\xfe\x80")
        with pytest.raises(UsageError, match=r"binary\.json: it is not text") as caught:
            store.load(binary)
        assert caught.value.reason == "bad-run-file"
        with pytest.raises(UsageError, match="folder or a device"):
            store.load(tmp_path)

    def test_a_huge_file_is_refused_unread(self, store: RunStore, tmp_path: Path) -> None:
        huge = tmp_path / "huge.json"
        with huge.open("wb") as file:
            file.truncate(run_files.MAX_FILE_BYTES + 1)  # sparse: takes no room
        with pytest.raises(UsageError, match="run files end at 256 MiB"):
            store.load(huge)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
    def test_a_pipe_does_not_hang(self, store: RunStore, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe.json"
        os.mkfifo(pipe)
        with pytest.raises(UsageError, match="folder or a device"):
            store.load(pipe)

    def test_an_unreadable_file_is_no_usage_error(
        self, store: RunStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = store.save(run_record())

        def deny(_: Path) -> bytes:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(Path, "read_bytes", deny)
        with pytest.raises(UnmeasurableError, match="Permission denied") as caught:
            store.load(path)
        assert caught.value.reason == "unreadable"


class TestList:
    def test_summaries_count_cells_and_name_each_model_once(self, store: RunStore) -> None:
        groups = (
            group(cell(), cell("failed")),
            group(cell("skipped"), cell()),
            group(status="failed", facts=model("Other", "/models/other.gguf")),
        )
        store.save(run_record(groups=groups, finished=False))
        (summary,) = store.list_runs()
        assert isinstance(summary, RunSummary)
        assert (summary.cells_ok, summary.cells_failed, summary.cells_skipped) == (2, 2, 1)
        assert [item.name for item in summary.models] == ["Tiny", "Other"]
        assert [item.quantization for item in summary.models] == ["Q4_0", "Q4_0"]
        assert not summary.finished

    def test_newest_first_with_damaged_ones_among_them(self, store: RunStore) -> None:
        for day in (1, 2):
            store.save(run_record(f"2026010{day}T000000Z-aaaaaa"))
        (store.folder / "20260103T000000Z-cccccc.json").write_text('{"schema')
        (store.folder / ".20260104T000000Z-dddddd-x.tmp").write_text("half")
        (store.folder / "notes.txt").write_text("mine")
        runs = store.list_runs()
        assert [item.run_id[:8] for item in runs] == ["20260103", "20260102", "20260101"]
        assert isinstance(runs[0], UnreadableRun)
        assert "cut short" in runs[0].problem
        assert store.list_runs(limit=1) == runs[:1]

    def test_the_last_profiled_model(self, store: RunStore, tmp_path: Path) -> None:
        file = tmp_path / "there.gguf"
        file.write_bytes(b"GGUF")
        store.save(run_record("20260101T000000Z-aaaaaa", groups=(group(facts=model(path=str(file))),)))
        store.save(run_record("20260102T000000Z-aaaaaa", groups=()))
        (store.folder / "20260103T000000Z-aaaaaa.json").write_text("")
        assert store.last_profiled_model() == file
        file.unlink()
        assert store.last_profiled_model() is None


class TestFailingSave:
    @pytest.mark.parametrize(
        ("code", "words"),
        [
            (errno.ENOSPC, "no space is left on the disk"),
            (errno.EDQUOT, "quota"),
            (errno.EROFS, "read-only"),
            (errno.EACCES, "no permission"),
            (errno.EIO, "Input/output error"),
        ],
    )
    @pytest.mark.parametrize("call", ["os.fsync", "pathlib.Path.replace", "pathlib.Path.mkdir"])
    def test_the_earlier_file_stays_whole(
        self, store: RunStore, monkeypatch: pytest.MonkeyPatch, call: str, code: int, words: str
    ) -> None:
        earlier = run_record(finished=False)
        path = store.save(earlier)

        def fail(*_: object, **__: object) -> None:
            raise OSError(code, os.strerror(code))

        with monkeypatch.context() as patched:
            patched.setattr(call, fail)
            with pytest.raises(UnmeasurableError) as caught:
                store.save(run_record())
        assert caught.value.reason == "not-saved"
        assert caught.value.exit_code == EXIT_UNMEASURED
        assert words in str(caught.value)
        assert "--no-save" in str(caught.value)
        assert store.load(earlier.run_id) == earlier
        assert list(store.folder.iterdir()) == [path]

    def test_an_interruption_leaves_nothing_behind(
        self, store: RunStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt(_: int) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.save(run_record())
        assert list(store.folder.iterdir()) == []

    def test_a_folder_that_is_a_file(self, tmp_path: Path) -> None:
        blocked = tmp_path / "runs"
        blocked.write_text("in the way")
        with pytest.raises(UnmeasurableError) as caught:
            RunStore(blocked).save(run_record())
        assert caught.value.reason == "not-saved"

    def test_a_number_that_a_file_can_not_hold(self, store: RunStore) -> None:
        with pytest.raises(UnmeasurableError, match="nan") as caught:
            store.save(
                run_record(groups=(group(facts=dataclasses.replace(model(), modified_at=float("nan"))),))
            )
        assert caught.value.reason == "not-saved"

    @pytest.mark.skipif(sys.platform == "win32", reason="no file size limits on Windows")
    def test_a_real_limit_on_the_size_of_files(self, store: RunStore) -> None:
        earlier = run_record(finished=False)
        path = store.save(earlier)
        program = textwrap.dedent(
            """
            import dataclasses, resource, sys
            from pathlib import Path
            from probes.errors import UnmeasurableError
            from probes.run_files import RunStore

            store = RunStore(Path(sys.argv[1]))
            run = store.load("last")
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            try:
                store.save(dataclasses.replace(run, finished=True))
            except UnmeasurableError as problem:
                print(problem.reason)
            """
        )
        root = Path(run_files.__file__).parents[1]
        child = subprocess.run(
            [sys.executable, "-c", program, str(store.folder)],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
        assert child.stdout.strip() == "not-saved"
        assert store.load(earlier.run_id) == earlier
        assert list(store.folder.iterdir()) == [path]


def test_two_programs_saving_the_same_run_never_mix(store: RunStore) -> None:
    program = textwrap.dedent(
        """
        import dataclasses, sys
        from pathlib import Path
        from probes.run_files import RunStore

        store = RunStore(Path(sys.argv[1]))
        run = store.load("last")
        for _ in range(30):
            store.save(dataclasses.replace(run, warnings=(sys.argv[2],) * int(sys.argv[3])))
        """
    )
    store.save(run_record())
    root = Path(run_files.__file__).parents[1]
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(store.folder), word, count], cwd=root)
        for word, count in (("a", "4000"), ("b", "10"))
    ]
    while any(child.poll() is None for child in children):
        seen = store.load("last").warnings
        assert seen in ((), ("a",) * 4000, ("b",) * 10)
    assert [child.returncode for child in children] == [0, 0]
    assert len(list(store.folder.iterdir())) == 1


def test_every_error_is_one_that_the_command_line_catches(store: RunStore) -> None:
    for name in ("last", "nothing", "a/b", "*", "last~x"):
        with pytest.raises(LlmphaseError):
            store.load(name)
    assert issubclass(DecodeError, LlmphaseError)
