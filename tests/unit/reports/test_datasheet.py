"""The table of public figures: found by any spelling of a name, never for another device."""

from __future__ import annotations

import re

import pytest

from reports.datasheet import facts_about, find, rows_of, sheets
from reports.facts import evidence_from

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "found", "gb_s"),
    [
        ("RTX 3090", "RTX 3090", 936),
        ("NVIDIA GeForce RTX 3090", "RTX 3090", 936),
        ("RTX4090", "RTX 4090", 1008),
        ("RTX 2080Ti", "RTX 2080 Ti", 616),
        ("NVIDIA GeForce RTX 3080 Ti Laptop GPU", "RTX 3080 Ti Laptop", 512),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM", 2039),
        ("NVIDIA H100 80GB HBM3", "H100 HBM3", 3350),
        ("AMD Radeon RX 7900 XTX (RADV NAVI31)", "RX 7900 XTX", 960),
        ("Intel(R) Arc(TM) B580 Graphics", "Arc B580", 456),
        ("Apple M2 Max", "M2 Max", 400),
    ],
)
def test_a_device_by_any_spelling(name: str, found: str, gb_s: float) -> None:
    (sheet,) = find(name)
    assert sheet.name == found
    assert sheet.bandwidth_bytes_s == gb_s * 1e9


@pytest.mark.parametrize("name", ["RTX 3090 Ultra", "GTX 3090", "RTX 4090 Laptop Ti", "Mali-G720", "", "RTX"])
def test_another_device_is_unknown(name: str) -> None:
    assert find(name) == ()


def test_a_card_of_two_processors_is_two_devices() -> None:
    # 2 x 12 GiB at 2 x 240 GB/s: the driver lists two, layers are read from one at a time.
    (half,) = find("Tesla K80")
    assert (half.memory_bytes, half.bandwidth_bytes_s) == (12 * GIB, 240e9)
    assert facts_about({"gpu_name": "2x Tesla K80"})["gpu_memory_bytes"] == 24 * GIB


def test_memory_tells_variants_apart() -> None:
    assert {sheet.memory_bytes for sheet in find("RTX 3060")} == {8 * GIB, 12 * GIB}
    assert [sheet.bandwidth_bytes_s for sheet in find("RTX 3060 12GB")] == [360e9]
    assert [sheet.bandwidth_bytes_s for sheet in find("RTX 3060", 12_000_000_000)] == [360e9]


def test_of_variants_the_slowest_and_no_size() -> None:
    assert facts_about({"gpu_name": "A100"}) == {
        "gpu_bandwidth_bytes_s": 1555e9,
        "n_gpus": 1,
        "gpu_present": True,
        "unified_memory": False,
    }


@pytest.mark.parametrize("name", ["2x RTX 3090", "RTX 3090 x2", "RTX 3090, RTX 3090"])
def test_several_devices_add_their_memory_and_take_turns(name: str) -> None:
    facts = facts_about({"gpu_name": name})
    assert facts["gpu_memory_bytes"] == 48 * GIB
    assert facts["gpu_bandwidth_bytes_s"] == 936e9
    assert facts["n_gpus"] == 2


def test_an_unknown_device_beside_a_known_one_leaves_both_unknown() -> None:
    assert facts_about({"gpu_name": "RX 7900 XT + V3D 7.1"}) == {}


def test_what_is_known_is_not_told_again() -> None:
    assert "gpu_bandwidth_bytes_s" not in facts_about({"gpu_name": "RTX 3090", "gpu_bandwidth_bytes_s": 5.0})
    assert facts_about({"gpu_name": "RTX 3090", "gpu_present": False}) == {}


def test_a_shared_memory_is_no_devices_own() -> None:
    facts = facts_about({"gpu_name": "Apple M1"})
    assert facts["unified_memory"] is True
    assert "gpu_memory_bytes" not in facts


def test_facts_get_the_sheets_figures_as_such() -> None:
    evidence = evidence_from({"gpu_name": "RTX 3090", "decode_tok_s": 5.0}).evidence
    assert evidence.gpu_bandwidth_bytes_s == 936e9
    assert evidence.sources["gpu_bandwidth_bytes_s"] == "data sheet"
    assert evidence.sources["gpu_memory_bytes"] == "data sheet"


def test_every_row_is_whole_and_found_by_its_own_name() -> None:
    for sheet in sheets():
        assert sheet.source
        assert 50e9 <= sheet.bandwidth_bytes_s <= 10e12
        assert sheet.memory_bytes is not None or sheet.is_unified
        assert sheet in rows_of(sheet.name)


def test_a_row_names_a_page_or_shows_a_sum_that_is_right() -> None:
    derived = [sheet for sheet in sheets() if sheet.basis != "page"]
    assert derived
    for sheet in derived:
        sum_ = re.fullmatch(r"derived: (\d+) bit x ([\d.]+) Gbit/s / 8", sheet.basis)
        assert sum_ is not None, sheet
        gb_s = int(sum_[1]) * float(sum_[2]) / 8
        assert sheet.bandwidth_bytes_s / 1e9 == pytest.approx(gb_s, abs=0.5)
        assert sheet.origin == f"{sheet.source}, {sheet.basis}"
    for sheet in set(sheets()) - set(derived):
        assert sheet.origin == sheet.source
        assert sheet.source.startswith("https://")
