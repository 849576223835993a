"""The timing lines that llama.cpp's programs share, put together to the facts of one request.

All print `prompt eval time = 32.12 ms / 8 tokens`, `eval time = 296.94 ms / 23 runs`, `total time = ...`; who
printed them and around what differs, and is told by the parsers.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

from reports.logs.base import known, steps_rate
from reports.logs.numbers import NUMBER, count, number
from reports.units import duration, token_rate

MARKS = (" time",)

_TIME = re.compile(
    rf"(?P<what>prompt eval|eval|load|total|sampling|sample)\s+time\s*=\s*(?P<ms>{NUMBER})\s*ms"
    rf"(?:\s*/\s*(?P<n>{NUMBER})\s*(?P<unit>tokens?|runs?))?"
    rf"(?:.*?(?P<rate>{NUMBER})\s*tokens per second)?"
)
_SAME_RATE = 0.1
_SLACK = 0.05
"""Times of one print that add up to within this share of its total are taken for the whole."""
_SLACK_S = 0.005


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One line."""

    what: str
    """`prompt`, `eval`, `load`, `total` or `sample`."""
    seconds: float
    """NaN or infinite where so printed."""
    n: int | None
    unit: str
    """`tokens`, `runs`, or empty."""
    rate: float | None
    """Tokens per second, as printed."""


def read_timing(text: str) -> Timing | None:
    """The timing that a line states; None where it states none."""
    match = _TIME.search(text)
    if match is None:
        return None
    what = {"prompt eval": "prompt", "sampling": "sample"}.get(match["what"], match["what"])
    return Timing(
        what=what,
        seconds=number(match["ms"]) / 1000,
        n=None if match["n"] is None else count(match["n"]),
        unit=(match["unit"] or "").rstrip("s") + "s" if match["unit"] else "",
        rate=None if match["rate"] is None else number(match["rate"]),
    )


class Block:
    """The lines of one print."""

    def __init__(self) -> None:
        self.lines: dict[str, Timing] = {}

    def takes(self, timing: Timing) -> bool:
        """Adds a line; False where the print has that line already, so that this one begins the next."""
        if timing.what in self.lines:
            return False
        self.lines[timing.what] = timing
        return True

    @property
    def is_request(self) -> bool:
        """A phase is timed: a load or a total alone is no request."""
        return "prompt" in self.lines or "eval" in self.lines

    def facts(self, *, first_in_runs: bool) -> tuple[dict[str, Any], list[str]]:
        """Facts and remarks. `first_in_runs`: `N runs` counts generated tokens, not steps."""
        notes: list[str] = []
        if self._is_uncounted:
            notes.append(
                "all counters of this print are 0: the program runs with its timers off (no_perf; in"
                " llama-cpp-python construct Llama with no_perf=False), so its times are left out"
            )
            return {}, notes
        evaluated, prefill_s = self._prompt(notes)
        n_output, decode_s = self._answer(notes, first_in_runs=first_in_runs)
        facts = {
            "n_prompt": evaluated,
            "prefill_s": prefill_s,
            "n_output": n_output,
            "decode_s": decode_s,
            "sampling_s": self._seconds("sample", notes),
            "total_s": self._seconds("total", notes),
            "load_s": self._seconds("load", notes),
            "prefill_tok_s": evaluated / prefill_s if evaluated and prefill_s else None,
            "decode_tok_s": steps_rate(n_output, decode_s),
        }
        return known(facts), notes

    @property
    def _is_uncounted(self) -> bool:
        """The bindings switch the engine's timers off by default; the print then says 0.00 ms all through."""
        timed = [line.seconds for name, line in self.lines.items() if name in ("prompt", "eval")]
        return bool(timed) and not any(timed)

    def _seconds(self, what: str, notes: list[str]) -> float | None:
        line = self.lines.get(what)
        if line is None:
            return None
        if not math.isfinite(line.seconds) or line.seconds < 0:
            notes.append(f"the {_NAMES[what]} time is printed as {line.seconds * 1000:g} ms and is left out")
            return None
        return line.seconds

    def _prompt(self, notes: list[str]) -> tuple[int | None, float | None]:
        line, seconds = self.lines.get("prompt"), self._seconds("prompt", notes)
        if line is None or seconds is None:
            return (line.n if line else None), None
        if seconds == 0:
            # A prompt of one token, or one that is cached but for its last, is counted among the answer's.
            if line.n:
                notes.append(
                    f"{line.n} prompt {'token is' if line.n == 1 else 'tokens are'} printed with 0.00 ms:"
                    " its time was not counted as the prompt's and is taken as unknown"
                )
            return None, None
        if line.n:
            self._hold(line, line.n / seconds, notes)
        return line.n, seconds

    def _answer(self, notes: list[str], *, first_in_runs: bool) -> tuple[int | None, float | None]:
        """n runs are n steps and n + 1 tokens; what is counted in tokens has them all."""
        line, seconds = self.lines.get("eval"), self._seconds("eval", notes)
        if line is None or seconds is None or line.n is None:
            return None, seconds
        is_steps = line.unit == "runs" and not first_in_runs
        if seconds == 0:
            notes.append(f"the answer is printed with 0.00 ms for {line.n} {line.unit}: no step was timed")
            return (line.n + 1 if is_steps and line.n > 1 else None), None
        self._hold(line, line.n / seconds, notes)
        return (line.n + 1 if is_steps else line.n), seconds

    def _hold(self, line: Timing, rate: float, notes: list[str]) -> None:
        """The printed rate against time and count; some programs leave the first token out of it."""
        stated = line.rate
        if stated is None:
            return
        others = (rate, rate * (line.n - 1) / line.n if line.n else rate)
        if math.isfinite(stated) and any(abs(stated - one) <= _SAME_RATE * one for one in others):
            return
        notes.append(
            f"the {_NAMES[line.what]} rate is printed as {token_rate(stated)}, but time and count give"
            f" {token_rate(rate)}, which is used"
        )


_NAMES = {
    "prompt": "prompt eval",
    "eval": "eval",
    "load": "load",
    "total": "total",
    "sample": "sampling",
}


def settle_load(facts: dict[str, Any], notes: list[str]) -> None:
    """What the printed load time means for this request, in place.

    The engine lets it run on until the first evaluation ends, and prints it again for every later request.
    It is part of this wait only where the total has room for it.
    """
    load_s, total_s = facts.get("load_s"), facts.get("total_s")
    if load_s is None:
        return
    prefill_s = facts.get("prefill_s", 0.0)
    if total_s is None:
        if load_s < prefill_s:
            del facts["load_s"]
            notes.append(
                f"the printed load time ({duration(load_s)}) contains a part of the prompt, how much is not"
                " told: it is left out"
            )
        else:
            _without_prompt(facts, notes, load_s, prefill_s)
        return
    phases = prefill_s + facts.get("decode_s", 0.0) + facts.get("sampling_s", 0.0)
    rest = total_s - phases + _SLACK * total_s + _SLACK_S
    if load_s <= rest:
        return
    if prefill_s <= load_s <= rest + prefill_s:
        _without_prompt(facts, notes, load_s, prefill_s)
        return
    del facts["load_s"]
    facts["start"] = "loaded"
    notes.append(
        f"the printed load time ({duration(load_s)}) is no part of this request's total: it is the first"
        " request's, its evaluation included"
    )


def _without_prompt(facts: dict[str, Any], notes: list[str], load_s: float, prefill_s: float) -> None:
    if not 0 < prefill_s <= load_s:
        return
    facts["load_s"] = load_s - prefill_s
    notes.append(
        f"the printed load time ({duration(load_s)}) contains the first evaluation, which is taken out:"
        f" {duration(load_s - prefill_s)}"
    )
