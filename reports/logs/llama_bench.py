"""llama-bench in any of its five formats: the tests of one configuration together make one request.

Each row is read alone, so that one that is broken costs that row. A log may hold several tables.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from probes.errors import UsageError
from reports.imports.llama_bench import parse_llama_bench
from reports.imports.llama_bench_text import is_table_head
from reports.llama_bench import BenchTest
from reports.logs.base import Gathering, Parser, Request, known
from reports.text import clean

_MOST_TESTS = 5_000
_VARYING = (
    "n_prompt",
    "n_gen",
    "n_depth",
    "test_time",
    "samples_ns",
    "extras",
    "build_commit",
    "build_number",
)
_FIGURES = ("avg_ns", "stddev_ns", "avg_ts", "stddev_ts")
_CSV_HEAD = re.compile(r'^"?\w+"?(?:,"?\w+"?){5,}$')
_INSERT = re.compile(r"^\s*INSERT\s+INTO\s+\W?llama_bench\b", re.I)
_MIXTURE = re.compile(r"moe|\b\d+x\d|\bA\d+(?:\.\d+)?B\b", re.I)
_ACTIVE = re.compile(r"\bA(\d+(?:\.\d+)?)B\b")
_DENSE = frozenset(
    {
        "llama",
        "qwen2",
        "qwen3",
        "gemma",
        "gemma2",
        "gemma3",
        "phi2",
        "phi3",
        "falcon",
        "starcoder2",
        "stablelm",
    }
    | {"internlm2", "command-r", "cohere2", "granite", "olmo2", "smollm3", "gptneox", "mpt", "baichuan"}
)
"""Architectures of llama.cpp whose models are dense unless their size names experts (`8x7B`)."""


class LlamaBench(Parser):
    """See the module."""

    name = "llama-bench"
    has_tables = True
    marks = ("avg_ts", "llama_bench", "t/s")
    gives = ("n_prompt", "prefill_s", "n_output", "decode_s")
    looks_for = "`| ... | test | t/s |`, or its csv, json, jsonl and sql output"
    obtain = "llama-bench -m FILE (-o json keeps the samples)"

    def __init__(self) -> None:
        self._head = ""
        self._kind = ""
        self._tests: list[BenchTest] = []
        self._last_line = 0

    def line(self, text: str, number: int, found: Gathering) -> bool:
        line = text.strip()
        if "t/s" in line and is_table_head(line):
            self._head, self._kind = line, "md"
        elif "avg_ts" in line and _CSV_HEAD.match(line):
            self._head, self._kind = line, "csv"
        elif _INSERT.match(line):
            self._read(line, number, found)
        elif self._is_row(line):
            self._read(f"{self._head}\n{line}\n", number, found)
        else:
            return False
        self.in_table = bool(self._kind)
        return True

    def document(self, value: Mapping[str, Any], number: int, found: Gathering) -> bool:
        if "avg_ts" not in value or "n_gen" not in value:
            return False
        self._read(json.dumps([value]), number, found)
        return True

    def close(self, found: Gathering) -> None:
        kinds: dict[tuple[object, ...], list[BenchTest]] = {}
        for test in self._tests:
            kinds.setdefault(_configuration(test), []).append(test)
        for tests in kinds.values():
            label = clean(tests[0].model_type or "", limit=40)
            facts = known(_settings(tests[0]) | _rates(tests)) | {"engine": "llama.cpp", "start": "loaded"}
            found.add(
                Request(
                    source=self.name,
                    line=self._last_line,
                    label=label,
                    facts=facts,
                    expected=self.gives,
                    is_series=False,
                )
            )

    def _is_row(self, line: str) -> bool:
        """A line of the table that was begun; anything else ends it."""
        if self._kind == "md" and line.startswith("|"):
            return not set(line) <= set("|-: ")
        if self._kind == "csv" and line.startswith('"'):
            return True
        if line and not line.startswith("|"):
            self._kind, self.in_table = "", False
        return False

    def _read(self, text: str, number: int, found: Gathering) -> None:
        try:
            tests = parse_llama_bench(text).tests
        except UsageError as problem:
            found.note(f"line {number}: a row of llama-bench is left out: {problem}")
            return
        self._last_line = number
        if len(self._tests) < _MOST_TESTS:
            self._tests += tests


def _configuration(test: BenchTest) -> tuple[object, ...]:
    names = (field.name for field in dataclasses.fields(test))
    return tuple(getattr(test, name) for name in names if name not in _VARYING + _FIGURES)


def _settings(test: BenchTest) -> dict[str, Any]:
    backend = (test.backends or "").lower() or None
    on_gpu = backend not in (None, "cpu", "blas")
    flash = {0: False, 1: True}.get(-1 if test.flash_attn is None else test.flash_attn)
    layers = test.n_gpu_layers if test.n_gpu_layers is None or test.n_gpu_layers >= 0 else None
    return _model(test) | {
        "cpu_name": test.cpu_info or None,
        "gpu_name": test.gpu_info or None,
        "gpu_present": True if test.gpu_info or on_gpu else None,
        "backend": backend,
        "n_batch": test.n_batch,
        "n_ubatch": test.n_ubatch,
        "threads": test.n_threads,
        "type_k": test.type_k,
        "type_v": test.type_v,
        "flash_attn": flash,
        "n_gpu_layers_requested": layers if on_gpu else None,
        "kv_on_cpu": test.no_kv_offload if on_gpu else None,
        "experts_on_cpu": True if on_gpu and test.n_cpu_moe else None,
        "load_mode": None if test.load_mode == "auto" else test.load_mode,
    }


def _model(test: BenchTest) -> dict[str, Any]:
    """Size and kind; what a token reads follows for a dense model, and where the size class names the active
    parameters (`30B.A3B`)."""
    kind, size = test.model_type or "", test.model_size
    parts = kind.split(maxsplit=2)
    is_moe = True if _MIXTURE.search(kind) else False if parts and parts[0] in _DENSE else None
    active, params = _ACTIVE.search(kind), test.model_n_params
    read = size if is_moe is False else None
    if is_moe and active and params and size:
        read = round(size * min(1.0, float(active[1]) * 1e9 / params))
    return {
        "model_bytes": size,
        "bytes_per_token": read,
        "architecture_is_moe": is_moe,
        "quantization": clean(parts[2], limit=60) if len(parts) == 3 else None,
    }


def _rates(tests: Iterable[BenchTest]) -> dict[str, Any]:
    """The longest prompt and the longest answer at the least depth. Each generated token is one step here."""
    listed = list(tests)
    prompts = [test for test in listed if test.n_prompt and not test.n_gen]
    answers = [test for test in listed if test.n_gen and not test.n_prompt]
    facts: dict[str, Any] = {}
    if prompts:
        prompt = max(prompts, key=lambda test: (-test.n_depth, test.n_prompt))
        seconds = prompt.n_prompt / prompt.avg_ts
        facts |= {
            "n_prompt": prompt.n_prompt + prompt.n_depth,
            "n_prompt_cached": prompt.n_depth,
            "prefill_s": seconds,
            "prefill_tok_s": prompt.avg_ts,
        }
    if answers:
        answer = max(answers, key=lambda test: (-test.n_depth, test.n_gen))
        facts |= {
            "n_output": answer.n_gen,
            "decode_s": answer.n_gen / answer.avg_ts,
            "decode_tok_s": answer.avg_ts,
        }
    depths = {test.n_depth: test.avg_ts for test in answers}
    if len(depths) > 1:
        facts["decode_tok_s_at_depth"] = [[depth, rate] for depth, rate in sorted(depths.items())]
    return facts
