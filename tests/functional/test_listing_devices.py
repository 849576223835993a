"""`llmphase devices`, as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program import Command


def test_it_lists_without_measuring(llmphase: Command) -> None:
    outcome = llmphase("devices", "--no-measure", script={"backend": "CUDA0"}, COLUMNS="80")
    assert outcome.returncode == 0, outcome.stderr
    assert "CUDA0 scripted device" in outcome.stdout
    assert "scripted 1 (abc1234)" in outcome.stdout
    assert outcome.stderr == ""
    assert all(len(line) <= 80 for line in outcome.stdout.splitlines())


def test_the_file_has_the_form_of_its_ending(llmphase: Command, tmp_path: Path) -> None:
    outcome = llmphase("devices", "--no-measure", "-o", "devices.csv", "-q", script={})
    assert (outcome.returncode, outcome.stdout) == (0, "")
    assert (tmp_path / "devices.csv").read_text().splitlines()[1].startswith("CPU,scripted device,cpu,")


def test_a_server_that_is_not_there_costs_its_row_alone(llmphase: Command) -> None:
    outcome = llmphase("devices", "--no-measure", "--rpc", "127.0.0.1:1", "--format", "json", script={})
    document = json.loads(outcome.stdout)
    assert outcome.returncode == 3
    assert [device["device"] for device in document["devices"]] == ["CPU"]
    assert document["links"][0]["server"] == "127.0.0.1:1"
    assert document["links"][0]["unknown"]["server"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rpc", "nowhere"), "no HOST:PORT"),
        (("--rpc", "host:1,[::1]:50052"), "'[::1]:50052' is an IPv6 address"),
        (("--format", "xml"), "--format"),
        (("--threads", "0"), "--threads"),
        (("-o", "/nonexistent/x.json"), "can not be written"),
    ],
)
def test_wrong_use(llmphase: Command, arguments: tuple[str, ...], words: str) -> None:
    outcome = llmphase("devices", *arguments, script={})
    assert outcome.returncode == 2
    assert words in outcome.stderr
    assert "Traceback" not in outcome.stderr


@pytest.mark.engine
def test_the_cpu_is_measured_with_the_engines_own_kernels(llmphase: Command, tmp_path: Path) -> None:
    outcome = llmphase(
        "devices", "--format", "json", "--threads", "1", LLMPHASE_CACHE_DIR=str(tmp_path / "cache")
    )
    assert outcome.returncode == 0, outcome.stderr
    cpu = json.loads(outcome.stdout)["devices"][0]
    assert (cpu["device"], cpu["threads"], cpu["transfer_bytes_s"]) == ("CPU", 1, None)
    assert 1e8 < cpu["memory_bytes_s"] < 1e12
    assert 1e9 < cpu["compute_flops_s"] < 1e14
