"""Timing prints of llama.cpp's command-line programs and of its bindings, of both generations.

`llama_print_timings: ...` (until autumn 2024), `llama_perf_context_print: ...` and `common_perf_print: ...`
since; llama-cpp-python prints them after each call, and before it how much of the prompt it found cached.
"""

from __future__ import annotations

import re

from reports.logs.base import Gathering, Parser, Request
from reports.logs.numbers import NUMBER, count
from reports.logs.timing_lines import MARKS, Block, Timing, read_timing, settle_load

_PREFIX_HIT = re.compile(rf"(?P<cached>{NUMBER})?\s*prefix-match hit(?:, remaining (?P<left>{NUMBER}))?")
_COUNTS_TOKENS = re.compile(r"(?<!llama_)print_timings?:")
"""The server's print of 2023 and 2024 says `runs` for tokens."""
_FAR = 200
"""Lines after which what is open is a print of its own."""


class LlamaPrints(Parser):
    """See the module."""

    name = "llama.cpp timings"
    marks = (*MARKS, "prefix-match hit")
    gives = ("n_prompt", "n_prompt_cached", "prefill_s", "n_output", "decode_s", "total_s")
    looks_for = "`prompt eval time = ... ms / ... tokens` and `eval time = ... ms / ... runs`"
    obtain = "llama-cli prints it at its end; llama-cpp-python with Llama(verbose=True, no_perf=False)"

    def __init__(self) -> None:
        self._block = Block()
        self._last_line = 0
        self._counts_tokens = False
        self._cached: int | None = None
        self._is_hit = False
        self._engine: str | None = None

    def line(self, text: str, number: int, found: Gathering) -> bool:
        if "prefix-match hit" in text:
            self._hit(text)
            return True
        timing = read_timing(text)
        if timing is None:
            return False
        if number - self._last_line > _FAR:
            self._hand_over(found)
        self._last_line = number
        self._counts_tokens = self._counts_tokens or bool(_COUNTS_TOKENS.search(text))
        self._take(timing, found)
        return True

    def close(self, found: Gathering) -> None:
        self._hand_over(found)

    def _take(self, timing: Timing, found: Gathering) -> None:
        if not self._block.takes(timing):
            self._hand_over(found)
            self._block.takes(timing)
        if timing.what == "total" and self._block.is_request:
            self._hand_over(found)

    def _hit(self, text: str) -> None:
        """`Llama.generate: 34 prefix-match hit, remaining 1 prompt tokens to eval`; older ones without
        numbers."""
        match = _PREFIX_HIT.search(text)
        self._is_hit = True
        self._engine = "llama-cpp-python"
        self._cached = count(match["cached"]) if match and match["cached"] else None

    def _hand_over(self, found: Gathering) -> None:
        block, self._block = self._block, Block()
        cached, is_hit = self._cached, self._is_hit
        counts_tokens, self._counts_tokens = self._counts_tokens, False
        if not block.is_request:
            if "sample" in block.lines and "load" not in block.lines:
                # The sampler prints first, on its own; the context's lines follow.
                self._block.takes(block.lines["sample"])
            return
        self._cached, self._is_hit = None, False
        facts, notes = block.facts(first_in_runs=counts_tokens)
        if "n_prompt" in facts and cached is not None:
            facts["n_prompt_cached"] = cached
            facts["n_prompt"] += cached
        elif is_hit:
            notes.append("a part of the prompt came from the cache, and the log does not say how much")
        settle_load(facts, notes)
        if self._engine:
            facts["engine"] = self._engine
        found.add(
            Request(
                source=self.name,
                line=self._last_line,
                label="",
                facts=facts,
                expected=self.gives,
                notes=tuple(notes),
            )
        )
