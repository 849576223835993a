"""What a GPU's driver tells, through the real command: `pynvml` is replaced by a scripted one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program import TESTS, Command

HOT = "Card(reasons=0x40, pids=())"


@pytest.fixture
def driver(tmp_path: Path) -> dict[str, str]:
    """Environment in which the driver has one hot card."""
    folder = tmp_path / "driver"
    folder.mkdir()
    (folder / "pynvml.py").write_text(
        f"import sys\nfrom fake_nvml import Card, FakeNvml\nsys.modules[__name__] = FakeNvml({HOT})\n"
    )
    return {"PYTHONPATH": f"{folder}:{TESTS}"}


def test_a_gpu_without_a_build_for_it_is_named_with_the_line(
    llmphase: Command, driver: dict[str, str]
) -> None:
    outcome = llmphase("devices", "--no-measure", "--format", "json", script={}, **driver)
    document = json.loads(outcome.stdout)
    assert outcome.returncode == 0, outcome.stderr
    assert [(row["device"], row["description"]) for row in document["devices"]] == [
        ("CPU", "scripted device"),
        (None, "GPU A"),
    ]
    assert document["devices"][1]["throttle_reasons"] == "hardware-thermal"
    assert [advice["code"] for advice in document["advice"]] == ["gpu-unused-build"]
    assert "-DGGML_CUDA=on" in document["advice"][0]["command"]


def test_doctor_warns_of_it(llmphase: Command, driver: dict[str, str]) -> None:
    outcome = llmphase("doctor", "--format", "json", script={}, **driver)
    checks = {check["code"]: check for check in json.loads(outcome.stdout)["checks"]}
    assert outcome.returncode == 1
    assert checks["gpu-build"]["finding"] == "gpu-unused-build"
    assert checks["gpu-users"]["text"] == "a GPU is busy 90 % of the time already"
    assert checks["heat"]["text"] == "GPU A is held down (hardware-thermal)"


def test_a_clock_held_down_while_measuring_is_in_the_report(
    llmphase: Command, driver: dict[str, str], tiny_llama: Path
) -> None:
    script = {"backend": "CUDA0", "buffers": ["CUDA0"], "prefill_ns": 10_000_000}
    outcome = llmphase(
        *("profile", tiny_llama, "-p", "64", "-n", "4", "-r", "3", "--format", "json"),
        script=script,
        engine="sleeping",
        **driver,
    )
    assert outcome.returncode == 0, outcome.stderr
    notices = {notice["code"]: notice["text"] for notice in json.loads(outcome.stdout)["run"]["notices"]}
    assert "(hardware-thermal)" in notices["gpu-throttled"]
    assert "90 %" in notices["gpu-shared"]
