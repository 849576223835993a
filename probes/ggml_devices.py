"""Devices of the engine build, through the ggml library that `llama_cpp` ships."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Literal, cast

from probes.ggml_library import DeviceProperties, ggml
from probes.records import DeviceFacts

_KINDS = ("cpu", "gpu", "igpu", "accel", "meta")
"""In the order of `enum ggml_backend_dev_type` (ggml-backend.h)."""

_Kind = Literal["cpu", "gpu", "igpu", "accel", "meta", "unknown"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device with the pointer by which the library knows it, valid in this process alone."""

    handle: int
    facts: DeviceFacts


def devices() -> tuple[Device, ...]:
    """Every device that the registered backends offer, in the engine's order."""
    library = ggml()
    handles = [library.ggml_backend_dev_get(index) for index in range(library.ggml_backend_dev_count())]
    return tuple(Device(handle=handle, facts=_facts(handle)) for handle in handles)


def list_devices() -> tuple[DeviceFacts, ...]:
    """Facts of every device, in the engine's order."""
    return tuple(device.facts for device in devices())


def engine_commit() -> str | None:
    """The commit that the engine was built from, or None when it does not know."""
    ask = ggml().ggml_commit
    text = ask() if ask else None
    commit = text.decode("utf-8", "replace") if text else ""
    return commit if commit not in ("", "unknown") else None


def _facts(handle: int) -> DeviceFacts:
    library = ggml()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    library.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
    number = library.ggml_backend_dev_type(handle)
    properties = DeviceProperties()
    library.ggml_backend_dev_get_props(handle, ctypes.byref(properties))
    return DeviceFacts(
        name=library.ggml_backend_dev_name(handle).decode("utf-8", "replace"),
        description=library.ggml_backend_dev_description(handle).decode("utf-8", "replace"),
        kind=cast("_Kind", _KINDS[number] if 0 <= number < len(_KINDS) else "unknown"),
        memory_total_bytes=total.value or None,
        memory_free_bytes=free.value if total.value else None,
        pci_id=properties.device_id.decode("ascii", "replace").lower() if properties.device_id else None,
    )
