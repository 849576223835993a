"""`llmphase doctor`: what it prints and how it ends."""

from __future__ import annotations

import dataclasses
import json

import pytest
import sample_runs as sample
import typer
from typer.testing import CliRunner, Result

from probes import inquiries, machine
from probes.errors import UnmeasurableError
from probes.records import Checkup, EngineFacts
from profiler_cli import checking
from profiler_cli.commands.doctor import doctor

MACHINE = sample.machine(
    os="Linux 6.1 x86_64",
    cpu_name=None,
    logical_cpus=4,
    physical_cpus=4,
    usable_cpus=2,
    usable_cpus_reason="cgroup quota 2 CPUs",
    unknown={"cpu_name": "nobody tells", "gpu_names": "no driver"},
)
ENGINE = sample.engine(
    version="engine 1",
    commit="abc123",
    system_info="CPU : AVX2 = 1 | FMA = 1 | ",
    devices=(sample.device(description="Evil\x1b[31m CPU", memory_free_bytes=None),),
    supports_rpc=False,
)

CHECKUP = Checkup(
    governor=None,
    clock_driver=None,
    energy_preference=None,
    power_plan=None,
    turbo=None,
    on_battery=False,
    temperature_c=None,
    temperature_limit_c=None,
    neighbours=(),
    cpu_quota=2.0,
    throttled_fraction=0.0,
    container="docker",
    virtual_machine=True,
    cpu_features=("avx2", "fma"),
    page_bytes=4096,
    huge_pages="madvise",
    disk_free_bytes=10**12,
    unknown={"governor": "no clock here", "turbo": "no clock here", "temperature_c": "no sensor"},
)


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(doctor)
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


@pytest.fixture(autouse=True)
def facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(machine, "read_machine_facts", lambda: MACHINE)
    monkeypatch.setattr(inquiries, "read_engine_facts", lambda: ENGINE)
    monkeypatch.setattr(checking, "read_checkup", lambda _folder: CHECKUP)


def broken() -> EngineFacts:
    raise UnmeasurableError("libexample is missing", reason="no-engine")


def test_a_fine_machine_ends_with_0() -> None:
    result = run()
    assert result.exit_code == 0
    assert "engine 1 (abc123)" in result.stdout
    assert "2 (cgroup quota 2 CPUs)" in result.stdout
    assert "unknown (nobody tells)" in result.stdout
    assert "CPU : AVX2, FMA" in result.stdout
    assert "2 of 4 cores" in result.stdout
    assert "no clock here" in result.stdout
    assert "Nothing needs fixing." in result.stdout


@pytest.mark.parametrize(
    ("has_gpu", "supports_rpc", "words"),
    [
        (True, True, "layers can be placed on CUDA0"),
        (False, True, "to remote devices only"),
        (False, False, "none: the CPU does all"),
    ],
)
def test_offload_is_told_by_the_devices(
    monkeypatch: pytest.MonkeyPatch, has_gpu: bool, supports_rpc: bool, words: str
) -> None:
    gpu = dataclasses.replace(ENGINE.devices[0], name="CUDA0", kind="gpu")
    devices = (*ENGINE.devices, gpu) if has_gpu else ENGINE.devices
    facts = dataclasses.replace(ENGINE, devices=devices, supports_gpu_offload=True, supports_rpc=supports_rpc)
    monkeypatch.setattr(inquiries, "read_engine_facts", lambda: facts)
    assert words in run().stdout


def test_no_control_character_reaches_the_terminal() -> None:
    assert "\x1b" not in run().stdout


def test_an_engine_that_can_not_be_loaded_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inquiries, "read_engine_facts", broken)
    result = run()
    assert result.exit_code == 1
    assert "the engine can not be loaded: libexample is missing" in result.stdout
    assert "Nothing needs fixing." not in result.stdout


def test_json() -> None:
    result = run("--format", "json")
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert document["schema_version"] == 1
    assert document["machine"]["usable_cpus"] == 2
    assert document["machine"]["cpu_name"] is None
    assert document["engine"]["devices"][0]["memory_free_bytes"] is None
    assert [advice["code"] for advice in document["advice"]] == ["cores-limited"]
    assert document["ok"] is True
    status = {check["code"]: check["status"] for check in document["checks"]}
    assert status == {
        "engine": "ok",
        "gpu-build": "ok",
        "build-features": "ok",
        "governor": "unknown",
        "turbo": "unknown",
        "battery": "ok",
        "heat": "unknown",
        "cpu-users": "ok",
        "gpu-users": "unknown",
        "cores": "note",
        "cpu-quota": "note",
        "container": "note",
        "memory": "ok",
        "swap": "ok",
        "disk": "ok",
        "page-size": "ok",
    }
    assert document["facts"]["cpu_quota"] == 2.0


def test_a_warning_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = dataclasses.replace(CHECKUP, on_battery=True)
    monkeypatch.setattr(checking, "read_checkup", lambda _folder: flat)
    result = run()
    assert result.exit_code == 1
    assert "it runs on battery: clocks are held down: plug it in" in result.stdout
    assert "Nothing needs fixing." not in result.stdout


def test_json_without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inquiries, "read_engine_facts", broken)
    result = run("--format", "json")
    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert document["engine"] is None
    assert document["advice"][0]["code"] == "engine-unusable"
