"""`llmphase doctor --self-test`, as a person meets it."""

from __future__ import annotations

import json

import pytest
from program import Command


def test_an_engine_that_does_no_work_for_its_layers_is_found_out(llmphase: Command) -> None:
    """The scripted engine's steps cost the same with twice the layers; all else it does is exact."""
    outcome = llmphase("doctor", "--self-test", "--format", "json", script={"chunk_tokens": 64})
    document = json.loads(outcome.stdout)
    assert outcome.returncode == 1, outcome.stderr
    assert document["ok"] is False
    measured = {one["code"]: (one["passed"], one["measured"]) for one in document["statements"]}
    assert measured == {
        "layers-double": (False, 1.0),
        "repeat-costs-the-same": (True, 1.0),
        "walk-is-fresh-48": (True, 1.0),
        "walk-is-fresh-160": (True, 1.0),
        "walk-is-fresh-288": (True, 1.0),
        "phases-sum-to-wall": (True, 1.0),
    }


def test_it_says_fail_in_words(llmphase: Command) -> None:
    outcome = llmphase("doctor", "--self-test", script={"chunk_tokens": 64}, COLUMNS="80")
    assert "FAIL  decode with twice the layers takes" in outcome.stdout
    assert "Not all hold." in outcome.stdout
    assert all(len(line) <= 80 for line in outcome.stdout.splitlines())


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ({"fail_load": "no room for weights"}, "no room for weights"),
        ({"crash_at_position": 0}, "SIGSEGV"),
    ],
)
def test_an_engine_that_fails_is_no_verdict(llmphase: Command, script: dict[str, object], words: str) -> None:
    outcome = llmphase("doctor", "--self-test", script=script)
    assert outcome.returncode == 3
    assert words in outcome.stderr
    assert "Traceback" not in outcome.stderr


@pytest.mark.engine
def test_the_real_engine_is_measured(llmphase: Command) -> None:
    """What comes out depends on what else runs, so the figures are only looked at for being some."""
    outcome = llmphase("doctor", "--self-test", "--format", "json", timeout=180)
    document = json.loads(outcome.stdout)
    assert outcome.returncode == (0 if document["ok"] else 1)
    assert len(document["statements"]) == 6
    assert all(one["rounds"] >= 4 and one["measured"] > 0 for one in document["statements"])
