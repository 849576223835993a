"""Where the engine is to put things, as what its load call reads: devices, shares, overrides."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from probes.engine import EngineError
from probes.ggml_devices import Device, devices
from probes.ggml_library import ggml
from probes.records import Settings

_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""Names of the tensors that hold experts (llama.cpp, common/common.h, LLM_FFN_EXPS_REGEX)."""


class _Override(ctypes.Structure):
    """`struct llama_model_tensor_buft_override`."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


class Placing:
    """Pointers for `llama_model_params`, valid while this object lives. None leaves it to the engine.

    Raises EngineError where a setting names a device or buffer that is not there.
    """

    def __init__(self, settings: Settings, max_devices: int) -> None:
        known = devices()
        self._devices = _device_array(settings.devices, known)
        self._split = _split_array(settings.tensor_split, max_devices)
        self._overrides = _override_array(settings, known)

    @property
    def devices(self) -> int | None:
        """`ggml_backend_dev_t *`, ended by a null pointer."""
        return None if self._devices is None else ctypes.addressof(self._devices)

    @property
    def split(self) -> ctypes.Array[ctypes.c_float] | None:
        """`const float *`, one for each possible device."""
        return self._split

    @property
    def overrides(self) -> int | None:
        """`const struct llama_model_tensor_buft_override *`, ended by an empty one."""
        return None if self._overrides is None else ctypes.addressof(self._overrides)


def _device_array(names: Sequence[str], known: Sequence[Device]) -> ctypes.Array[ctypes.c_void_p] | None:
    if not names:
        return None
    if tuple(name.lower() for name in names) == ("none",):
        return (ctypes.c_void_p * 1)()
    by_name = {device.facts.name.lower(): device for device in known if device.facts.kind != "cpu"}
    handles = []
    for name in names:
        if name.lower() not in by_name:
            there = ", ".join(device.facts.name for device in by_name.values()) or "none"
            raise EngineError(
                f"--device {name}: no such device (there are: {there}); `llmphase devices` lists them",
                reason="device",
            )
        handles.append(by_name[name.lower()].handle)
    return (ctypes.c_void_p * (len(handles) + 1))(*handles)


def _split_array(shares: Sequence[float], max_devices: int) -> ctypes.Array[ctypes.c_float] | None:
    if not shares:
        return None
    if len(shares) > max_devices:
        raise EngineError(
            f"--tensor-split gives {len(shares)} shares; this engine build takes {max_devices} at the most",
            reason="tensor-split",
        )
    return (ctypes.c_float * max_devices)(*shares)


def _override_array(settings: Settings, known: Sequence[Device]) -> ctypes.Array[_Override] | None:
    """The user's own first: the engine takes the first pattern that matches."""
    buffers = {_name(handle).lower(): handle for handle in map(_buffer_type, known) if handle}
    asked = [override.rpartition("=")[::2] for override in settings.override_tensor]
    asked += [(rf"blk\.{layer}{_EXPERTS}", "CPU") for layer in range(settings.n_cpu_moe)]
    if not asked:
        return None
    array = (_Override * (len(asked) + 1))()
    for index, (pattern, buffer) in enumerate(asked):
        if buffer.lower() not in buffers:
            raise EngineError(
                f"--override-tensor {pattern}={buffer}: no such buffer (there are: {', '.join(buffers)})",
                reason="override-tensor",
            )
        array[index] = _Override(pattern=pattern.encode(), buffer_type=buffers[buffer.lower()])
    return array


def _buffer_type(device: Device) -> int | None:
    handle: int | None = ggml().ggml_backend_dev_buffer_type(device.handle)
    return handle


def _name(buffer_type: int) -> str:
    """The engine's name of a buffer type."""
    name: str = ggml().ggml_backend_buft_name(buffer_type).decode("utf-8", "replace")
    return name
