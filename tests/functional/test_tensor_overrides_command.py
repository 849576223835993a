"""`--override-tensor` and the check of memory, through the real command with a scripted device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program import Command
from tiny_models import N_EMBD, N_EXPERTS, N_FF, write_tiny_moe

EXPERTS = 2 * 3 * N_EMBD * N_FF * N_EXPERTS * 2
"""Bytes of the experts of both layers: up, gate and down in 16 bits."""
BESIDE = 4 * 2**20
"""More than everything else takes, and less than that and the experts."""
ALL_LAYERS = ("-ngl", "all", "-t", "1,2", "-p", "64", "-n", "4", "-r", "1", "--format", "json")
"""Two loads, so that devices are asked for on a machine without any."""


@pytest.fixture
def moe(tmp_path: Path) -> Path:
    return write_tiny_moe(tmp_path / "moe.gguf")


def on_a_device(free_bytes: int) -> dict[str, object]:
    return {"backend": "GPU0", "buffers": ["GPU0"], "device_free_bytes": free_bytes}


def test_experts_sent_to_the_host_leave_the_device_room(llmphase: Command, moe: Path) -> None:
    assert EXPERTS > BESIDE
    script = on_a_device(BESIDE)
    refused = llmphase("profile", moe, *ALL_LAYERS, script=script)
    assert refused.returncode == 3
    assert "memory on GPU0 and 4.0 MiB is free" in refused.stderr
    outcome = llmphase("profile", moe, *ALL_LAYERS, "-ot", "exps=CPU", script=script)
    assert outcome.returncode == 0, outcome.stderr
    assert {row["status"] for row in json.loads(outcome.stdout)["rows"]} == {"ok"}


def test_what_is_sent_to_the_device_must_fit_there(llmphase: Command, moe: Path) -> None:
    script = on_a_device(BESIDE)
    none_there = tuple("0" if word == "all" else word for word in ALL_LAYERS)
    assert llmphase("profile", moe, *none_there, script=script).returncode == 0
    outcome = llmphase("profile", moe, *none_there, "-ot", "exps=GPU0", script=script)
    assert outcome.returncode == 3
    assert "memory on GPU0" in outcome.stderr


def test_a_pattern_that_the_engine_reads_otherwise_is_refused(llmphase: Command, moe: Path) -> None:
    outcome = llmphase("profile", moe, "-ot", "[[:digit:]]=CPU", script={})
    assert outcome.returncode == 2
    assert outcome.stderr.splitlines()[-1].endswith(
        "named classes such as [:digit:] are not followed here: write 0-9"
    )
    assert "Warning" not in outcome.stderr
