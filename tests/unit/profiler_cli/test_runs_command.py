"""`llmphase runs` in each of its forms."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from profiler_cli.commands.runs import runs


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(runs)
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def document(name: str = "Tiny", **changes: Any) -> dict[str, Any]:
    """As much of a run file as a list reads."""
    model = {"name": name, "quantization": "Q4_0", "path": "/models/tiny.gguf"}
    cells = [{"status": status} for status in ("ok", "ok", "failed", "skipped")]
    plain = {
        "schema_version": 1,
        "run_id": "any",
        "started_at": "2026-01-01T00:00:00Z",
        "finished": True,
        "groups": [{"model": model, "status": "ok", "cells": cells}],
    }
    return {**plain, **changes}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLMPHASE_DATA_DIR", str(tmp_path))
    return tmp_path / "runs"


@pytest.fixture
def saved(folder: Path) -> Path:
    """Two runs and a damaged one between them."""
    folder.mkdir()
    (folder / "20260101T000000Z-aaaaaa.json").write_text(json.dumps(document()))
    (folder / "20260102T000000Z-bbbbbb.json").write_text('{"cut')
    evil = document("=cmd()\x1b[2J\n", finished=False)
    (folder / "20260103T000000Z-cccccc.json").write_text(json.dumps(evil))
    return folder


def test_before_the_first_run(folder: Path) -> None:
    result = run()
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "llmphase profile" in result.stderr
    assert not folder.exists()


@pytest.mark.usefixtures("saved")
class TestSaved:
    def test_table(self) -> None:
        result = run()
        lines = result.stdout.splitlines()
        assert lines[0].split() == [
            *("run", "started", "model", "quantization", "ok", "failed", "skipped", "finished"),
        ]
        assert lines[1].split()[0] == "20260103T000000Z-cccccc"
        assert lines[1].endswith("no")
        assert lines[2].split() == [
            *("20260101T000000Z-aaaaaa", "2026-01-01T00:00:00Z", "Tiny", "Q4_0", "2", "1", "1", "yes"),
        ]
        assert lines[3].startswith("20260102T000000Z-bbbbbb  can not be read: ")
        assert len(lines) == 4
        assert "\x1b" not in result.stdout

    def test_limit(self) -> None:
        assert len(run("-n", "1").stdout.splitlines()) == 2

    @pytest.mark.parametrize("limit", ["0", "-1", "x"])
    def test_a_limit_that_is_none(self, limit: str) -> None:
        assert run("--limit", limit).exit_code == 2

    def test_json(self) -> None:
        parsed = json.loads(run("--format", "json").stdout)
        assert parsed["schema_version"] == 1
        newest, damaged, oldest = parsed["runs"]
        assert (newest["finished"], oldest["finished"], damaged["finished"]) == (False, True, None)
        assert (oldest["cells_ok"], oldest["cells_failed"], oldest["cells_skipped"]) == (2, 1, 1)
        assert oldest["model_names"] == ["Tiny"]
        assert oldest["problem"] is None
        assert damaged["model_names"] is None
        assert "cut short" in damaged["problem"]

    def test_csv_starts_no_formula_and_leaves_the_unknown_empty(self) -> None:
        newest, damaged, oldest = csv.DictReader(io.StringIO(run("--format", "csv").stdout))
        assert newest["model_names"].startswith("'=cmd()")
        assert damaged["cells_ok"] == ""
        assert (oldest["model_names"], oldest["cells_ok"]) == ("Tiny", "2")


def test_only_damaged_runs(folder: Path) -> None:
    folder.mkdir()
    (folder / "20260102T000000Z-bbbbbb.json").write_text("")
    lines = run().stdout.splitlines()
    assert lines == ["20260102T000000Z-bbbbbb  can not be read: it is empty: the run was not written"]
