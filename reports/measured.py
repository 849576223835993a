"""From a group's raw samples to summaries: which samples make up a phase, and which of them count.

Seconds throughout: nanoseconds are converted here, once. None means that the phase was not measured.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Literal

from probes.records import CacheState, CellResult, CellSample, GroupResult, LoadSample
from reports import stats
from reports.disturbed import counted_samples

NS = 1e-9
CACHE_STATES: tuple[CacheState, ...] = ("cold", "partial", "warm", "unknown")
_EVERYDAY_FIRST: tuple[CacheState, ...] = ("warm", "partial", "unknown", "cold")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One phase of one cell."""

    summary: stats.Summary
    """Of the samples that count, in seconds."""
    first_apart_s: float | None
    """The first pass, where it stands apart and therefore does not count."""


def _measured(samples: Sequence[tuple[int, float]]) -> Measured | None:
    values = stats.counted(samples)
    if not values:
        return None
    others = [value for index, value in samples if index > 0]
    apart = [value for index, value in samples if index == 0 and stats.stands_apart(value, others)]
    return Measured(summary=stats.summarize(values), first_apart_s=apart[0] if apart else None)


def prefill_samples(cell: CellResult) -> tuple[tuple[int, float], ...]:
    """(pass index, seconds for the whole prompt) of each pass that counts (`counted_samples`)."""
    if cell.prompt_tokens == 0:
        return ()
    return tuple((sample.pass_index, sample.prefill_ns * NS) for sample in counted_samples(cell))


def decode_samples(cell: CellResult) -> tuple[tuple[int, float], ...]:
    """(pass index, mean seconds of the pass's decode steps) of each of these passes that decoded."""
    return tuple(
        (sample.pass_index, statistics.fmean(sample.decode_ns) * NS)
        for sample in counted_samples(cell)
        if sample.decode_ns
    )


def prefill(cell: CellResult) -> Measured | None:
    """Seconds to evaluate the whole prompt."""
    return _measured(prefill_samples(cell))


def decode(cell: CellResult) -> Measured | None:
    """Seconds per token: the median over passes of the mean step."""
    return _measured(decode_samples(cell))


def _decoding_passes(cell: CellResult) -> list[CellSample]:
    """Passes that decoded, without a first one that stands apart."""
    pairs = decode_samples(cell)
    others = [value for index, value in pairs if index > 0]
    decoding = [sample for sample in counted_samples(cell) if sample.decode_ns]
    return [
        sample
        for sample, (index, value) in zip(decoding, pairs, strict=True)
        if index > 0 or not stats.stands_apart(value, others)
    ]


def inter_token_s(cell: CellResult) -> tuple[float, ...]:
    """Every decode step of the passes that count, in seconds."""
    return tuple(step * NS for sample in _decoding_passes(cell) for step in sample.decode_ns)


def depth_tokens(cell: CellResult) -> float:
    """Mean depth of the cell's decode steps: they run from the prompt's length upwards, one token deeper
    each."""
    return cell.prompt_tokens + max(decode_steps(cell) - 1, 0) / 2


def decode_steps(cell: CellResult) -> int:
    """Decode steps of a pass over the cell."""
    return max((len(sample.decode_ns) for sample in cell.samples), default=0)


def tokenize(group: GroupResult, prompt_tokens: int) -> stats.Summary | None:
    """Seconds to tokenize a text of about this many tokens."""
    values = [sample.duration_ns * NS for sample in group.tokenize if sample.prompt_tokens == prompt_tokens]
    return stats.summarize(values) if values else None


def tokenized_tokens(group: GroupResult, prompt_tokens: int) -> float:
    """Tokens that tokenizing at this length really gave, where known; else the length itself."""
    given = [
        sample.evaluated_tokens
        for sample in group.tokenize
        if sample.prompt_tokens == prompt_tokens and sample.evaluated_tokens is not None
    ]
    return statistics.median(given) if given else prompt_tokens


def sampling(group: GroupResult, chain: Literal["default", "greedy"]) -> stats.Summary | None:
    """Seconds to draw one token by a sampler chain."""
    values = [sample.duration_ns * NS for sample in group.sampling if sample.chain == chain]
    return stats.summarize(values) if values else None


def first_token_overhead_s(group: GroupResult, prompt_tokens: int) -> float | None:
    """What TTFT has beside prefill: tokenizing at that length and one draw by the default chain, medians."""
    tokenized = tokenize(group, prompt_tokens)
    drawn = sampling(group, "default")
    return None if tokenized is None or drawn is None else tokenized.median + drawn.median


def ttft(group: GroupResult, cell: CellResult) -> stats.Summary | None:
    """Seconds to the first token, the load not included: each prefill plus the medians of tokenizing and one
    draw."""
    overhead = first_token_overhead_s(group, cell.prompt_tokens)
    values = stats.counted(prefill_samples(cell))
    if overhead is None or not values:
        return None
    return stats.summarize([value + overhead for value in values])


def loads(group: GroupResult, state: CacheState) -> tuple[LoadSample, ...]:
    """The loads made with the file in this cache state."""
    return tuple(sample for sample in group.loads if sample.cache_state == state)


def load(group: GroupResult, state: CacheState) -> stats.Summary | None:
    """Seconds of a whole load, first touch included. Each load ran in its own process, so every one
    counts."""
    values = [sample.total_ns * NS for sample in loads(group, state)]
    return stats.summarize(values) if values else None


def usual_load(group: GroupResult) -> tuple[CacheState, stats.Summary] | None:
    """The load of everyday use: warm where it was measured, else the nearest state that was."""
    for state in _EVERYDAY_FIRST:
        summary = load(group, state)
        if summary:
            return state, summary
    return None


def context(group: GroupResult) -> stats.Summary | None:
    """Seconds to create the context, over all loads."""
    values = [sample.context_ns * NS for sample in group.loads]
    return stats.summarize(values) if values else None


def measured_cells(group: GroupResult) -> tuple[CellResult, ...]:
    """Cells that gave samples, by ascending prompt length."""
    kept = (cell for cell in group.cells if cell.status == "ok" and cell.samples)
    return tuple(sorted(kept, key=lambda cell: cell.prompt_tokens))
