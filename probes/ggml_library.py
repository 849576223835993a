"""The ggml library that `llama_cpp` ships, by ctypes: the C functions used here and their types.

Signatures follow `ggml.h` and `ggml-backend.h`. Devices, backends, buffers, tensors and graphs are
opaque pointers, kept as plain integers.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from typing import Any

from llama_cpp import llama_cpp


class InitParams(ctypes.Structure):
    """`struct ggml_init_params`."""

    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


class DeviceProperties(ctypes.Structure):
    """`struct ggml_backend_dev_props`, with room for the flags at its end."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("capabilities", ctypes.c_bool * 64),
    )


SET_THREADS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)
"""`ggml_backend_set_n_threads_t`; a backend's registry knows it by name."""
EXTRA_BUFFER_TYPES = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
"""`ggml_backend_dev_get_extra_bufts_t`: an array that ends with a null pointer."""

FLOATS = ctypes.POINTER(ctypes.c_float)

_POINTER, _SIZE, _INT, _INT64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int64
_TEXT, _BOOL, _FLOAT = ctypes.c_char_p, ctypes.c_bool, ctypes.c_float
_SIZE_OUT = ctypes.POINTER(ctypes.c_size_t)

_SIGNATURES: dict[str, tuple[list[Any], Any]] = {
    # devices
    "ggml_backend_dev_count": ([], _SIZE),
    "ggml_backend_dev_get": ([_SIZE], _POINTER),
    "ggml_backend_dev_name": ([_POINTER], _TEXT),
    "ggml_backend_dev_description": ([_POINTER], _TEXT),
    "ggml_backend_dev_type": ([_POINTER], _INT),
    "ggml_backend_dev_memory": ([_POINTER, _SIZE_OUT, _SIZE_OUT], None),
    "ggml_backend_dev_get_props": ([_POINTER, ctypes.POINTER(DeviceProperties)], None),
    "ggml_backend_dev_backend_reg": ([_POINTER], _POINTER),
    "ggml_backend_dev_buffer_type": ([_POINTER], _POINTER),
    "ggml_backend_dev_supports_op": ([_POINTER, _POINTER], _BOOL),
    "ggml_backend_dev_init": ([_POINTER, _TEXT], _POINTER),
    "ggml_backend_reg_by_name": ([_TEXT], _POINTER),
    "ggml_backend_reg_get_proc_address": ([_POINTER, _TEXT], _POINTER),
    "ggml_backend_reg_dev_get": ([_POINTER, _SIZE], _POINTER),
    "ggml_backend_register": ([_POINTER], None),
    "ggml_backend_buft_name": ([_POINTER], _TEXT),
    "ggml_commit": ([], _TEXT),
    # memory and computing
    "ggml_backend_free": ([_POINTER], None),
    "ggml_backend_alloc_ctx_tensors_from_buft": ([_POINTER, _POINTER], _POINTER),
    "ggml_backend_buffer_is_host": ([_POINTER], _BOOL),
    "ggml_backend_buffer_free": ([_POINTER], None),
    "ggml_backend_tensor_set": ([_POINTER, _POINTER, _SIZE, _SIZE], None),
    "ggml_backend_tensor_get": ([_POINTER, _POINTER, _SIZE, _SIZE], None),
    "ggml_backend_tensor_copy": ([_POINTER, _POINTER], None),
    "ggml_backend_graph_compute": ([_POINTER, _POINTER], _INT),
    # tensors and graphs
    "ggml_init": ([InitParams], _POINTER),
    "ggml_free": ([_POINTER], None),
    "ggml_tensor_overhead": ([], _SIZE),
    "ggml_graph_overhead_custom": ([_SIZE, _BOOL], _SIZE),
    "ggml_get_name": ([_POINTER], _TEXT),
    "ggml_nbytes": ([_POINTER], _SIZE),
    "ggml_new_tensor_2d": ([_POINTER, _INT, _INT64, _INT64], _POINTER),
    "ggml_new_graph_custom": ([_POINTER, _SIZE, _BOOL], _POINTER),
    "ggml_build_forward_expand": ([_POINTER, _POINTER], None),
    "ggml_graph_n_nodes": ([_POINTER], _INT),
    "ggml_mul_mat": ([_POINTER, _POINTER, _POINTER], _POINTER),
    "ggml_mul": ([_POINTER, _POINTER, _POINTER], _POINTER),
    "ggml_add": ([_POINTER, _POINTER, _POINTER], _POINTER),
    "ggml_rms_norm": ([_POINTER, _POINTER, _FLOAT], _POINTER),
    "ggml_swiglu_split": ([_POINTER, _POINTER, _POINTER], _POINTER),
    "ggml_scale": ([_POINTER, _POINTER, _FLOAT], _POINTER),
    "ggml_reshape_2d": ([_POINTER, _POINTER, _INT64, _INT64], _POINTER),
    # number formats
    "ggml_quantize_chunk": ([_INT, FLOATS, _POINTER, _INT64, _INT64, _INT64, FLOATS], _SIZE),
}


class _Ggml:
    """The functions above, wherever the build keeps them: `ggml` or `ggml-base`. None: not in this build."""

    def __init__(self) -> None:
        libraries = _libraries()
        for name, (arguments, result) in _SIGNATURES.items():
            candidates = (getattr(library, name, None) for library in libraries)
            function = next((found for found in candidates if found is not None), None)
            if function is not None:
                function.argtypes, function.restype = arguments, result
            setattr(self, name, function)


def _libraries() -> Sequence[ctypes.CDLL]:
    """Where the functions are: in the very libraries that the engine uses.

    Linux and macOS search what the engine's library is linked to. Loading `ggml` by its file would map a
    second copy there (wheels hold copies where builds have links), whose devices the engine knows nothing of.
    Windows searches only the library itself, and never loads two of one name.
    """
    engine = llama_cpp._lib
    own_view = ctypes.CDLL(engine._name, handle=engine._handle)
    if sys.platform != "win32":
        return (own_view,)
    from llama_cpp._ctypes_extensions import load_shared_library
    from llama_cpp._ggml import libggml, libggml_base_path

    return (own_view, libggml, load_shared_library("ggml-base", libggml_base_path))


@functools.lru_cache(maxsize=1)
def ggml() -> Any:
    """The library, prepared once a process."""
    return _Ggml()
