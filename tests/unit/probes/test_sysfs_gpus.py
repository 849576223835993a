"""AMD GPUs out of a simulated /sys."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fake_nvml import Card, FakeNvml

from probes import gpus
from probes.nvml import NvidiaDriver
from probes.records import GpuFacts, GpuState
from probes.sysfs_gpus import amd_devices, amd_facts, amd_states

GIB = 2**30
FILES = {
    "vendor": "0x1002",
    "device": "0x744c",
    "product_name": "Example XTX",
    "mem_info_vram_total": str(24 * GIB),
    "mem_info_vram_used": str(3 * GIB),
    "mem_info_gtt_used": str(GIB),
    "gpu_busy_percent": "75",
    "pp_dpm_sclk": "0: 500Mhz\n1: 1900Mhz *\n2: 2500Mhz",
    "current_link_speed": "16.0 GT/s PCIe",
    "max_link_speed": "16.0 GT/s PCIe",
    "current_link_width": "8",
    "max_link_width": "16",
    "hwmon/hwmon3/power1_average": "250000000",
    "hwmon/hwmon3/power1_cap": "339000000",
    "hwmon/hwmon3/temp1_input": "68000",
    "hwmon/hwmon3/temp1_crit": "100000",
}


def card(root: Path, number: int = 0, **changes: str | None) -> None:
    """A card as the kernel lays it out: `card0/device` is a link to its folder on the bus."""
    bus = root / f"sys/devices/pci0000:00/0000:0{number + 3}:00.0"
    for name, text in (FILES | changes).items():
        if text is not None:
            path = bus / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
    link = root / f"sys/class/drm/card{number}/device"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(bus)


def test_what_a_card_is(tmp_path: Path) -> None:
    card(tmp_path)
    version = tmp_path / "sys/module/amdgpu/version"
    version.parent.mkdir(parents=True)
    version.write_text("6.10.5\n")
    assert amd_facts(tmp_path, first_index=2) == (
        GpuFacts(
            index=2,
            name="Example XTX",
            driver="amdgpu 6.10.5",
            pci_id="0000:03:00.0",
            memory_total_bytes=24 * GIB,
            link_generation=4,
            link_generation_max=4,
            link_width=8,
            link_width_max=16,
            power_limit_w=339.0,
            temperature_limit_c=100.0,
        ),
    )


def test_what_a_card_does(tmp_path: Path) -> None:
    card(tmp_path)
    assert amd_states(amd_devices(tmp_path)) == (
        GpuState(
            index=0,
            utilization=0.75,
            clock_hz=1.9e9,
            clock_max_hz=2.5e9,
            throttle_reasons=None,
            memory_used_bytes=3 * GIB,
            memory_total_bytes=24 * GIB,
            shared_memory_bytes=GIB,
            power_w=250.0,
            temperature_c=68.0,
            foreign_processes=None,
        ),
    )


def test_files_that_are_missing_or_odd_are_none(tmp_path: Path) -> None:
    card(tmp_path, gpu_busy_percent=None, pp_dpm_sclk="S: 19Mhz", current_link_speed="Unknown")
    (state,) = amd_states(amd_devices(tmp_path))
    (facts,) = amd_facts(tmp_path)
    assert (state.utilization, facts.link_generation) == (None, None)
    # A deep sleep state is listed like any other; the highest of what is listed is known.
    assert (state.clock_hz, state.clock_max_hz) == (None, 19e6)


def test_small_integrated_and_other_makers_cards_are_left_out(tmp_path: Path) -> None:
    card(tmp_path, 0, mem_info_vram_total=str(512 * 2**20))
    card(tmp_path, 1, vendor="0x8086")
    assert amd_devices(tmp_path) == ()


def test_an_nvidia_card_without_its_driver_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    driver = NvidiaDriver()
    monkeypatch.setattr(gpus, "nvidia_driver", lambda: driver)
    assert gpus.list_gpus(tmp_path).problem == "no NVIDIA driver answers (library not found)"
    for name, text in (("vendor", "0x10de"), ("class", "0x030200")):
        path = tmp_path / "sys/bus/pci/devices/0000:01:00.0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    assert "on the PCI bus: install its driver" in (gpus.list_gpus(tmp_path).problem or "")


def test_numbers_go_on_after_those_of_nvidia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(Card(), Card(name="GPU B")))
    driver = NvidiaDriver()
    monkeypatch.setattr(gpus, "nvidia_driver", lambda: driver)
    card(tmp_path)
    listing = gpus.list_gpus(tmp_path)
    assert [gpu.name for gpu in listing.gpus] == ["GPU A", "GPU B", "Example XTX"]
    assert [gpu.index for gpu in listing.gpus] == [0, 1, 2]
    assert [state.index for state in gpus.gpu_states(root=tmp_path)] == [0, 1, 2]
    assert listing.problem is None
