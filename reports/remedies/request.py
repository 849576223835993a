"""Levers on the request itself: its prompt, what of it is cached, its answer."""

from __future__ import annotations

from collections.abc import Iterator

from reports import units
from reports.phases import Estimate
from reports.remedies.base import Remedy, Situation, Tool, Trial, between, computed

_PROMPT_HOW: dict[Tool, str] = {
    "llmphase": "--prompt-tokens {n}",
    "llama.cpp": "send fewer tokens; llama-server's /tokenize counts them",
    "ollama": "send fewer tokens: shorter history, fewer or smaller documents",
    "lm-studio": "shorten the system prompt or the history; `Context Overflow` cuts the middle",
}
_CACHE_HOW: dict[Tool, str] = {
    "llmphase": "--cached-prefix {n}",
    "llama.cpp": 'llama-server: "cache_prompt": true (the default), --cache-reuse 256, one slot a chat',
    "ollama": "keep the model loaded and the prompt's beginning unchanged: no date or random text in front",
    "lm-studio": "keep the beginning of the prompt unchanged from turn to turn",
}
_OUTPUT_HOW: dict[Tool, str] = {
    "llmphase": "--output-tokens {n}",
    "llama.cpp": "--n-predict {n}, or --reasoning-budget 0 for a thinking model",
    "ollama": 'PARAMETER num_predict {n}, or "think": false for a thinking model',
    "lm-studio": "Limit Response Length: {n}",
}

_LEAST_PROMPT = 32
"""A crossover below this is no prompt that anyone can write."""


def levers(situation: Situation) -> Iterator[Remedy | None]:
    """All of them, as far as the facts carry."""
    if situation.n_prompt > 1:
        half = situation.n_prompt // 2
        yield _shorter_prompt(
            situation, half, "prompt-half", f"halve the prompt to {units.count(half)} tokens"
        )
        crossing = _crossover_prompt(situation)
        if crossing is not None and crossing >= _LEAST_PROMPT:
            title = f"cut the prompt to {units.count(crossing)} tokens, where it costs as much as the answer"
            yield _shorter_prompt(situation, crossing, "prompt-to-crossover", title)
        yield _cached(situation)
    if situation.n_output > 1:
        yield _shorter_output(situation)


def _shorter_prompt(situation: Situation, tokens: int, code: str, title: str) -> Remedy | None:
    """The prompt's own time falls, and the answer starts at a lesser depth."""
    cached = min(situation.n_cached, tokens)
    decode = situation.decode_with(tokens, situation.n_output)
    parts = {"prefill": situation.prefill_with(tokens, cached)}
    if decode is not None:
        parts["decode"] = decode
    return computed(
        situation,
        situation.wait(**parts),
        code=code,
        title=title,
        basis="prefill and decode as measured at other lengths",
        how=_filled(_PROMPT_HOW, tokens),
        cost="the model sees less",
        try_with=Trial(workload={"prompt_tokens": tokens, "cached_tokens": cached}),
    )


def _crossover_prompt(situation: Situation) -> int | None:
    """The longest prompt whose prefill is no longer than the answer's decode, by halving; None where the
    present one is, or where none is."""
    low, high = situation.n_cached + 1, situation.n_prompt
    if _outweighs(situation, high) is not True or _outweighs(situation, low) is not False:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _outweighs(situation, middle) else (middle, high)
    return low


def _outweighs(situation: Situation, tokens: int) -> bool | None:
    prefill = situation.prefill_with(tokens, situation.n_cached)
    decode = situation.decode_with(tokens, situation.n_output)
    return None if prefill is None or decode is None else prefill.value_s > decode.value_s


def _cached(situation: Situation) -> Remedy | None:
    """All of the prompt but its last token in the cache, at best; half of it, at least. One pass over the
    weights stays, which is what a decode step costs."""
    best, least = situation.n_prompt - 1, situation.n_prompt // 2
    if situation.n_cached >= least:
        return None
    all_cached = situation.prefill_with(situation.n_prompt, best)
    half_cached = situation.prefill_with(situation.n_prompt, least)
    if all_cached is None or half_cached is None:
        return None
    step = situation.evidence.decode_step_s or 0.0
    lowest = max(all_cached.value_s, step)
    new: Estimate = between(lowest, max(all_cached.low_s, step), max(half_cached.high_s, step))
    prefill_s = situation.waits.prefill_s or 0.0
    each = units.duration(prefill_s / situation.n_evaluated) if situation.n_evaluated else units.UNKNOWN
    return computed(
        situation,
        situation.wait(prefill=new),
        code="prefix-cached",
        title="keep the beginning of the prompt in the cache from request to request",
        basis=f"at best: all but the last token cached; each cached token saves about {each}; the interval"
        " reaches to half of the prompt cached",
        how=_filled(_CACHE_HOW, best),
        cost="memory for the cache; the prompt's beginning must stay the same, token for token",
        try_with=Trial(workload={"cached_tokens": best}),
    )


def _shorter_output(situation: Situation) -> Remedy | None:
    tokens = max(1, situation.n_output // 2)
    parts = {"decode": situation.decode_with(situation.n_prompt, tokens)}
    sampling = situation.waits.sampling_s
    if sampling is not None:
        share = sampling * tokens / situation.n_output
        parts["sampling"] = Estimate(value_s=share, low_s=share, high_s=share)
    return computed(
        situation,
        situation.wait(**parts),
        code="output-half",
        title=f"ask for half the answer: {units.count(tokens)} tokens",
        basis="decode as measured, over fewer tokens",
        how=_filled(_OUTPUT_HOW, tokens),
        cost="a shorter answer, or one without visible thinking",
        try_with=Trial(workload={"output_tokens": tokens}),
    )


def _filled(how: dict[Tool, str], tokens: int) -> dict[Tool, str]:
    return {tool: text.replace("{n}", str(tokens)) for tool, text in how.items()}
