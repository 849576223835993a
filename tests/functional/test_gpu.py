"""On a GPU that the engine build can use. Run with `pytest -m gpu`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program import Command

pytestmark = pytest.mark.gpu


def test_layers_land_where_they_were_asked_to(llmphase: Command, data_folder: Path) -> None:
    from probes.inquiries import read_engine_facts

    if not any(device.kind == "gpu" for device in read_engine_facts().devices):
        pytest.skip("this engine build has no GPU device")
    for asked, placed in (("0", 0), ("10", 10), ("all", 31)):
        outcome = llmphase(
            "profile", "demo", "-p", "0,512", "-n", "16", "-r", "3", "-ngl", asked, "--format", "json"
        )
        assert outcome.returncode == 0, outcome.stderr
        rows = json.loads(outcome.stdout)["rows"]
        assert {(row["n_gpu_layers"], row["layers_total"]) for row in rows} == {(placed, 31)}
    run = json.loads(sorted((data_folder / "runs").glob("*.json"))[-1].read_text())
    group = run["groups"][0]
    assert group["device_memory"][0]["used_bytes"] > 0
    assert group["resolved"]["backend"] != "CPU"
    weights = {place["buffer"]: place["model_bytes"] for place in group["resolved"]["placements"]}
    assert sum(size for name, size in weights.items() if not name.startswith("CPU")) > 60_000_000
