"""What the engine build says of its devices."""

from __future__ import annotations

import re

import pytest

from probes.ggml_devices import devices, engine_commit, list_devices

pytestmark = pytest.mark.engine


def test_the_cpu_is_always_among_the_devices() -> None:
    (cpu,) = (device for device in list_devices() if device.kind == "cpu")
    assert cpu.name == "CPU"
    assert cpu.description
    assert cpu.memory_total_bytes is not None
    assert cpu.memory_total_bytes > 2**20
    assert cpu.memory_free_bytes is not None
    assert cpu.memory_free_bytes <= cpu.memory_total_bytes


def test_handles_and_facts_go_together() -> None:
    found = devices()
    assert tuple(device.facts.name for device in found) == tuple(facts.name for facts in list_devices())
    assert len({device.handle for device in found}) == len(found)


def test_the_commit_is_one_or_unknown() -> None:
    commit = engine_commit()
    assert commit is None or re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", commit)
