"""GPUs in Linux's /sys: of AMD's the static facts and the state of each, as the driver describes them.

Attributes are those of amdgpu's kernel documentation (gpu_busy_percent, mem_info_*, hwmon, pp_dpm_sclk) and
of PCI devices. What a kernel or a card does not have is None. Numbers begin at `first_index`.
"""

from __future__ import annotations

from pathlib import Path

from probes.records import GpuFacts, GpuState

_AMD_VENDOR, _NVIDIA_VENDOR = "0x1002", "0x10de"
_DISPLAY_CLASS = "0x03"
_DEDICATED_MEMORY_BYTES = 2**30
"""AMD graphics with less memory of their own are small integrated ones: no model fits there."""
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""PCI Express generation by transfers per second and lane, in GT/s."""
_MHZ = 1e6


def amd_facts(root: Path = Path("/"), first_index: int = 0) -> tuple[GpuFacts, ...]:
    """What each AMD GPU with memory of its own is; empty on other systems."""
    return tuple(
        _facts(root, device, index) for index, device in enumerate(amd_devices(root), start=first_index)
    )


def amd_states(devices: tuple[Path, ...], first_index: int = 0) -> tuple[GpuState, ...]:
    """What each of these GPUs does now. `devices` come from `amd_devices`."""
    return tuple(_state(device, index) for index, device in enumerate(devices, start=first_index))


def amd_devices(root: Path = Path("/")) -> tuple[Path, ...]:
    """Folders of the AMD GPUs with memory of their own."""
    return tuple(
        device
        for device in sorted((root / "sys/class/drm").glob("card[0-9]*/device"))
        if _text(device / "vendor") == _AMD_VENDOR
        and (_number(device / "mem_info_vram_total") or 0) >= _DEDICATED_MEMORY_BYTES
    )


def has_nvidia_card(root: Path = Path("/")) -> bool:
    """Whether a display adapter or compute card of NVIDIA is on the bus, with a driver or without."""
    return any(
        _text(device / "vendor") == _NVIDIA_VENDOR and _text(device / "class").startswith(_DISPLAY_CLASS)
        for device in (root / "sys/bus/pci/devices").glob("*")
    )


def _facts(root: Path, device: Path, index: int) -> GpuFacts:
    version = _text(root / "sys/module/amdgpu/version")
    sensors = _sensors(device)
    return GpuFacts(
        index=index,
        name=_text(device / "product_name") or f"AMD GPU {_text(device / 'device')}".strip(),
        driver=f"amdgpu {version}" if version else "amdgpu",
        pci_id=_pci_id(device),
        memory_total_bytes=_number(device / "mem_info_vram_total"),
        link_generation=_generation(device / "current_link_speed"),
        link_generation_max=_generation(device / "max_link_speed"),
        link_width=_number(device / "current_link_width"),
        link_width_max=_number(device / "max_link_width"),
        power_limit_w=_scaled(_number(sensors / "power1_cap"), 1e-6),
        temperature_limit_c=_scaled(_number(sensors / "temp1_crit"), 1e-3),
    )


def _state(device: Path, index: int) -> GpuState:
    sensors = _sensors(device)
    busy = _number(device / "gpu_busy_percent")
    memory_busy = _number(device / "mem_busy_percent")
    now, highest = _clocks(_text(device / "pp_dpm_sclk"))
    power = _number(sensors / "power1_average")
    return GpuState(
        index=index,
        utilization=_scaled(busy, 0.01),
        clock_hz=_scaled(_number(sensors / "freq1_input"), 1.0) or now,
        clock_max_hz=highest,
        throttle_reasons=None,
        memory_used_bytes=_number(device / "mem_info_vram_used"),
        memory_total_bytes=_number(device / "mem_info_vram_total"),
        shared_memory_bytes=_number(device / "mem_info_gtt_used"),
        power_w=_scaled(_number(sensors / "power1_input") if power is None else power, 1e-6),
        temperature_c=_scaled(_number(sensors / "temp1_input"), 1e-3),
        foreign_processes=None,
        memory_utilization=_scaled(memory_busy, 0.01),
    )


def _sensors(device: Path) -> Path:
    """The folder of the card's sensors; one that does not exist where it has none."""
    return next(iter(sorted((device / "hwmon").glob("hwmon*"))), device / "hwmon")


def _clocks(table: str) -> tuple[float | None, float | None]:
    """The clock in use and the highest of a table such as `0: 500Mhz` / `1: 2475Mhz *`."""
    now, highest = None, None
    for line in table.splitlines():
        figure = line.partition(":")[2].strip().lower()
        digits = figure.partition("mhz")[0].strip()
        if "mhz" in figure and digits.isdecimal():
            clock = int(digits) * _MHZ
            highest = max(highest or 0.0, clock)
            now = clock if figure.endswith("*") else now
    return now, highest


def _generation(path: Path) -> int | None:
    """From `16.0 GT/s PCIe`."""
    speed = _text(path).partition(" ")[0]
    try:
        return _GENERATIONS.get(float(speed))
    except ValueError:
        return None


def _pci_id(device: Path) -> str | None:
    """The kernel names the device's folder by its place on the bus."""
    try:
        name = device.resolve().name.lower()
    except OSError:
        return None
    return name if name.count(":") == 2 else None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None


def _scaled(value: int | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _text(path: Path) -> str:
    """The content of a file of the kernel, trimmed; empty where there is none or it may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
