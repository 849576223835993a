"""Answers of Ollama's API (`/api/generate`, `/api/chat`): durations in nanoseconds in the last object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.logs.base import Gathering, Parser, Request, known, steps_rate
from reports.logs.ollama_verbose import NO_COUNT
from reports.text import clean

_NS = 1e-9
_DURATIONS = {
    "total_duration": "total_s",
    "load_duration": "load_s",
    "prompt_eval_duration": "prefill_s",
    "eval_duration": "decode_s",
}
_COUNTS = {
    "prompt_eval_count": "n_prompt",
    "prompt_eval_cached_count": "n_prompt_cached",
    "eval_count": "n_output",
}


class OllamaJson(Parser):
    """See the module."""

    name = "Ollama API JSON"
    gives = ("load_s", "n_prompt", "prefill_s", "n_output", "decode_s", "total_s")
    looks_for = '`"prompt_eval_duration": 391000000, "eval_count": 70, "eval_duration": ...`'
    obtain = "the last object that POST /api/generate or /api/chat returns"

    def document(self, value: Mapping[str, Any], number: int, found: Gathering) -> bool:
        if "eval_duration" not in value and "prompt_eval_duration" not in value:
            return False
        facts: dict[str, Any] = {name: value.get(key) for key, name in _COUNTS.items()}
        for key, name in _DURATIONS.items():
            duration = value.get(key)
            is_number = isinstance(duration, int | float) and not isinstance(duration, bool)
            facts[name] = float(duration) * _NS if is_number and duration is not None else duration
        n_output, decode_s = facts["n_output"], facts["decode_s"]
        if isinstance(n_output, int) and isinstance(decode_s, float):
            facts["decode_tok_s"] = steps_rate(n_output, decode_s)
        found.add(
            Request(
                source=self.name,
                line=number,
                label=clean(str(value.get("model", "")), limit=40),
                facts=known(facts) | {"engine": "ollama"},
                expected=self.gives,
                notes=() if facts["n_prompt"] is not None else (NO_COUNT,),
            )
        )
        return True
