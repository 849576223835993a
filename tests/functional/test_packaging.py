"""The wheel: what is in it, and how it runs in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built as a release would be."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT], check=True, capture_output=True
    )
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_three_packages_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"profiler_cli", "probes", "reports"}
    modules = {str(path.relative_to(ROOT)) for top in tops for path in (ROOT / top).rglob("*.py")}
    assert modules <= set(names)
    assert "reports/datasheet.csv" in names
    assert any(name.endswith("LICENSE") for name in names)
    assert "License-Expression: MIT" in metadata
    assert "Requires-Python: >=3.10" in metadata


def test_the_installed_command_is_not_misled_by_the_folder_it_runs_in(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    subprocess.run(
        [scripts / "python", "-m", "pip", "install", "--quiet", "--no-compile", f"{wheel}[demo]"],
        check=True,
        env=os.environ | {"CMAKE_ARGS": "-DGGML_RPC=ON"},
    )
    elsewhere = tmp_path / "elsewhere"
    for name in ("probes", "reports", "profiler_cli", "json", "typer"):
        (elsewhere / name).mkdir(parents=True)
        (elsewhere / name / "__init__.py").write_text(
            "raise SystemExit('a module of this folder was taken')\n"
        )
    outcome = subprocess.run(
        [scripts / "llmphase", "profile", "demo", "-p", "0,32", "-n", "2", "-r", "1", "--format", "csv"],
        cwd=elsewhere,
        env=os.environ | {"LLMPHASE_DATA_DIR": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "prefill" in outcome.stdout
