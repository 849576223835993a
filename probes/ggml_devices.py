"""Devices of the engine build, through the ggml library that `llama_cpp` ships."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Literal, cast

from llama_cpp._ctypes_extensions import load_shared_library
from llama_cpp._ggml import libggml, libggml_base_path

from probes.records import DeviceFacts

_KINDS = ("cpu", "gpu", "igpu", "accel", "meta")
"""In the order of `enum ggml_backend_dev_type` (ggml-backend.h)."""

_Kind = Literal["cpu", "gpu", "igpu", "accel", "meta", "unknown"]


def list_devices() -> tuple[DeviceFacts, ...]:
    """Every device that the registered backends offer, in the engine's order."""
    library = _library()
    return tuple(
        _device(library, ctypes.c_void_p(library.ggml_backend_dev_get(index)))
        for index in range(library.ggml_backend_dev_count())
    )


def engine_commit() -> str | None:
    """The commit that the engine was built from, or None when it does not know."""
    ask = _library().ggml_commit
    text = ask() if ask else None
    commit = text.decode("utf-8", "replace") if text else ""
    return commit if commit not in ("", "unknown") else None


def _device(library: Any, device: ctypes.c_void_p) -> DeviceFacts:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    library.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
    number = library.ggml_backend_dev_type(device)
    return DeviceFacts(
        name=library.ggml_backend_dev_name(device).decode("utf-8", "replace"),
        description=library.ggml_backend_dev_description(device).decode("utf-8", "replace"),
        kind=cast("_Kind", _KINDS[number] if 0 <= number < len(_KINDS) else "unknown"),
        memory_total_bytes=total.value or None,
        memory_free_bytes=free.value if total.value else None,
    )


_SIGNATURES: tuple[tuple[str, list[Any], Any], ...] = (
    ("ggml_backend_dev_count", [], ctypes.c_size_t),
    ("ggml_backend_dev_get", [ctypes.c_size_t], ctypes.c_void_p),
    ("ggml_backend_dev_name", [ctypes.c_void_p], ctypes.c_char_p),
    ("ggml_backend_dev_description", [ctypes.c_void_p], ctypes.c_char_p),
    ("ggml_backend_dev_type", [ctypes.c_void_p], ctypes.c_int),
    (
        "ggml_backend_dev_memory",
        [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)],
        None,
    ),
    ("ggml_commit", [], ctypes.c_char_p),
)


class _Ggml:
    """The functions used here, wherever the build keeps them: `ggml` or `ggml-base`."""

    def __init__(self) -> None:
        libraries = (libggml, load_shared_library("ggml-base", libggml_base_path))
        for name, arguments, result in _SIGNATURES:
            function = next((f for f in (getattr(library, name, None) for library in libraries) if f), None)
            if function is not None:
                function.argtypes, function.restype = arguments, result
            setattr(self, name, function)


@functools.lru_cache(maxsize=1)
def _library() -> Any:
    return _Ggml()
