"""`llmphase history` and what `llmphase runs` does with many runs, through the real command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sample_runs as sample
from program import Command

from probes.run_files import RunStore


@pytest.fixture
def many(data_folder: Path) -> RunStore:
    """Twelve days; from the seventh on another engine, and everything slower by a fifth."""
    store = RunStore(data_folder / "runs")
    for day in range(1, 13):
        late = day > 6
        speed = 0.8 if late else 1.0
        store.save(
            sample.run(
                sample.group(cells=tuple(sample.cell(n, speed=speed) for n in (0, 512))),
                run_id=f"202601{day:02}T120000Z-{day:06x}",
                started_at=f"2026-01-{day:02}T12:00:00Z",
                engine=sample.engine(version="engine 2" if late else "engine 1", commit=None),
            )
        )
    return store


@pytest.mark.usefixtures("many")
def test_a_history_names_the_drift_first(llmphase: Command) -> None:
    outcome = llmphase("history")
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr == ""
    text = " ".join(outcome.stdout.split())
    # 2 + 2.2 * 512 + 0.00035 * 512^2 ms, and tokenizing and one draw beside: 1.22 s; a fifth slower 1.53 s
    assert "Time to first token grew by 25 % (1.22 s to 1.53 s) from 2026-01-07T12:00:00Z on" in text
    assert "(run 20260107T120000Z-000007), with the engine's change from engine 1 to engine 2" in text
    assert "Decode rate fell by 20 %" in text
    assert max(map(len, outcome.stdout.splitlines())) <= 80


@pytest.mark.usefixtures("many")
def test_forms_and_choices(forked: Command, tmp_path: Path) -> None:
    document = json.loads(forked("history", "smollm2 135m instruct", "-p", "0", "--format", "json").stdout)
    assert document["prompt_tokens"] == 0
    assert len(document["points"]) == 12
    assert document["points"][0]["ttft_s"] is None
    assert forked("history", "-o", tmp_path / "history.csv").returncode == 0
    assert len((tmp_path / "history.csv").read_text().splitlines()) == 13


def test_a_model_is_named_as_for_a_profile(llmphase: Command, tiny_llama: Path) -> None:
    for _ in range(2):
        assert llmphase("profile", tiny_llama, "-p", "64", "-r", "3", "--quiet", script={}).returncode == 0
    for name in (tiny_llama, tiny_llama.name):
        outcome = llmphase("history", name, "--format", "json")
        assert outcome.returncode == 0, outcome.stderr
        assert len(json.loads(outcome.stdout)["points"]) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no-such-model",), "SmolLM2 135M Instruct Q4_1"),
        (("-p", "99"), "there are 0, 512"),
        (("-p", "-1"), "--prompt-tokens"),
        (("--format", "xml"), "--format"),
    ],
)
@pytest.mark.usefixtures("many")
def test_wrong_use_is_one_clear_answer(forked: Command, arguments: tuple[str, ...], words: str) -> None:
    outcome = forked("history", *arguments)
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert words in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_before_the_first_run(forked: Command, data_folder: Path) -> None:
    outcome = forked("history")
    assert outcome.returncode == 2
    assert "llmphase profile" in outcome.stderr
    assert not data_folder.exists()


def test_the_index_is_made_used_and_made_again(forked: Command, many: RunStore) -> None:
    first = forked("runs").stdout
    (index,) = many.folder.glob(".index*")
    assert forked("runs").stdout == first
    index.write_bytes(b"broken")
    assert forked("runs").stdout == first
    assert len(first.splitlines()) == 13


def test_old_runs_go_and_the_rest_is_listed(forked: Command, many: RunStore) -> None:
    outcome = forked("runs", "--prune", "--keep", "3")
    assert outcome.returncode == 0
    assert len(outcome.stdout.splitlines()) == 9
    assert [file.run_id[:8] for file in many.files()] == ["20260112", "20260111", "20260110"]
    assert len(forked("runs").stdout.splitlines()) == 4


@pytest.mark.usefixtures("many")
def test_all_rows_in_one_file(forked: Command, tmp_path: Path) -> None:
    outcome = forked("runs", "--export", "all.csv")
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout == ""
    assert "of 12 runs written to all.csv" in outcome.stderr
    lines = (tmp_path / "all.csv").read_text().splitlines()
    assert len({line.split(",")[0] for line in lines[1:]}) == 12
