"""The README and the examples say what the program does: their blocks are run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from program import PROGRAM, Command, scripted

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def shape(line: str) -> str:
    """A line with its figures, units of time and column widths taken out: those differ between machines."""
    figures = re.sub(r"[\d.,]+", "#", line)
    return re.sub(r"\s+", " ", re.sub(r"# (ns|µs|ms|s)\b", "# s", figures)).strip()


@pytest.mark.engine
@pytest.mark.alone
def test_console_blocks_run_and_print_what_they_show(environment: dict[str, str], tmp_path: Path) -> None:
    environment["PATH"] = f"{PROGRAM.parent}{os.pathsep}{environment['PATH']}"
    assert blocks("console")
    for block in blocks("console"):
        command: list[str] = []
        shown: list[str] = []
        for line in [*block.splitlines(), "$ "]:
            if not line.startswith("$ "):
                shown.append(shape(line))
                continue
            if command:
                outcome = subprocess.run(
                    command,
                    env=environment,
                    cwd=tmp_path,
                    capture_output=True,
                    text=True,
                    timeout=300,
                    check=False,
                )
                assert outcome.returncode == 0, (command, outcome.stderr)
                printed = [shape(text) for text in outcome.stdout.splitlines()]
                assert [text for text in shown if text not in printed] == [], outcome.stdout
            command, shown = shlex.split(line[2:]), []
    snippet = blocks("python")[0]
    outcome = subprocess.run(
        [sys.executable, "-c", snippet], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "tokens_per_s" in outcome.stdout


def test_the_readme_names_every_command_and_column() -> None:
    from profiler_cli.app import app
    from reports.rows import COLUMNS

    names = [
        command.callback.__name__.replace("_", "-") for command in app.registered_commands if command.callback
    ]
    assert [name for name in names if f"llmphase {name}" not in README] == []
    assert [column for column in COLUMNS if f"`{column}`" not in README] == []


def test_the_readme_starts_with_two_commands() -> None:
    commands = blocks("sh")
    assert len(commands) == 2
    for command in commands:
        assert "CMAKE_ARGS=-DGGML_RPC=ON" in command
        assert len(command.strip().splitlines()) == 1
    assert "profile demo" in commands[0]
    assert "-e '.[demo,dev]'" in commands[1]


def test_the_picture_is_made_by_its_script(
    llmphase: Command, tiny_llama: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    assert llmphase("profile", tiny_llama, "-p", "0,64", script={}).returncode == 0
    target = tmp_path / "report.svg"
    script = ROOT / "examples" / "report_picture.py"
    subprocess.run([sys.executable, script, "last", target], env=environment | scripted({}), check=True)
    drawn = target.read_text(encoding="utf-8")
    assert drawn.startswith("<svg")
    assert "llmphase" in drawn


def test_every_code_of_a_diagnosis_has_its_line() -> None:
    from reports.rules import RULES

    text = (ROOT / "examples" / "verdicts.md").read_text(encoding="utf-8")
    assert [rule.code for rule in RULES if f"`{rule.code}`" not in text] == []
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "reports" / "remedies").glob("*.py")
    )
    codes = set(re.findall(r'code="([a-z-]+)"', sources)) | {"quantization-down-1", "quantization-down-2"}
    codes |= {"room-by-context", "room-by-cache", "room-by-experts"}
    assert codes
    assert sorted(code for code in codes if f"`{code}`" not in text) == []
