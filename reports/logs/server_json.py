"""Answers of llama-server: the `timings` object, in whichever reply it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.logs.base import Gathering, Parser, Request, known, steps_rate
from reports.text import clean


class ServerJson(Parser):
    """See the module."""

    name = "llama-server JSON"
    gives = ("n_prompt", "n_prompt_cached", "prefill_s", "n_output", "decode_s")
    looks_for = '`"timings": {"prompt_n": 35, "prompt_ms": 111.5, "predicted_n": 21, ...}`'
    obtain = "the reply of POST /completion or /v1/chat/completions of llama-server"

    def document(self, value: Mapping[str, Any], number: int, found: Gathering) -> bool:
        timings = value.get("timings")
        if not isinstance(timings, dict) or not timings.keys() & {"prompt_ms", "predicted_ms"}:
            return False
        evaluated, n_output = _count(timings.get("prompt_n")), _count(timings.get("predicted_n"))
        prefill_s, decode_s = _seconds(timings.get("prompt_ms")), _seconds(timings.get("predicted_ms"))
        whole = _whole_prompt(value, timings, evaluated)
        facts: dict[str, Any] = {
            "n_prompt": evaluated if whole is None else whole,
            "n_prompt_cached": whole - evaluated if whole is not None and evaluated is not None else None,
            "prefill_s": prefill_s,
            "n_output": n_output,
            "decode_s": decode_s,
            "prefill_tok_s": evaluated / prefill_s if evaluated and prefill_s else None,
            "decode_tok_s": steps_rate(n_output, decode_s),
            "speculative": True if _count(timings.get("draft_n")) else None,
            "sampler_top_k": _top_k(value),
        }
        found.add(
            Request(
                source=self.name,
                line=number,
                label=clean(str(value.get("id", value.get("model", ""))), limit=40),
                facts=known(facts) | {"engine": "llama.cpp", "start": "loaded"},
                expected=self.gives,
            )
        )
        return True


def _whole_prompt(value: Mapping[str, Any], timings: Mapping[str, Any], evaluated: int | None) -> int | None:
    """The prompt with its cached part: said in one of three places, by build."""
    cached = _count(timings.get("cache_n"))
    if cached is not None and evaluated is not None:
        return cached + evaluated
    usage = value.get("usage")
    whole = _count(value.get("tokens_evaluated"))
    if whole is None and isinstance(usage, dict):
        whole = _count(usage.get("prompt_tokens"))
    return whole if whole is not None and evaluated is not None and whole >= evaluated else None


def _top_k(value: Mapping[str, Any]) -> int | None:
    settings = value.get("generation_settings")
    return _count(settings.get("top_k")) if isinstance(settings, dict) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _seconds(value: object) -> float | None:
    return value / 1000 if isinstance(value, int | float) and not isinstance(value, bool) else None
