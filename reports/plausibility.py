"""Facts held against one another: what can not be true together is named, and put right where it is plain
which of them is right.

Times and counts are what a program observed; rates, totals and shares follow from them and give way. Facts
are a dictionary by names of `Evidence` fields and are changed in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from reports.units import duration, percent, token_rate

SAME_RATE = 0.1
"""A printed rate further than this share from its time and count is not rounding."""
_SAME_TIME = 0.02
_PASS_SHARE = 0.1
"""A prompt pass reads the weights once, as a generated token does, and draws no token: below this share of a
step nothing was evaluated. Sampling, which is inside some programs' steps, seldom takes half of one."""
_ROOF_SHARE = 0.5
"""Of the time that one reading of the weights takes at full bandwidth: caches and rough sizes explain as
much, not more."""
_OVER_WALL = 0.03
_PROMPT_SHARE = 0.1
"""Share of the wait from which on a rate over all of it differs from the answer's own beyond rounding."""

Facts = dict[str, Any]


def contradictions(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Pairs of facts that can not both be true: the one that is less sure, and what is wrong."""
    for low, high, less_sure, what in _ORDERED:
        if low in facts and high in facts and facts[low] > facts[high]:
            yield less_sure, f"{low} ({facts[low]:,}) is above {high} ({facts[high]:,}): {what}"
    for key in ("layers_on_gpu", "weights_on_gpu_bytes", "gpu_memory_bytes"):
        if facts.get("gpu_present") is False and facts.get(key):
            yield "gpu_present", f"gpu_present is false, yet {key} is {facts[key]:,}"


_ORDERED = (
    ("n_prompt_cached", "n_prompt", "n_prompt_cached", "the cached tokens are a part of the prompt"),
    ("layers_on_gpu", "layers_total", "layers_on_gpu", "layers_total counts the output layer too"),
    ("n_experts_used", "n_experts", "n_experts_used", "a token uses some of the experts"),
)


def correct(facts: Facts) -> Iterator[str]:
    """Put right, in place, what has one plain reading; a remark for each."""
    for correction in _CORRECTIONS:
        remark = correction(facts)
        if remark:
            yield remark


def _usable_cpus(facts: Facts) -> str | None:
    if facts.get("usable_cpus", 0) <= facts.get("logical_cpus", math.inf):
        return None
    facts["usable_cpus"] = facts["logical_cpus"]
    return f"usable_cpus was above logical_cpus and is taken as {facts['logical_cpus']}"


def _bytes_per_token(facts: Facts) -> str | None:
    if facts.get("bytes_per_token", 0) <= facts.get("model_bytes", math.inf):
        return None
    facts["bytes_per_token"] = facts["model_bytes"]
    return "bytes_per_token was above model_bytes and is taken as model_bytes"


def _rate_over_wall(facts: Facts) -> str | None:
    """A program that divides the answer's tokens by the whole wait calls that its speed."""
    if not {"n_output", "total_s", "prefill_s", "decode_tok_s"} <= facts.keys() or "decode_s" in facts:
        return None
    tokens, total_s, rest_s = facts["n_output"], facts["total_s"], facts["total_s"] - facts["prefill_s"]
    if tokens < 2 or rest_s <= 0 or facts["prefill_s"] < _PROMPT_SHARE * total_s:
        return None
    stated = facts["decode_tok_s"]
    if abs(stated * total_s - tokens) > _OVER_WALL * tokens:
        return None
    facts["decode_tok_s"] = (tokens - 1) / rest_s
    return (
        f"decode_tok_s was {token_rate(stated)}, the answer over the whole wait; without the prompt's time it"
        f" is {token_rate(facts['decode_tok_s'])}, which is used"
    )


def _prefill_rate(facts: Facts) -> str | None:
    """Tools print a rate over all prompt tokens although some came from the cache."""
    if not {"prefill_s", "n_prompt", "prefill_tok_s"} <= facts.keys() or not facts["prefill_s"]:
        return None
    evaluated = facts["n_prompt"] - facts.get("n_prompt_cached", 0)
    return _rate(
        facts, "prefill_tok_s", (evaluated / facts["prefill_s"],), "prefill_s and the evaluated tokens"
    )


def _decode_rate(facts: Facts) -> str | None:
    """n tokens take n - 1 steps, and some tools divide by the one and some by the other."""
    if not {"decode_s", "n_output", "decode_tok_s"} <= facts.keys() or not facts["decode_s"]:
        return None
    tokens, seconds = facts["n_output"], facts["decode_s"]
    return _rate(facts, "decode_tok_s", ((tokens - 1) / seconds, tokens / seconds), "decode_s and n_output")


def _rate(facts: Facts, key: str, rates: tuple[float, ...], others: str) -> str | None:
    """The time and the count are what was observed; a rate that fits neither reading of them is dropped for
    the one that they give."""
    stated = facts[key]
    if any(abs(stated - rate) <= SAME_RATE * rate for rate in rates):
        return None
    if rates[0] > 0:
        facts[key] = rates[0]
        return f"{key} was {token_rate(stated)}, but {others} give {token_rate(rates[0])}, which is used"
    del facts[key]
    return f"{key} contradicts {others} and is left out"


def _total(facts: Facts) -> str | None:
    parts = facts.get("prefill_s", 0.0) + facts.get("decode_s", 0.0)
    if facts.get("total_s", math.inf) >= parts * (1 - _SAME_TIME):
        return None
    stated = facts.pop("total_s")
    return f"total_s ({duration(stated)}) is below its parts ({duration(parts)}) and is left out"


def _prompt_pass(facts: Facts) -> str | None:
    """A prompt faster than one reading of the weights was not evaluated: it was cached, or its time was
    booked elsewhere. The wait is what it is; the rate says nothing."""
    prefill_s, least = facts.get("prefill_s"), _least_pass_s(facts)
    if not prefill_s or least is None or prefill_s >= least[0]:
        return None
    if not facts.get("prefill_tok_s") and not facts.get("n_prompt"):
        return None
    facts.pop("prefill_tok_s", None)
    return (
        f"prefill_s ({duration(prefill_s)}) is less than {least[1]}: most of the prompt was cached though it"
        " is counted, or its time was booked elsewhere; no prompt rate is taken from it"
    )


def _least_pass_s(facts: Facts) -> tuple[float, str] | None:
    read, bandwidth = facts.get("bytes_per_token"), facts.get("gpu_bandwidth_bytes_s")
    if read and bandwidth and not facts.get("speculative"):
        whole = read / (bandwidth * (facts.get("n_gpus") or 1))
        return _ROOF_SHARE * whole, f"half of what one reading of the weights takes ({duration(whole)})"
    tokens, decode_s = facts.get("n_output"), facts.get("decode_s")
    if not decode_s or not tokens or tokens < 2:
        return None
    step = decode_s / (tokens - 1)
    return _PASS_SHARE * step, f"{percent(_PASS_SHARE)} of one generated token ({duration(step)})"


_CORRECTIONS: tuple[Callable[[Facts], str | None], ...] = (
    _usable_cpus,
    _bytes_per_token,
    _rate_over_wall,
    _prefill_rate,
    _decode_rate,
    _total,
    _prompt_pass,
)
