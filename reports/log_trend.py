"""What changes from one request of a log to the next: prompts that grow, caches that miss, loads that repeat,
decode that slows down."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence

from reports import units
from reports.evidence import Evidence

_GROWN = 1.5
"""Last prompt over the first from which on a chat is said to grow."""
_UP = 2 / 3
"""Share of steps that must go up: a new chat in between does not hide the growth."""
_FEWEST = 3
_MISSED = 0.5
"""Of the request before, less than this share found in the cache is a miss."""
_LEAST_TOKENS = 32
"""Below this a cache hardly matters."""
_SLOWER = 0.8
"""Decode of the last third over the first from which on it has slowed down; runs differ by less."""
_ONE_STEP = 0.6
"""Share of the whole drop that one step must make to be named."""
_LOADED_S = 1.0
"""A resident model is found in tens of milliseconds; from here on it was loaded."""
_SPED_UP = 0.5


def trend(requests: Sequence[Evidence]) -> tuple[str, ...]:
    """Sentences, the most telling first; empty for one request or where nothing changes."""
    if len(requests) < 2:
        return ()
    return tuple(sentence for look in _LOOKS for sentence in look(requests))


def _misses(requests: Sequence[Evidence]) -> Iterator[str]:
    """Requests at least as long as the one before could continue it; how much of that was cached?"""
    could, missed, again_s, again = 0, [], 0.0, 0
    for number, (before, now) in enumerate(itertools.pairwise(requests), start=2):
        if before.n_prompt is None or now.n_prompt is None or now.n_prompt_cached is None:
            continue
        if before.n_prompt < _LEAST_TOKENS or now.n_prompt < before.n_prompt:
            continue
        could += 1
        if now.n_prompt_cached < _MISSED * before.n_prompt:
            tokens = before.n_prompt - now.n_prompt_cached
            missed.append(number)
            again += tokens
            again_s += (now.prefill_token_s or 0.0) * tokens
    if missed:
        yield (
            f"Cache misses: {len(missed)} of {could} requests that could continue the one before"
            f" ({_listed(missed)}) found under half of it in the cache and read up to"
            f" {units.count(again)} tokens again, {units.duration(again_s)} in all."
        )
    elif could:
        which = f"all {could} requests" if could > 1 else "the one request"
        yield f"The cache holds: {which} that could continue the one before found most of it there."


def _counted_though_cached(requests: Sequence[Evidence]) -> Iterator[str]:
    """More tokens in far less time than the request before: the count includes what the cache held."""
    found = [
        number
        for number, (before, now) in enumerate(itertools.pairwise(requests), start=2)
        if is_cached_count(before, now)
    ]
    if found:
        yield (
            f"Request {_listed(found)}: at least as long a prompt in under half of the time of the one"
            " before. Most of it was likely cached and is counted as read all the same, so no prompt rate is"
            " taken from it."
        )


def is_cached_count(before: Evidence, now: Evidence) -> bool:
    """Whether `now` counts cached tokens as evaluated: a count without a cached part, no shorter than the
    request before, in under half of its time."""
    if None in (before.n_prompt, now.n_prompt, before.prefill_s, now.prefill_s):
        return False
    if now.n_prompt_cached is not None or (before.n_prompt or 0) < _LEAST_TOKENS:
        return False
    is_longer = (now.n_prompt or 0) >= (before.n_prompt or 0)
    return is_longer and (now.prefill_s or 0.0) < _SPED_UP * (before.prefill_s or 0.0)


def _growth(requests: Sequence[Evidence]) -> Iterator[str]:
    lengths = [one.n_prompt for one in requests if one.n_prompt]
    if len(lengths) < _FEWEST or lengths[-1] < _GROWN * lengths[0]:
        return
    ups = sum(later >= earlier for earlier, later in itertools.pairwise(lengths))
    if ups < _UP * (len(lengths) - 1):
        return
    yield (
        f"The prompt grows from {units.count(lengths[0])} to {units.count(lengths[-1])} tokens over"
        f" {len(lengths)} requests."
    )


def _loads(requests: Sequence[Evidence]) -> Iterator[str]:
    loads = [one.load_s for one in requests if one.load_s is not None and one.load_s >= _LOADED_S]
    if len(loads) > 1:
        yield (
            f"The model was loaded in {len(loads)} of {len(requests)} requests,"
            f" {units.duration(sum(loads))} in all: keep it loaded."
        )


def _decode(requests: Sequence[Evidence]) -> Iterator[str]:
    """The first third against the last; depth tells an honest slowdown from another."""
    timed = [(number, one) for number, one in enumerate(requests, start=1) if one.decode_step_s]
    if len(timed) < 2:
        return
    third = max(1, len(timed) // 3)
    fast, slow = _rate(timed[:third]), _rate(timed[-third:])
    if slow >= _SLOWER * fast:
        return
    rates = [(number, 1 / (one.decode_step_s or math.inf)) for number, one in timed]
    after = _one_drop(rates, fast, slow)
    where = f" after request {after}" if after and len(timed) > 2 else ""
    why = _why(timed, fast, slow)
    yield f"Decode falls from {units.token_rate(fast)} to {units.token_rate(slow)}{where}{why}."


def _rate(timed: Sequence[tuple[int, Evidence]]) -> float:
    return statistics.median(1 / (one.decode_step_s or math.inf) for _, one in timed)


def _one_drop(rates: Sequence[tuple[int, float]], fast: float, slow: float) -> int | None:
    """The request after which most of the drop happens at once."""
    falls = [
        (math.log(before / now), number)
        for (number, before), (_, now) in itertools.pairwise(rates)
        if now > 0
    ]
    largest, number = max(falls, default=(0.0, 0))
    return number if largest >= _ONE_STEP * math.log(fast / slow) else None


def _why(timed: Sequence[tuple[int, Evidence]], fast: float, slow: float) -> str:
    depths = [one.n_prompt + (one.n_output or 0) / 2 for _, one in timed if one.n_prompt is not None]
    if len(depths) < len(timed):
        return ""
    grown = depths[-1] - depths[0]
    if depths[-1] < _GROWN * depths[0] or grown < 1:
        return (
            ", though the context does not grow: look at clocks, other programs, and device memory that has"
            " spilled"
        )
    each = (fast / slow - 1) / (grown / 1000)
    return (
        f" while the context grows from {units.count(round(depths[0]))} to"
        f" {units.count(round(depths[-1]))} tokens: a token costs {units.percent(each)} more with each 1,000"
    )


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:6])
    return f"{shown} ..." if len(numbers) > 6 else shown


_LOOKS: tuple[Callable[[Sequence[Evidence]], Iterator[str]], ...] = (
    _misses,
    _counted_though_cached,
    _growth,
    _loads,
    _decode,
)
