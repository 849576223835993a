"""Loader lines of llama.cpp, whatever program it runs in, and of Ollama's own engine.

They tell where weights, cache and buffers really are, which the settings do not. A new load begins a new set.
"""

from __future__ import annotations

import re
from typing import Any

from reports.logs.base import Gathering, Load, Parser
from reports.logs.loader_lines import READERS, add_device, note_backend
from reports.logs.model_lines import model_facts
from reports.logs.numbers import size_bytes

_MIB = 2**20
_HOST = ("CPU", "BLAS", "AMX")
_BUFFER = re.compile(
    r"(?P<buffer>[A-Za-z][\w\[\].-]*)\s+(?P<use>model |KV |RS )?buffer size\s*=\s*(?P<mib>[\d.]+) MiB"
)
_OLLAMA_WEIGHTS = re.compile(
    r'msg="model weights" (?:buffer|device)=(?P<buffer>\S+) size="?(?P<size>[^"]+)"?'
)
_BREAKDOWN = re.compile(
    r"memory_breakdown_print:\s*\|\s*-\s*(?P<device>\S+)(?:\s*\((?P<name>[^)]*)\))?\s*\|[^|]*?"
    r"(?P<self>\d+)\s*=\s*(?P<model>\d+)\s*\+\s*(?P<context>\d+)\s*\+\s*(?P<compute>\d+)"
)
_PRINT_INFO = re.compile(r"(?:print_info|llm_load_print_meta):\s*(?P<key>[\w ]+?)\s*=\s*(?P<value>.*)")
_NEW_LOAD = (
    "loaded meta data with",
    "loading model '",
    'msg="starting llama server"',
    'msg="starting runner"',
)


class Loader(Parser):
    """See the module."""

    name = "llama.cpp loader lines"
    marks = (
        "buffer",
        "llama",
        "load_",
        "loading model",
        "offload",
        "print_",
        "ggml_",
        "Device ",
        "msg=",
        "n_threads",
        "splits",
        "Flash Attention",
        "init: ",
    )
    looks_for = "`offloaded 20/33 layers to GPU`, `CUDA0 model buffer size = ...`"
    obtain = (
        "llama.cpp prints it while it loads; llama-cpp-python with verbose=True; Ollama in its server's log"
    )

    def __init__(self) -> None:
        self._fed: Load | None = None
        self._info: dict[str, str] = {}
        self._weights: dict[str, float] = {}
        self._caches: dict[str, float] = {}

    def line(self, text: str, number: int, found: Gathering) -> bool:
        del number
        if any(mark in text for mark in _NEW_LOAD):
            found.begin_load()
        if self._fed is not found.load:
            self._fed, self._info, self._weights, self._caches = found.load, {}, {}, {}
        facts = found.load.facts
        readers = (self._buffer, self._ollama_weights, self._breakdown, self._print_info, *READERS)
        return any(read(text, facts) for read in readers)

    def _buffer(self, text: str, facts: dict[str, Any]) -> bool:
        match = _BUFFER.search(text)
        if match is None:
            return False
        use = (match["use"] or "").strip()
        if use == "model" or (not use and "load_tensors" in text):
            self._place(self._weights, match["buffer"], float(match["mib"]) * _MIB, facts)
        elif use in ("KV", "RS"):
            self._place(self._caches, match["buffer"], float(match["mib"]) * _MIB, facts)
        return True

    def _ollama_weights(self, text: str, facts: dict[str, Any]) -> bool:
        match = _OLLAMA_WEIGHTS.search(text)
        size = size_bytes(match["size"]) if match else None
        if match is None or size is None:
            return False
        self._place(self._weights, match["buffer"], size, facts)
        facts["engine"] = "ollama"
        return True

    def _breakdown(self, text: str, facts: dict[str, Any]) -> bool:
        """The table at a program's end. Its last column may have run below zero; it is not read."""
        match = _BREAKDOWN.search(text)
        if match is None:
            return False
        device = match["device"]
        is_told = (
            any(_is_host(name) for name in self._weights) if device == "Host" else device in self._weights
        )
        if not is_told:
            buffer = "CPU" if device == "Host" else device
            self._place(self._weights, buffer, float(match["model"]) * _MIB, facts)
        if match["name"] and device != "Host":
            add_device(match["name"], device, facts)
        return True

    def _place(self, parts: dict[str, float], buffer: str, size: float, facts: dict[str, Any]) -> None:
        """Buffers of one device come in pieces and add up."""
        if not _is_host(buffer):
            note_backend(buffer, facts)
        parts[buffer] = parts.get(buffer, 0.0) + size
        on_host = sum(held for name, held in parts.items() if _is_host(name))
        on_device = sum(held for name, held in parts.items() if not _is_host(name))
        if parts is self._caches:
            facts["kv_on_cpu"] = on_host > 0 and not on_device
        else:
            facts["weights_on_cpu_bytes"] = round(on_host)
            facts["weights_on_gpu_bytes"] = round(on_device)

    def _print_info(self, text: str, facts: dict[str, Any]) -> bool:
        match = _PRINT_INFO.search(text)
        if match is None:
            return False
        self._info[match["key"].strip()] = match["value"].strip()
        facts.update(model_facts(self._info))
        return True


def _is_host(buffer: str) -> bool:
    return buffer.startswith(_HOST) or buffer.endswith("Host")
