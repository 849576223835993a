"""Names that would steer a terminal, a table or a spreadsheet: of models, templates, files and options.

Nothing that a command prints, in any form, holds what could.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sqlite3
import unicodedata
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tiny_models import write_tiny_llama

if TYPE_CHECKING:
    from forked import Forks, Outcome

ESCAPES = "\x1b[31m\x1b]0;owned\x07\x9b2J\x1bP1\x1b\\"
MARKUP = "[red]x[/red]<b>y</b>|`z`\\ -->]]>&amp;"
BREAKS = "a\nb\rc\x85d\u2028e\x0bf"
BIDI = "\u202e\u2066\u200b\ufeff\u200f"
FORMULA = "=cmd|' /C calc'!A0"
NAME = FORMULA + ESCAPES + MARKUP + BREAKS + BIDI + "'\"; DROP TABLE llama_bench; --" + "A" * (1 << 20)
FOLDER = "=sp ace 'q\" \n\x1b[31m[red]\udcff\u202e"
FILE = "-dash \x1b[2J\n=x.gguf"
FORMS = ("terminal", "json", "jsonl", "csv", "markdown")
BENCH_FORMS = ("json", "jsonl", "csv", "sql", "md")
N_TESTS = 4
"""Of llama-bench, at two lengths: prefill and decode."""
_STEERING = ("Cc", "Cf", "Zl", "Zp", "Cs", "Co")


@pytest.fixture(scope="module")
def workplace(forks: Forks) -> Path:
    """A folder of an odd name with a model of an odd name, measured three times."""
    folder = forks.folder / FOLDER
    folder.mkdir()
    write_tiny_llama(
        folder / FILE,
        **{"general.name": NAME, "general.basename": NAME, "tokenizer.chat_template": NAME + "{" * (1 << 20)},
    )
    for _ in range(3):
        outcome = run(forks, folder, "profile", f"./{FILE}", "-p", "8,16", "-n", "2", "-r", "5")
        assert outcome.code == 0, outcome.said
        checked(outcome)
        assert max(len(line) for line in outcome.said.splitlines()) < 400
    return folder


def run(forks: Forks, folder: Path, *arguments: str) -> Outcome:
    return forks.run(arguments, cwd=folder, LLMPHASE_ENGINE="fakes:scripted")


def checked(outcome: Outcome) -> str:
    """Standard output; neither it nor standard error can steer a terminal."""
    assert "Traceback" not in outcome.said
    text = outcome.output.decode()
    for stream in (text, outcome.said):
        steering = {c for c in stream if c != "\n" and unicodedata.category(c) in _STEERING}
        assert not steering, (steering, outcome)
    return text


def check_form(form: str, text: str) -> None:
    """What a form must be, beside harmless to a terminal."""
    if form == "terminal":
        assert max(len(line) for line in text.splitlines()) <= 80
    elif form == "csv":
        check_cells(list(csv.reader(io.StringIO(text))))
    elif form == "json":
        json.loads(text)
    elif form == "jsonl":
        assert all(isinstance(json.loads(line), dict) for line in text.splitlines())
    elif form in ("markdown", "md"):
        outside = re.sub(r"\\.", "", text)
        assert not re.search(r"<b>|\[red\]|`z`", outside)


def check_cells(rows: list[list[str]]) -> None:
    """A spreadsheet takes none for a formula; numbers may be negative."""
    assert rows
    for cell in (str(cell) for row in rows for cell in row if cell):
        assert cell[0] not in "=+-@\t\r" or re.fullmatch(r"-?[\d.]+(e-?\d+)?", cell), cell


def rows_of_sql(text: str) -> list[list[str]]:
    """The rows of the table that the statements make; nothing else has happened to it."""
    with sqlite3.connect(":memory:") as database:
        database.executescript(text)
        rows = database.execute("SELECT * FROM llama_bench").fetchall()
    database.close()
    return [[str(value) for value in row] for row in rows]


@pytest.mark.parametrize("form", [*FORMS, *(f"llama-bench-{form}" for form in BENCH_FORMS)])
def test_reports_in_every_form(forks: Forks, workplace: Path, form: str) -> None:
    outcome = run(forks, workplace, "report", "--format", form)
    assert outcome.code == 0, outcome.said
    text = checked(outcome)
    form = form.removeprefix("llama-bench-")
    check_form(form, text)
    if form == "sql":
        assert len(rows_of_sql(text)) == N_TESTS
    if form == "csv":
        widths = {len(row) for row in csv.reader(io.StringIO(text))}
        assert len(widths) == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "command",
    [
        ("diagnose", "--run", "last", "-p", "8", "-n", "4", "--explain"),
        ("compare", "last~1", "last"),
        ("history",),
    ],
    ids=lambda command: command[0],
)
def test_conclusions_in_every_form(
    forks: Forks, workplace: Path, command: tuple[str, ...], form: str
) -> None:
    outcome = run(forks, workplace, *command, "--format", form)
    assert outcome.code == 0, outcome.said
    check_form(form, checked(outcome))


def test_a_comparison_as_junit(forks: Forks, workplace: Path) -> None:
    text = checked(run(forks, workplace, "compare", "last~1", "last", "--format", "junit"))
    assert ElementTree.fromstring(text).tag == "testsuites"


@pytest.mark.parametrize("form", ["terminal", "json", "csv"])
def test_lists_in_every_form(forks: Forks, workplace: Path, form: str) -> None:
    for command in ("runs", "models"):
        outcome = run(forks, workplace, command, "--format", form)
        assert outcome.code == 0, outcome.said
        text = checked(outcome)
        if form != "terminal":
            check_form(form, text)


def test_an_export_of_all_runs(forks: Forks, workplace: Path) -> None:
    assert run(forks, workplace, "runs", "--export", "all.csv").code == 0
    check_cells(list(csv.reader((workplace / "all.csv").open(newline=""))))


def test_names_of_a_list_can_be_given_back(forks: Forks, workplace: Path) -> None:
    """A file whose name begins like an option, or like that of a store."""
    other = workplace / "hf:x.gguf"
    other.write_bytes((workplace / FILE).read_bytes())
    listed = json.loads(run(forks, workplace, "models", "--format", "json").output)
    names = [model["name"] for model in listed["models"] if model["name"] != "demo"]
    assert names == [f"./{FILE}", "./hf:x.gguf"]
    for name in names:
        outcome = run(forks, workplace, "profile", name, "-p", "8", "-n", "2", "-r", "1", "--no-save")
        assert outcome.code == 0, outcome.said
    other.unlink()


def test_a_prompt_and_a_template(forks: Forks, workplace: Path) -> None:
    (workplace / "=\x1b[31m\u202e.txt").write_text(NAME[:5000])
    words = ("--prompt", "=\x1b[31m\u202e.txt", "-n", "2", "--no-ceilings", "--no-save", "--chat")
    outcome = run(forks, workplace, "diagnose", f"./{FILE}", *words)
    assert outcome.code == 0, outcome.said
    check_form("terminal", checked(outcome))


# Names of files and values of options

ODD = (
    "=a \x1b[31m\n.json",
    "-b.json",
    os.fsdecode(b"\xff\xfe.json"),
    "q'\"$(id)`.json",
    "\u202e\u2066.json",
    "x" * 240 + ".json",
    "~.json",
    "\x1b]0;owned\x07.json",
)


@pytest.mark.parametrize("name", ODD, ids=range(len(ODD)))
def test_files_of_any_name_are_written_and_read(forks: Forks, workplace: Path, name: str) -> None:
    path = f"./{name}"
    outcome = run(forks, workplace, "report", "-o", path)
    assert outcome.code == 0, outcome.said
    checked(outcome)
    assert json.loads((workplace / name).read_text())["rows"]
    check_form("terminal", checked(run(forks, workplace, "compare", path, path)))
    for command in (
        ("report", path),
        ("diagnose", "--log", path),
        ("diagnose", "--facts", path),
        ("diagnose", "--run", path, "-p", "8"),
        ("history", path),
        ("profile", path),
        ("profile", f"./absent {name}"),
        ("profile", f"ollama:{name}"),
        ("runs", "--export", path),
        ("report", "-o", f"{path}.xyz"),
        ("report", "-o", f"./none/{name}"),
        ("devices", "--rpc", name),
    ):
        outcome = run(forks, workplace, *command)
        assert outcome.code in (2, 3), (command, outcome)
        checked(outcome)
        assert outcome.said.splitlines()[-1].startswith("llmphase: ")
    (workplace / name).unlink()


@pytest.mark.parametrize(
    "words",
    [
        ("--{}",),
        ("{}",),
        ("report", "a", "{}"),
        ("report", "-{}"),
        ("models", "--format", "{}"),
        ("runs", "--limit", "{}"),
        ("profile", "--format", "{}"),
        ("profile", "--quant", "{}"),
        ("profile", "--override-tensor", "{}"),
        ("diagnose", "--fail-on", "{}"),
        ("rpc-server", "--bind", "{}"),
    ],
    ids=" ".join,
)
def test_wrong_words_are_repeated_without_harm(forks: Forks, workplace: Path, words: tuple[str, ...]) -> None:
    hostile = ESCAPES + BREAKS + BIDI + "\udcff"
    outcome = run(forks, workplace, *(word.format(hostile) for word in words))
    assert outcome.code == 2, outcome
    checked(outcome)
