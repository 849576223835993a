"""LM Studio: the line under a chat's answer, `lms chat --stats`, and the `stats` of its REST replies.

None of them times the prompt; the time to the first token stands for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from reports.logs.base import Gathering, Parser, Request, known
from reports.logs.numbers import NUMBER, count, number
from reports.text import clean

_CHAT = re.compile(
    rf"(?P<rate>{NUMBER})\s*tok/sec\W+(?P<n>{NUMBER})\s*tokens(?:\W+(?P<ttft>{NUMBER})\s*s to first token)?"
)
_STAT = re.compile(
    rf"(?P<key>Tokens/Second|Time to First Token|Prompt Tokens|Predicted Tokens|Input Tokens|Output Tokens):"
    rf"\s*(?P<value>{NUMBER})"
)
_STATS = {
    "Tokens/Second": "decode_tok_s",
    "Time to First Token": "prefill_s",
    "Prompt Tokens": "n_prompt",
    "Input Tokens": "n_prompt",
    "Predicted Tokens": "n_output",
    "Output Tokens": "n_output",
}
_FAR = 12
TTFT_NOTE = "LM Studio does not time the prompt: the time to the first token stands for it"


class LmStudio(Parser):
    """See the module."""

    name = "LM Studio"
    marks = ("tok/sec", "Token")
    gives = ("n_prompt", "prefill_s", "n_output", "decode_tok_s")
    looks_for = "`42.10 tok/sec • 456 tokens • 0.52s to first token`"
    obtain = (
        "the line below an answer in the chat; lms chat --stats; the reply of POST /api/v0/chat/completions"
    )

    def __init__(self) -> None:
        self._stats: dict[str, Any] = {}
        self._last_line = 0

    def line(self, text: str, number: int, found: Gathering) -> bool:
        if match := _CHAT.search(text):
            self._add(_chat_facts(match), number, "", found)
            return True
        match = _STAT.search(text)
        if match is None:
            return False
        name = _STATS[match["key"]]
        if name in self._stats or number - self._last_line > _FAR:
            self._hand_over(found)
        self._last_line = number
        self._stats[name] = _value(name, match["value"])
        return True

    def close(self, found: Gathering) -> None:
        self._hand_over(found)

    def document(self, value: Mapping[str, Any], number: int, found: Gathering) -> bool:
        stats, usage = value.get("stats"), value.get("usage")
        if not isinstance(stats, dict) or "tokens_per_second" not in stats:
            return False
        counts = usage if isinstance(usage, dict) else {}
        about = value.get("model_info")
        info = about if isinstance(about, dict) else {}
        facts = {
            "decode_tok_s": stats["tokens_per_second"],
            "prefill_s": stats.get("time_to_first_token", stats.get("time_to_first_token_seconds")),
            "decode_s": stats.get("generation_time"),
            "load_s": stats.get("model_load_time_seconds"),
            "n_prompt": counts.get("prompt_tokens", stats.get("input_tokens")),
            "n_output": counts.get("completion_tokens", stats.get("total_output_tokens")),
            "quantization": info.get("quant"),
            "n_ctx": info.get("context_length"),
        }
        model = value.get("model", value.get("model_instance_id", ""))
        self._add(facts, number, clean(str(model), limit=40), found)
        return True

    def _hand_over(self, found: Gathering) -> None:
        stats, self._stats = self._stats, {}
        if "decode_tok_s" in stats:
            self._add(stats, self._last_line, "", found)

    def _add(self, facts: Mapping[str, Any], line: int, label: str, found: Gathering) -> None:
        found.add(
            Request(
                source=self.name,
                line=line,
                label=label,
                facts=known(facts) | {"engine": "lmstudio"},
                expected=self.gives,
                notes=(TTFT_NOTE,) if facts.get("prefill_s") is not None else (),
            )
        )


def _chat_facts(match: re.Match[str]) -> dict[str, Any]:
    return {
        "decode_tok_s": number(match["rate"]),
        "n_output": count(match["n"]),
        "prefill_s": number(match["ttft"]) if match["ttft"] else None,
    }


def _value(name: str, text: str) -> float | int | None:
    return count(text) if name.startswith("n_") else number(text)
