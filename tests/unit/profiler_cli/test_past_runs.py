"""Removing and exporting saved runs."""

from __future__ import annotations

import csv
import io
from datetime import datetime, timezone
from pathlib import Path

import pytest
import sample_runs as sample
import typer
from typer.testing import CliRunner, Result

from probes.errors import LlmphaseError, UnmeasurableError, UsageError
from probes.run_files import RunStore
from profiler_cli import past_runs
from profiler_cli.commands.runs import runs
from reports.report import build_report, run_rows

DAYS = range(1, 6)
IDS = [f"202601{day:02}T000000Z-aaaaaa" for day in DAYS]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    """Five runs, a day apart, and one that can not be read."""
    monkeypatch.setenv("LLMPHASE_DATA_DIR", str(tmp_path))
    made = RunStore()
    for day, run_id in zip(DAYS, IDS, strict=True):
        group = sample.group(cells=(sample.cell(8, passes=3, output_tokens=2),))
        made.save(sample.run(group, run_id=run_id, started_at=f"2026-01-{day:02}T00:00:00Z"))
    (made.folder / "20250101T000000Z-bbbbbb.json").write_text("{")
    return made


def run(*arguments: str | Path) -> Result:
    app = typer.Typer()
    app.command()(runs)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def left(store: RunStore) -> list[str]:
    return sorted(file.run_id for file in store.files() if file.run_id in IDS)


def refusal(*arguments: str | Path) -> LlmphaseError:
    problem = run(*arguments).exception
    assert isinstance(problem, LlmphaseError)
    return problem


class TestPrune:
    def test_keep_the_newest(self, store: RunStore) -> None:
        result = run("--prune", "--keep", "2")
        assert result.exit_code == 0
        assert result.stdout.split() == [IDS[2], IDS[1], IDS[0]]
        assert "Removed 3 of 6 runs." in result.stderr
        assert left(store) == IDS[3:]
        assert len(list(store.folder.glob("2025*"))) == 1

    def test_a_dry_run_removes_nothing(self, store: RunStore) -> None:
        result = run("--prune", "--keep", "2", "--dry-run")
        assert result.stdout.split() == [IDS[2], IDS[1], IDS[0]]
        assert "Would remove 3" in result.stderr
        assert left(store) == IDS

    def test_none_at_all(self, store: RunStore) -> None:
        run("--prune", "--keep", "0")
        assert left(store) == []

    def test_by_age(self, store: RunStore) -> None:
        now = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
        found = past_runs.prunable(store.list_runs(), keep=None, older_than_s=2 * 86_400, now=now)
        # 2 days before: the 3rd, 12 o'clock
        assert [one.run_id for one in found] == [IDS[2], IDS[1], IDS[0]]

    def test_both_conditions_have_to_hold(self, store: RunStore) -> None:
        now = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
        found = past_runs.prunable(store.list_runs(), keep=4, older_than_s=2 * 86_400, now=now)
        assert [one.run_id for one in found] == [IDS[0]]

    @pytest.mark.usefixtures("store")
    @pytest.mark.parametrize(
        "arguments",
        [
            ("--prune",),
            ("--keep", "2"),
            ("--older-than", "3d"),
            ("--dry-run",),
            ("--prune", "--keep", "2", "--limit", "1"),
            ("--prune", "--keep", "2", "--export", "x.csv"),
            ("--prune", "--older-than", "soon"),
            ("--prune", "--older-than", "0d"),
        ],
    )
    def test_wrong_use(self, store: RunStore, arguments: tuple[str, ...]) -> None:
        assert isinstance(refusal(*arguments), UsageError)
        assert left(store) == IDS

    @pytest.mark.usefixtures("store")
    def test_a_file_that_can_not_be_removed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def deny(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "unlink", deny)
        problem = refusal("--prune", "--keep", "4")
        assert isinstance(problem, UnmeasurableError)
        assert IDS[0] in str(problem)


class TestExport:
    def test_csv_holds_the_rows_of_all_runs_oldest_first(self, store: RunStore, tmp_path: Path) -> None:
        target = tmp_path / "all.csv"
        result = run("--export", target)
        assert result.exit_code == 0
        assert result.stdout == ""
        assert "20250101T000000Z-bbbbbb" in result.stderr
        rows = list(csv.DictReader(io.StringIO(target.read_text())))
        assert list(dict.fromkeys(row["run_id"] for row in rows)) == IDS
        assert len(rows) == 5 * len(build_report(store.load("last")).rows)

    @pytest.mark.usefixtures("store")
    def test_the_newest_alone(self, tmp_path: Path) -> None:
        target = tmp_path / "two.csv"
        run("--export", target, "--limit", "2")
        assert {row["run_id"] for row in csv.DictReader(io.StringIO(target.read_text()))} == set(IDS[3:])

    @pytest.mark.usefixtures("store")
    def test_parquet_keeps_the_types(self, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow")
        import pandas as pd

        target = tmp_path / "all.parquet"
        assert run("--export", target).exit_code == 0
        table = pd.read_parquet(target)
        assert list(dict.fromkeys(table.run_id)) == IDS
        assert str(table.dtypes["prompt_tokens"]) == "Int64"
        assert table.prompt_tokens.isna().any()

    @pytest.mark.usefixtures("store")
    def test_parquet_without_its_package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
        assert "llmphase[parquet]" in str(refusal("--export", tmp_path / "all.parquet"))

    @pytest.mark.usefixtures("store")
    def test_other_endings_and_places(self, tmp_path: Path) -> None:
        assert ".parquet" in str(refusal("--export", tmp_path / "all.xlsx"))
        assert "--export" in str(refusal("--export", tmp_path / "no" / "all.csv"))

    def test_nothing_to_export(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LLMPHASE_DATA_DIR", str(tmp_path))
        assert refusal("--export", tmp_path / "all.csv").reason == "unknown-run"
        assert not (tmp_path / "all.csv").exists()

    def test_the_rows_are_those_of_the_report(self) -> None:
        for made in (sample.run(), sample.troubled_run()):
            assert run_rows(made) == build_report(made).rows
