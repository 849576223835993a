"""Draws what is being measured on standard error.

A redraw is one short write, at most twice a second, so that the display costs the machine nothing
that a measurement could feel. Where standard error is no terminal, a plain line at the beginning of
each pass says how far it is.
"""

from __future__ import annotations

import time
from typing import TextIO

from probes.group_session import Doing
from profiler_cli.streams import is_live, write_error
from reports.text import clean

_SPACING_S = 0.5
_BESIDE = "tokenizing, sampling, one whole request"
_CLEAR = "\r\x1b[K"


class Progress:
    """Shows `Doing` records; `close` leaves a clean line."""

    def __init__(
        self, stream: TextIO | None, *, budget_s: float, passes: int, width: int, quiet: bool
    ) -> None:
        self._live = is_live(stream)
        self._quiet = quiet
        self._budget_s = budget_s
        self._passes = passes
        self._width = width
        self._started_s = time.monotonic()
        self._pass_started_s = self._started_s
        self._last_s = 0.0
        self._last_line = ""
        self._pass_index: int | None = None

    def show(self, doing: Doing) -> None:
        """Take the newest state; draws when it is time to."""
        if self._quiet:
            return
        now_s = time.monotonic()
        if doing.pass_index != self._pass_index:
            self._pass_index, self._pass_started_s = doing.pass_index, now_s
        line = self._describe(doing, now_s)
        if self._live and now_s - self._last_s >= _SPACING_S:
            self._last_s = now_s
            write_error(_CLEAR + line[: self._width - 1])
        elif not self._live:
            self._plain(doing)

    def close(self) -> None:
        """Take the line away."""
        if self._live and not self._quiet:
            write_error(_CLEAR)

    def _describe(self, doing: Doing, now_s: float) -> str:
        time_text = f"{_clock(now_s - self._started_s)} of at most {_clock(self._budget_s)}"
        left_s = self._left_s(doing, now_s)
        if left_s is not None:
            time_text += f", about {_clock(left_s)} left"
        parts = [time_text]
        if doing.pass_index is not None:
            parts.append(f"pass {doing.pass_index + 1}")
        parts.append(self._phase(doing))
        if doing.tokens_per_s:
            parts.append(f"{doing.tokens_per_s:,.0f} tok/s")
        parts.append(clean(doing.model_name))
        return " | ".join(parts)

    def _phase(self, doing: Doing) -> str:
        if doing.phase == "load":
            return "loading" if doing.load_share is None else f"loading {doing.load_share:.0%}"
        if doing.phase == "beside":
            return _BESIDE
        length = "" if doing.prompt_tokens is None else f" {doing.prompt_tokens:,}"
        at = f" (at {doing.position_tokens:,})" if doing.phase == "prefill" and doing.position_tokens else ""
        return f"{doing.phase}{length}{at}"

    def _left_s(self, doing: Doing, now_s: float) -> float | None:
        """From what a pass took before: the passes that are surely still to come."""
        if doing.pass_index is None or doing.pass_estimate_ns is None:
            return None
        pass_s = doing.pass_estimate_ns / 1e9
        passes_left = max(1, self._passes - doing.pass_index)
        left_s = passes_left * pass_s - (now_s - self._pass_started_s)
        return max(0.0, min(left_s, self._budget_s - (now_s - self._started_s)))

    def _plain(self, doing: Doing) -> None:
        pass_text = "" if doing.pass_index is None else f", pass {doing.pass_index + 1}"
        what = {"load": "loading", "beside": "tokenizing, sampling, one whole request"}.get(
            doing.phase, "measuring"
        )
        line = f"{clean(doing.model_name)}: {what}{pass_text}"
        if line != self._last_line:
            self._last_line = line
            write_error(line + "\n")


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
