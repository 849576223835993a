"""Judgement of a machine before measuring."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import sample_runs as sample
from gpu_samples import gpu, state

from probes.records import Checkup, Neighbour
from reports.checkup import Check, check_machine
from reports.checkup_report import build_checkup_report
from reports.cpu_features import lacking, unused
from reports.formats import CHECKUP_FORMATS, TerminalStyle

FACTS = Checkup(
    governor="performance",
    clock_driver="acpi-cpufreq",
    energy_preference=None,
    power_plan=None,
    turbo=True,
    on_battery=False,
    temperature_c=50.0,
    temperature_limit_c=100.0,
    neighbours=(),
    cpu_quota=None,
    throttled_fraction=None,
    container=None,
    virtual_machine=False,
    cpu_features=("sse3", "avx2"),
    page_bytes=4096,
    huge_pages=None,
    disk_free_bytes=10**12,
    unknown={},
)
MACHINE = sample.machine(os="Linux 6.1 x86_64", physical_cpus=2)


def checks(machine: Any = MACHINE, engine: Any = None, **facts: Any) -> dict[str, Check]:
    found = check_machine(machine, engine or sample.engine(), dataclasses.replace(FACTS, **facts))
    return {check.code: check for check in found}


def test_a_fine_machine_has_no_warning() -> None:
    found = checks()
    assert {check.status for check in found.values()} <= {"ok", "unknown"}
    assert [code for code, check in found.items() if check.status == "unknown"] == ["gpu-users"]
    assert build_checkup_report(MACHINE, sample.engine(), FACTS).is_fine


@pytest.mark.parametrize(
    ("code", "facts", "words"),
    [
        ("governor", {"governor": "powersave"}, "kept low"),
        ("governor", {"governor": "powersave", "clock_driver": "intel_pstate", "energy_preference": "power"},
         "energy preference power"),
        ("governor", {"governor": None, "power_plan": "power saver"}, "power saver"),
        ("battery", {"on_battery": True}, "battery"),
        ("heat", {"temperature_c": 91.0}, "91 °C of 100 °C"),
        ("heat", {"temperature_c": 86.0, "temperature_limit_c": None}, "86 °C"),
        ("cpu-users", {"neighbours": (Neighbour(name="evil\x1b[31m", cpus=1.25),)}, "evil[31m 1.2"),
        ("cpu-quota", {"cpu_quota": 1.5, "throttled_fraction": 0.3}, "30 %"),
        ("disk", {"disk_free_bytes": 10**8}, "95.4 MiB"),
    ],
)  # fmt: skip
def test_what_needs_fixing_is_a_warning_with_a_fix(code: str, facts: dict[str, Any], words: str) -> None:
    check = checks(**facts)[code]
    assert (check.status, words in check.text) == ("warning", True), check
    assert check.fix or check.command
    assert "\x1b" not in check.text


@pytest.mark.parametrize(
    ("code", "facts"),
    [
        # Both drivers boost by themselves under `powersave`.
        ("governor", {"governor": "powersave", "clock_driver": "intel_pstate"}),
        ("governor", {"governor": None, "power_plan": "balanced"}),
        ("heat", {"temperature_c": 84.0}),
        ("cpu-users", {"neighbours": (Neighbour(name="idle", cpus=0.1),)}),
    ],
)
def test_what_is_usual_is_fine(code: str, facts: dict[str, Any]) -> None:
    assert checks(**facts)[code].status == "ok"


@pytest.mark.parametrize(
    ("code", "facts"),
    [
        ("turbo", {"turbo": False}),
        ("cpu-quota", {"cpu_quota": 4.0}),
        ("container", {"container": "docker"}),
        ("container", {"virtual_machine": True}),
    ],
)
def test_what_explains_a_figure_is_a_note(code: str, facts: dict[str, Any]) -> None:
    assert checks(**facts)[code].status == "note"


@pytest.mark.parametrize(
    ("code", "field"),
    [
        ("governor", "governor"),
        ("turbo", "turbo"),
        ("battery", "on_battery"),
        ("heat", "temperature_c"),
        ("cpu-users", "neighbours"),
        ("build-features", "cpu_features"),
        ("container", "virtual_machine"),
        ("disk", "disk_free_bytes"),
    ],
)
def test_what_can_not_be_known_says_why(code: str, field: str) -> None:
    check = checks(**{field: None, "unknown": {field: "nobody tells"}})[code]
    assert (check.status, check.text) == ("unknown", "nobody tells")


def test_gpus_are_looked_at() -> None:
    def gpus(**changes: Any) -> dict[str, Check]:
        machine = dataclasses.replace(
            MACHINE,
            gpu_names=("GPU A",),
            gpus=(gpu(temperature_limit_c=93.0),),
            gpu_states=(state(**changes),),
        )
        return checks(machine)

    assert gpus(utilization=0.4)["gpu-users"].status == "warning"
    shared = gpus(utilization=0.0, foreign_processes=1)["gpu-users"]
    assert (shared.status, shared.text) == ("note", "1 other process hold memory of a GPU")
    assert gpus(utilization=0.0)["gpu-users"].status == "ok"
    assert gpus(temperature_c=85.0)["heat"].text == "GPU A is near its limit of 93 °C"
    assert gpus(throttle_reasons=("hardware-thermal",))["heat"].status == "warning"
    assert gpus()["gpu-build"].finding == "gpu-unused-build"


def test_the_build_is_held_against_the_processor() -> None:
    processor = ("sse3", "avx", "avx2", "fma", "f16c", "avx512f")
    built = "CPU : SSE3 = 1 | AVX = 1 | AVX2 = 1 | "
    assert unused(built, processor) == (("FMA", "F16C"), ("AVX512",))
    assert lacking(built + "AMX_INT8 = 1", processor) == ("AMX_INT8",)
    arm = ("fp", "asimd", "asimddp")
    assert unused("CPU : NEON = 1 | ARM_FMA = 1", arm) == (("DOTPROD",), ())
    basic = checks(cpu_features=processor)["build-features"]
    assert (basic.status, basic.finding) == ("warning", "build-too-basic")
    newer = checks(cpu_features=("sse3",))["build-features"]
    assert (newer.status, newer.finding) == ("warning", "build-too-new")
    note = checks(cpu_features=("sse3", "avx2", "avx512f"))["build-features"]
    assert note.status == "note"


def test_memory_and_swap_come_from_the_machines_advice() -> None:
    machine = dataclasses.replace(MACHINE, memory_available_bytes=10**8, swap_used_bytes=10**9)
    found = checks(machine)
    assert (found["memory"].status, found["memory"].finding) == ("warning", "memory-short")
    assert (found["swap"].status, found["swap"].finding) == ("note", "swap-in-use")


def test_an_engine_that_can_not_be_loaded() -> None:
    report = build_checkup_report(MACHINE, None, FACTS, "libexample is missing")
    found = {check.code: check for check in report.checks}
    assert (found["engine"].status, found["gpu-build"].status) == ("warning", "unknown")
    assert "libexample is missing" in found["engine"].text
    assert not report.is_fine


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_page_fits(width: int) -> None:
    report = build_checkup_report(MACHINE, sample.engine(), dataclasses.replace(FACTS, governor="powersave"))
    style = TerminalStyle(width=width, colour=False, unicode=True)
    text = CHECKUP_FORMATS["terminal"].render(report, style)
    assert all(len(line) <= width for line in text.splitlines())
    assert "sudo cpupower frequency-set -g performance" in text
    document = json.loads(CHECKUP_FORMATS["json"].render(report, style))
    assert (document["ok"], document["checks"][3]["status"]) == (False, "warning")
