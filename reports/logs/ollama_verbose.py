"""The statistics that `ollama run --verbose` prints after each answer."""

from __future__ import annotations

import re
from typing import Any

from reports.logs.base import Gathering, Parser, Request, known, steps_rate
from reports.logs.numbers import NUMBER, count, go_duration_s, number

_LINE = re.compile(
    r"(?<!\w)(?P<key>total duration|load duration|prompt eval (?:cached )?count|prompt eval duration"
    r"|prompt eval rate|eval count|eval duration|eval rate):\s*(?P<value>\S+)"
)
_DURATIONS = {
    "total duration": "total_s",
    "load duration": "load_s",
    "prompt eval duration": "prefill_s",
    "eval duration": "decode_s",
}
_COUNTS = {
    "prompt eval count": "n_prompt",
    "prompt eval cached count": "n_prompt_cached",
    "eval count": "n_output",
}
_RATES = {"prompt eval rate": "prefill_tok_s", "eval rate": "decode_tok_s"}
_NUMBER = re.compile(NUMBER)
_FAR = 40
NO_COUNT = (
    "the log has no prompt count: Ollama leaves it out, or counts cached tokens in it, when it has the prompt"
    " in its cache"
)


class OllamaVerbose(Parser):
    """See the module."""

    name = "ollama run --verbose"
    marks = ("duration:", "eval ")
    gives = ("load_s", "n_prompt", "prefill_s", "n_output", "decode_s", "total_s")
    looks_for = "`prompt eval duration: 391ms`, `eval rate: 16.29 tokens/s`"
    obtain = "ollama run MODEL --verbose, or /set verbose in a chat"

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {}
        self._notes: list[str] = []
        self._last_line = 0

    def line(self, text: str, number: int, found: Gathering) -> bool:
        match = _LINE.search(text)
        if match is None:
            return False
        key = match["key"]
        name = {**_DURATIONS, **_COUNTS, **_RATES}[key]
        if name in self._facts or key == "total duration" or number - self._last_line > _FAR:
            self._hand_over(found)
        self._last_line = number
        self._take(key, name, match["value"])
        if key == "eval rate":
            self._hand_over(found)
        return True

    def close(self, found: Gathering) -> None:
        self._hand_over(found)

    def _take(self, key: str, name: str, text: str) -> None:
        value: float | int | None
        if key in _DURATIONS:
            value = go_duration_s(text)
        elif key in _COUNTS:
            value = count(text)
        else:
            match = _NUMBER.match(text)
            value = number(match[0]) if match else None
        if value is None:
            self._notes.append(f"{key} {text[:40]!r} is not understood and left out")
        else:
            self._facts[name] = value

    def _hand_over(self, found: Gathering) -> None:
        facts, notes = self._facts, self._notes
        self._facts, self._notes = {}, []
        if not facts.keys() & {"prefill_s", "decode_s", "decode_tok_s"}:
            return
        if "n_prompt" not in facts:
            notes.append(NO_COUNT)
        found.add(
            Request(
                source=self.name,
                line=self._last_line,
                label="",
                facts=known(facts | _rates(facts)) | {"engine": "ollama"},
                expected=self.gives,
                notes=tuple(notes),
            )
        )


def _rates(facts: dict[str, Any]) -> dict[str, Any]:
    """The answer's rate in steps, where what is printed is tokens over time and so agrees with it."""
    stated, tokens, seconds = facts.get("decode_tok_s"), facts.get("n_output"), facts.get("decode_s")
    if not tokens or not seconds:
        return {}
    if stated is None or abs(stated * seconds - tokens) <= 0.02 * tokens + 0.02 * stated:
        return {"decode_tok_s": steps_rate(tokens, seconds)}
    return {}
