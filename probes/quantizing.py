"""Making a model file of another type with the engine's own quantizer. It may crash: a worker calls it."""

from __future__ import annotations

import ctypes
import math
import os
import re
from collections.abc import Callable
from typing import Any

from llama_cpp import llama_cpp as lib

from probes.engine import EngineError
from probes.messages import Quantize, Quantized
from probes.text import clean_text

_ERROR = 4
_TENSOR = re.compile(r"\[\s*(\d+)/\s*(\d+)\]\s+(\S+)")
_NEW_TYPE = re.compile(r"size = .* MiB -> .* MiB \((\w+)\)")
_SIZE = re.compile(r"quant size\s*=\s*([\d.]+) Mi?B")
_NEEDS_MATRIX = "require an imatrix"
_MIB = 2**20


class _Log:
    """Listens to the engine's log, the only place where it tells how far it is and what comes of it."""

    def __init__(self, progress: Callable[[float], None]) -> None:
        self._progress = progress
        self.errors: list[str] = []
        self.tensor_bytes: int | None = None
        self.needs_importance_matrix = False
        self.types: dict[str, str] = {}
        self._tensor: str | None = None
        self.callback = lib.llama_log_callback(self._take)

    def _take(self, level: int, text: bytes, _user_data: Any) -> None:
        line = text.decode("utf-8", "replace")
        if level == _ERROR:
            self.errors.append(clean_text(line))
        elif match := _TENSOR.match(line):
            self._progress((int(match[1]) - 1) / max(1, int(match[2])))
            self._tensor = match[3]
        elif (match := _NEW_TYPE.match(line)) and self._tensor is not None:
            self.types[self._tensor] = match[1].upper()
        elif match := _SIZE.search(line):
            self.tensor_bytes = math.ceil((float(match[1]) + 0.01) * _MIB)
        elif _NEEDS_MATRIX in line:
            self.needs_importance_matrix = True


def quantize(command: Quantize, progress: Callable[[float], None]) -> Quantized:
    """Write one file from all parts of the source. `progress` gets the share done, 0 to 1.

    A trial reads the header alone and writes nothing. Raises EngineError.
    """
    params = lib.llama_model_quantize_default_params()
    params.ftype = command.file_type
    params.nthread = command.threads
    params.allow_requantize = command.requantize
    params.dry_run = command.trial
    source, target = os.fsencode(command.source), os.fsencode(command.target)
    log = _Log(progress)
    lib.llama_log_set(log.callback, ctypes.c_void_p(0))
    try:
        failed = lib.llama_model_quantize(source, target, ctypes.byref(params))
    finally:
        lib.llama_log_set(lib.llama_log_callback(0), ctypes.c_void_p(0))
    if failed:
        words = log.errors[-1] if log.errors else f"error {failed}"
        raise EngineError(f"the engine can not quantize this model: {words}", reason="quantize")
    return Quantized(
        tensor_bytes=log.tensor_bytes,
        needs_importance_matrix=log.needs_importance_matrix,
        types=log.types,
    )
