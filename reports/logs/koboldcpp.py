"""The line that koboldcpp prints after each answer, in its three wordings.

`CtxLimit:3203/32000, Amt:861/2048, Init:0.01s, Process:13.56s (172.76T/s), Generate:41.13s (20.91T/s), ...`;
`CtxLimit: 1234/4096, Process:20.00s (15.9ms/T = 62.88T/s), Generate:...`;
`ContextLimit: 614/2048, Processing:0.43s (5.5ms/T), Generation:...`
"""

from __future__ import annotations

import re
from typing import Any

from reports.logs.base import Gathering, Parser, Request, known, steps_rate
from reports.logs.numbers import NUMBER, count, number

_PHASE = re.compile(
    rf"(?P<what>Process(?:ing)?|Generat(?:e|ion)|Total):\s*(?P<s>{NUMBER})s"
    rf"(?:\s*\((?:(?P<ms>{NUMBER})ms/T)?(?:\s*=?\s*(?P<rate>{NUMBER})\s*T/s)?)?"
)
_CONTEXT = re.compile(rf"(?:CtxLimit|ContextLimit):\s*(?P<used>{NUMBER})/(?P<most>{NUMBER})")
_AMOUNT = re.compile(rf"Amt:\s*(?P<n>{NUMBER})/")
_NAMES = {"P": "prefill", "G": "decode", "T": "total"}
_TOLERANCE_TOKENS = 2
_ROUNDED_S = 0.005
"""Times are printed to two places."""


class Koboldcpp(Parser):
    """See the module."""

    name = "koboldcpp"
    marks = ("Process",)
    gives = ("n_prompt", "n_prompt_cached", "prefill_s", "n_output", "decode_s", "total_s")
    looks_for = "`Process:13.56s (172.76T/s), Generate:41.13s (20.91T/s), Total:54.69s`"
    obtain = "koboldcpp prints it in its window after each answer"

    def line(self, text: str, number: int, found: Gathering) -> bool:
        phases = {_NAMES[match["what"][0]]: match for match in _PHASE.finditer(text)}
        if "prefill" not in phases or "decode" not in phases:
            return False
        found.add(
            Request(
                source=self.name,
                line=number,
                label="",
                facts=known(_facts(text, phases)) | {"engine": "koboldcpp", "start": "loaded"},
                expected=self.gives,
            )
        )
        return True


def _facts(text: str, phases: dict[str, re.Match[str]]) -> dict[str, Any]:
    """The total's T/s counts the answer's tokens over both phases and is no rate of either: it is not
    read."""
    prefill, decode = phases["prefill"], phases["decode"]
    prefill_s, decode_s = number(prefill["s"]), number(decode["s"])
    amount, context = _AMOUNT.search(text), _CONTEXT.search(text)
    evaluated = _tokens(prefill, prefill_s)
    n_output = count(amount["n"]) if amount else _tokens(decode, decode_s)
    used = count(context["used"]) if context else None
    # What is printed as 0.00 s made so few tokens that the context is the prompt's.
    whole = None if used is None else used - (n_output or 0)
    facts: dict[str, Any] = {
        "prefill_s": prefill_s or None,
        "decode_s": decode_s or None,
        "total_s": number(phases["total"]["s"]) if "total" in phases else None,
        "n_output": n_output,
        "n_prompt": evaluated if whole is None or whole < 0 else whole,
        "n_ctx": count(context["most"]) if context else None,
        "prefill_tok_s": _rate(prefill) if prefill_s else None,
        "decode_tok_s": steps_rate(n_output, decode_s) or (_rate(decode) if decode_s else None),
    }
    if whole is not None and evaluated is not None and whole >= 0:
        slack = _TOLERANCE_TOKENS + whole * _ROUNDED_S / max(prefill_s, _ROUNDED_S)
        facts["n_prompt_cached"] = whole - evaluated if whole - evaluated > slack else 0
    return facts


def _rate(phase: re.Match[str]) -> float | None:
    if phase["rate"]:
        return number(phase["rate"]) or None
    each_ms = number(phase["ms"]) if phase["ms"] else 0.0
    return 1000 / each_ms if each_ms else None


def _tokens(phase: re.Match[str], seconds: float) -> int | None:
    """Tokens out of time and rate; what is printed as 0.00 s tells none."""
    rate = _rate(phase)
    return round(rate * seconds) if rate and seconds and rate * seconds < 1e9 else None
