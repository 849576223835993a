"""The report of devices: rows and words, in every form."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
import sample_runs as sample
from gpu_samples import gpu, state

from probes.records import LinkFacts
from reports.devices import DevicesReport, build_devices_report
from reports.formats import DEVICES_FORMATS, TerminalStyle

GIB = 2**30
CUDA = sample.device(
    name="CUDA0",
    description="GPU A",
    kind="gpu",
    memory_total_bytes=24 * GIB,
    memory_free_bytes=20 * GIB,
)
RATES = (
    sample.ceiling(memory_bytes_s=20 * GIB),
    sample.ceiling(
        device="CUDA0",
        threads=None,
        memory_bytes_s=900 * GIB,
        compute_flops_s=1.5e14,
        transfer_bytes_s=12 * GIB,
        unknown={"rates": "busy: something else ran"},
    ),
)


def build(**changes: Any) -> DevicesReport:
    machine = sample.machine(
        gpu_names=("GPU A",),
        gpus=(gpu(link_generation=1, temperature_limit_c=93.0),),
        gpu_states=(state(throttle_reasons=("power-cap",), foreign_processes=2),),
    )
    arguments = {
        "machine": machine,
        "engine": sample.engine(devices=(sample.device(), CUDA)),
        "ceilings": RATES,
    } | changes
    return build_devices_report(arguments.pop("machine"), arguments.pop("engine"), **arguments)


def render(report: DevicesReport, form: str = "terminal", width: int = 80) -> str:
    return DEVICES_FORMATS[form].render(report, TerminalStyle(width=width, colour=False, unicode=True))


def test_a_device_has_its_rates_and_its_drivers_words() -> None:
    text = render(build())
    assert "CUDA0 GPU A" in text
    row = next(line for line in text.splitlines() if line.startswith("CUDA0"))
    assert row.split()[3:] == ["20.0", "GiB", "900", "GiB/s", "150", "TFLOP/s", "12.0", "GiB/s"]
    assert "generation 1 of 4 (it rises under load), 16 of 16 lanes" in text
    assert "1.80 of 2.00 GHz" in text
    assert "held down by     power-cap" in text
    assert "60 of 93 °C" in text
    assert "CUDA0: not known in all formats, or in doubt: rates: busy" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_gpu_that_the_build_can_not_use_is_said_so_with_the_line_that_mends_it() -> None:
    report = build(engine=sample.engine(), ceilings=RATES[:1])
    text = render(report)
    assert "GPU A (not usable)" in text
    assert "this engine can not use it" in text
    assert "[gpu-unused-build]" in text
    assert 'CMAKE_ARGS="-DGGML_CUDA=on -DGGML_RPC=on" \\\n  pip install' in text
    assert "-DGGML_VULKAN=on" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert [row.device for row in report.rows] == ["CPU", None]


def test_without_an_engine_the_drivers_still_speak() -> None:
    text = render(build(engine=None, ceilings=None, engine_problem="libcudart.so.12 is missing"))
    assert "libcudart.so.12 is missing" in text
    assert "GPU A" in text


def test_not_measured_is_no_figure() -> None:
    report = build(ceilings=None)
    assert "--no-measure" in render(report)
    assert {row.memory_bytes_s for row in report.rows} == {None}


def test_the_way_to_a_server_and_why_one_can_not_be_used() -> None:
    links = (
        LinkFacts(server="host:1", round_trip_s=0.0005, to_bytes_s=GIB, from_bytes_s=GIB, unknown={}),
        LinkFacts(
            server="host:2",
            round_trip_s=None,
            to_bytes_s=None,
            from_bytes_s=None,
            unknown={"server": "rpc: it refuses"},
        ),
    )
    text = render(build(links=links))
    assert "500 µs" in text
    assert "host:2: server: rpc: it refuses" in text


def test_json_and_csv_hold_the_same_figures() -> None:
    report = build()
    document = json.loads(render(report, "json"))
    rows = list(csv.DictReader(io.StringIO(render(report, "csv"))))
    lines = [json.loads(line) for line in render(report, "jsonl").splitlines()]
    assert document["schema_version"] == 1
    assert lines == document["devices"]
    assert [row["device"] for row in rows] == ["CPU", "CUDA0"]
    assert float(rows[1]["memory_bytes_s"]) == document["devices"][1]["memory_bytes_s"] == 900 * GIB
    assert (rows[1]["throttle_reasons"], rows[1]["foreign_processes"]) == ("power-cap", "2")
    assert rows[0]["transfer_bytes_s"] == ""


def test_names_are_harmless_in_every_form() -> None:
    evil = sample.device(name="CPU", description="=cmd()\x1b[31m|<b>")
    report = build(engine=sample.engine(devices=(evil,)))
    for form in DEVICES_FORMATS:
        assert "\x1b" not in render(report, form)
    assert "'=cmd()" in render(report, "csv")
    assert "<b>" not in render(report, "markdown").replace("\\<b\\>", "")


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_it_fits_the_page(width: int) -> None:
    assert all(len(line) <= width for line in render(build(), width=width).splitlines())
