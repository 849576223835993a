"""Facts that single loader lines state: layers, context, devices, threads, graph splits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from reports.logs.numbers import size_bytes
from reports.text import clean

_FAMILIES = {
    "CUDA": "cuda",
    "ROCm": "rocm",
    "HIP": "rocm",
    "Metal": "metal",
    "MTL": "metal",
    "Vulkan": "vulkan",
    "SYCL": "sycl",
    "GPUOpenCL": "opencl",
    "OpenCL": "opencl",
    "MUSA": "musa",
    "CANN": "cann",
}
"""Starts of buffer and device names."""
_MOST_DEVICES = 64

_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to")
_OLLAMA_LAYERS = re.compile(r"layers\.model=(\d+) layers\.offload=(\d+)")
_OLLAMA_LIBRARY = re.compile(r'msg="offload to (\w+)"|msg=offload library=(\w+)')
_CONTEXT = re.compile(
    r"(?:llama_\w+|common_\w+|\binit|srv\s+\w+):.*?\b(?P<key>n_ctx|n_batch|n_ubatch|flash_attn)\s*=\s*(?P<value>\w+)"
)
_FLASH = {"enabled": True, "1": True, "disabled": False, "0": False}
_FLASH_AUTO = re.compile(r"Flash Attention (?:was auto|not supported)?,?\s*(?:set to )?(enabled|disabled)")
_KV_TYPES = re.compile(r"K \((\w+)\):.*?V \((\w+)\):")
_THREADS = re.compile(r"\bn_threads\s*=\s*(\d+)(?:\s*\(n_threads_batch = \d+\))?(?:\s*/\s*(\d+))?")
_SPLITS = re.compile(r"\bsplits\s*=\s*(\d+)")
_DEVICE = re.compile(r"\bDevice (?P<device>\d+): (?P<name>[^,]+), (?:compute capability|gfx)")
_VULKAN = re.compile(r"ggml_vulkan: (?P<device>\d+) = (?P<name>[^|(]+?)\s*[(|]")
_USING = re.compile(r"using device (?P<device>[A-Za-z]+\d*) \((?P<name>[^)]+)\)")
_METAL = re.compile(r"ggml_metal\w*:\s*(?:picking default device|GPU name):\s*(?P<name>(?!MTL).+)")
_OVERRIDE = re.compile(r"exps\S* .*buffer type overridden to (\w+)")
_SYSTEM = re.compile(r'msg="system memory" total="([^"]+)"')
_MODE = re.compile(r"load_mode = (\w+)")


def note_backend(buffer: str, facts: dict[str, Any]) -> None:
    """The backend that a device's name tells."""
    family = next((name for start, name in _FAMILIES.items() if buffer.startswith(start)), None)
    if family:
        facts["backend"], facts["gpu_present"] = family, True
    elif buffer.startswith("RPC"):
        facts["remote_devices"] = 1


def add_device(name: str, device: str, facts: dict[str, Any]) -> None:
    """A device, told once or several times, by its index (`0`, `CUDA0`)."""
    devices: dict[str, str] = facts.setdefault("_devices", {})
    index = device.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
    if len(devices) < _MOST_DEVICES:
        devices[index] = clean(name, limit=80)
    facts["gpu_present"], facts["n_gpus"] = True, len(devices)
    facts["gpu_name"] = ", ".join(devices[index] for index in sorted(devices))


def _layers(text: str, facts: dict[str, Any]) -> bool:
    if match := _OFFLOADED.search(text):
        facts["layers_on_gpu"], facts["layers_total"] = int(match[1]), int(match[2])
        return True
    match = _OLLAMA_LAYERS.search(text)
    if match is None:
        return False
    facts.setdefault("layers_total", int(match[1]))
    facts.setdefault("layers_on_gpu", int(match[2]))
    library = _OLLAMA_LIBRARY.search(text)
    family = (library[1] or library[2]).lower() if library else "gpu"
    if family != "gpu":
        facts["backend"] = family
    facts["engine"] = "ollama"
    return True


def _context(text: str, facts: dict[str, Any]) -> bool:
    """A setting may be `auto`, which says nothing; what it resolved to has a line of its own."""
    match = _CONTEXT.search(text)
    if match is None:
        return False
    key, value = match["key"], match["value"]
    if key == "flash_attn":
        if value in _FLASH:
            facts[key] = _FLASH[value]
    elif value.isdecimal() and int(value):
        facts[key] = int(value)
    return True


def _flash(text: str, facts: dict[str, Any]) -> bool:
    match = _FLASH_AUTO.search(text)
    if match:
        facts["flash_attn"] = match[1] == "enabled"
    return match is not None


def _kv_types(text: str, facts: dict[str, Any]) -> bool:
    match = _KV_TYPES.search(text)
    if match:
        facts["type_k"], facts["type_v"] = match[1].lower(), match[2].lower()
    return match is not None


def _threads(text: str, facts: dict[str, Any]) -> bool:
    match = _THREADS.search(text)
    if match is None or not int(match[1]):
        return False
    facts["threads"] = int(match[1])
    if match[2] and int(match[2]):
        facts["logical_cpus"] = int(match[2])
    return True


def _splits(text: str, facts: dict[str, Any]) -> bool:
    match = _SPLITS.search(text)
    if match:
        facts["graph_splits"] = int(match[1])
    return match is not None


def _devices(text: str, facts: dict[str, Any]) -> bool:
    if match := (_DEVICE.search(text) or _VULKAN.search(text) or _USING.search(text)):
        add_device(match["name"], match["device"], facts)
        note_backend(match["device"], facts)
        return True
    match = _METAL.search(text)
    if match:
        add_device(match["name"], "0", facts)
        facts["backend"] = "metal"
    return match is not None


def _experts(text: str, facts: dict[str, Any]) -> bool:
    match = _OVERRIDE.search(text)
    if match and match[1].startswith("CPU"):
        facts["experts_on_cpu"] = True
    return match is not None


def _host_memory(text: str, facts: dict[str, Any]) -> bool:
    match = _SYSTEM.search(text)
    size = size_bytes(match[1]) if match else None
    if size:
        facts["memory_bytes"] = size
    return match is not None


def _mode(text: str, facts: dict[str, Any]) -> bool:
    match = _MODE.search(text)
    if match:
        facts["load_mode"] = match[1]
    return match is not None


READERS: tuple[Callable[[str, dict[str, Any]], bool], ...] = (
    _layers,
    _context,
    _kv_types,
    _flash,
    _threads,
    _splits,
    _devices,
    _experts,
    _host_memory,
    _mode,
)
"""Asked in this order until one knows the line."""
