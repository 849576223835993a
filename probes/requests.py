"""Which whole request to run beside the walk, and what it and other measurements will take: pure."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from probes.records import CellResult, Workload

PART_PROMPTS, PART_STEPS = 7, 21
"""Micro-batches of the prompt, and decode steps, that timing a split model's parts takes at the least."""
_NEAR_TOKENS = 128
_MOST_TOKENS = 512
"""Of a profile, the request is run at the length nearest to the first, up to the second: enough to check the
sum of phases, at little cost."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request and what it will likely take."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    expected_ns: int


def short_request(cells: Sequence[CellResult], output_tokens: int, left_ns: int) -> Request | None:
    """The request at a short measured length; None without one, or when it would not fit into the time."""
    short = [cell for cell in cells if cell.samples and 0 < cell.prompt_tokens <= _MOST_TOKENS]
    if not short:
        return None
    nearest = min(short, key=lambda cell: abs(cell.prompt_tokens - _NEAR_TOKENS))
    expected_ns = round(_prefill_ns(nearest) + output_tokens * _step_ns(nearest))
    if expected_ns > left_ns:
        return None
    return Request(
        prompt_tokens=nearest.prompt_tokens,
        cached_tokens=0,
        output_tokens=output_tokens,
        expected_ns=expected_ns,
    )


def workload_request(workload: Workload, cells: Sequence[CellResult], left_ns: int) -> Request | None:
    """The workload's own request, its output cut to the time left; None when its prompt does not fit.

    Where the prompt itself was not measured, the longest measured one gives the rates.
    """
    usable = [cell for cell in cells if cell.samples and 0 < cell.prompt_tokens <= workload.prompt_tokens]
    if not usable:
        return None
    nearest = usable[-1]
    prefill_ns = _prefill_ns(nearest) * workload.prompt_tokens / nearest.prompt_tokens
    steps = (left_ns - prefill_ns) / max(_step_ns(nearest), 1.0)
    output_tokens = min(workload.output_tokens, int(steps))
    if output_tokens < 1:
        return None
    return Request(
        prompt_tokens=workload.prompt_tokens,
        cached_tokens=workload.cached_tokens,
        output_tokens=output_tokens,
        expected_ns=round(prefill_ns + output_tokens * _step_ns(nearest)),
    )


def pass_ns(measured: Sequence[CellResult], longest: int) -> int:
    """What a pass up to `longest` will likely take: whole chunks, and every tail and decode on the way."""
    on_the_way = [cell for cell in measured if cell.prompt_tokens <= longest]
    head_ns = statistics.median(sample.head_ns for sample in on_the_way[-1].samples)
    return round(head_ns) + sum(
        round(statistics.median(sample.tail_ns + sum(sample.decode_ns) for sample in cell.samples))
        for cell in on_the_way
    )


def parts_ns(workload: Workload, cells: Sequence[CellResult], n_ubatch: int) -> int:
    """What timing a split model's parts will likely take; 0 where nothing was measured."""
    usable = [cell for cell in cells if cell.samples and 0 < cell.prompt_tokens <= workload.prompt_tokens]
    if not usable:
        return 0
    nearest = usable[-1]
    per_token_ns = _prefill_ns(nearest) / nearest.prompt_tokens
    tokens = PART_PROMPTS * min(workload.prompt_tokens, n_ubatch)
    return round(tokens * per_token_ns + PART_STEPS * _step_ns(nearest))


def _prefill_ns(cell: CellResult) -> float:
    return statistics.median(sample.prefill_ns for sample in cell.samples)


def _step_ns(cell: CellResult) -> float:
    return statistics.median(statistics.fmean(sample.decode_ns) for sample in cell.samples)
