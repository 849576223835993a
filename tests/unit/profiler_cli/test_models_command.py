"""`llmphase models` in each of its forms."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from probes import model_sources, model_stores
from profiler_cli.commands.models import models
from tests import tiny_models as tiny


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with no models elsewhere."""
    monkeypatch.setattr(model_stores, "SYSTEM_OLLAMA_FOLDERS", ())
    monkeypatch.setattr(model_sources, "DEMO_PACKAGE", "no_such_package")
    for variable in ("OLLAMA_MODELS", "LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("HOME", "USERPROFILE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(models)
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def test_table(folder: Path) -> None:
    tiny.write_tiny_llama(folder / "a model.gguf")
    (folder / "broken.gguf").write_bytes(b"PK\x03\x04")
    head, model, broken, reason = run().stdout.splitlines()
    assert head.split() == ["model", "size", "quantization", "layers", "params", "architecture"]
    assert model.startswith("a model.gguf  2.5")
    assert model.split()[-5:-3] == ["F16", "2"]
    assert head.index("size") == model.index("2.5")
    assert broken == "broken.gguf"
    assert "zip archive" in reason


def test_json(folder: Path) -> None:
    tiny.write_tiny_recurrent(folder / "m.gguf")
    (folder / "x.gguf").write_bytes(b"")
    content = json.loads(run("--format", "json").stdout)
    assert content["schema_version"] == 1
    good, bad = content["models"]
    assert (good["name"], good["attention"], good["kv_elements_per_token"]) == ("m.gguf", "recurrent", 0)
    assert good["error"] is None
    assert bad["n_layers"] is None
    assert "empty" in bad["error"]


def test_csv(folder: Path) -> None:
    tiny.write_tiny_llama(folder / "=1+1.gguf")
    (row,) = csv.DictReader(io.StringIO(run("--format", "csv").stdout))
    assert row["name"] == "'=1+1.gguf"
    assert row["n_layers"] == "2"
    assert row["error"] == ""


@pytest.mark.usefixtures("folder")
def test_nothing_found() -> None:
    result = run()
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "llmphase[demo]" in result.stderr
