"""A chat turn by turn: the history grows by prompt and answer, and without a prefix cache each turn reads all
of it again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from probes.records import Workload
from reports import units
from reports.parts import Column, Table
from reports.phase_diagram import Calibrated

_MOST_ROWS = 12


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of a chat. Seconds are predictions, put through the request that was measured."""

    number: int
    """From 1."""
    prompt_tokens: int
    """History and new prompt together."""
    uncached_s: float
    """Prefill with nothing in the cache."""
    cached_s: float
    """Prefill of what is new, the history in the cache."""
    decode_s: float
    uncached_total_s: float
    """Prefill and decode of this turn and all before, nothing cached."""
    cached_total_s: float
    """Likewise, with the history cached."""


def turns_of(workload: Workload, costs: Calibrated) -> tuple[Turn, ...]:
    """Every turn of the workload's chat; empty for a single request, or where a phase's cost is unknown.

    Turn t reads t prompts and t - 1 answers. With a prefix cache all but the last prompt is there already, at
    the first turn what the workload says.
    """
    turns: list[Turn] = []
    uncached_total = cached_total = 0.0
    for number in range(1, workload.turns + 1 if workload.turns > 1 else 1):
        history = (number - 1) * (workload.prompt_tokens + workload.output_tokens)
        prompt = history + workload.prompt_tokens
        uncached = costs.prefill(prompt)
        cached = costs.prefill(prompt, history or workload.cached_tokens)
        decode = costs.decode(prompt, workload.output_tokens)
        if uncached is None or cached is None or decode is None:
            return ()
        uncached_total += uncached.value_s + decode.value_s
        cached_total += cached.value_s + decode.value_s
        turns.append(
            Turn(
                number=number,
                prompt_tokens=prompt,
                uncached_s=uncached.value_s,
                cached_s=cached.value_s,
                decode_s=decode.value_s,
                uncached_total_s=uncached_total,
                cached_total_s=cached_total,
            )
        )
    return tuple(turns)


def turns_table(turns: Sequence[Turn], workload: Workload, n_ctx: int | None) -> Table | None:
    """The turns as a table, of many only some; None without any."""
    if not turns:
        return None
    rows = tuple(
        (
            units.count(turn.number),
            units.count(turn.prompt_tokens),
            units.duration(turn.uncached_s),
            units.duration(turn.cached_s),
            units.duration(turn.decode_s),
            units.duration(turn.uncached_total_s),
            units.duration(turn.cached_total_s),
        )
        for turn in _shown(turns)
    )
    last = turns[-1]
    saved = units.duration(max(0.0, last.uncached_total_s - last.cached_total_s))
    whole = units.duration(last.uncached_total_s)
    sums = f"Over {units.count(len(turns))} turns a prefix cache saves {saved} of {whole}"
    notes = [f"Predicted. {sums}; the load is not counted."]
    over = [t.number for t in turns if n_ctx is not None and t.prompt_tokens + workload.output_tokens > n_ctx]
    if over:
        notes.append(
            f"From turn {units.count(over[0])} on the history is longer than the context of "
            f"{units.count(n_ctx)} tokens: raise --ctx, or a runtime drops its beginning and reads it anew."
        )
    return Table(
        title="Turn by turn, without and with a prefix cache",
        columns=(
            Column(title="turn"),
            Column(title="prompt"),
            Column(title="prefill"),
            Column(title="cached"),
            Column(title="decode", wide=True),
            Column(title="all so far"),
            Column(title="cached"),
        ),
        rows=rows,
        notes=tuple(notes),
    )


def _shown(turns: Sequence[Turn]) -> Sequence[Turn]:
    """All, or evenly spaced ones with both ends."""
    if len(turns) <= _MOST_ROWS:
        return turns
    places = {round(i * (len(turns) - 1) / (_MOST_ROWS - 1)) for i in range(_MOST_ROWS)}
    return [turns[place] for place in sorted(places)]
