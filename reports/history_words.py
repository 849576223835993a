"""What a history says: sentences on drift, and the levels under each engine version."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from reports import units
from reports.drift import FOUND_FROM, KNOWN_FROM
from reports.history import Drift, History
from reports.parts import Column, Table


def sentences(history: History) -> tuple[str, ...]:
    """What changed, and by how much; that nothing did, or that there are too few runs to tell."""
    if history.drifts:
        return tuple(_drift_sentence(drift) for drift in history.drifts)
    runs = len(history.points)
    if runs < KNOWN_FROM:
        return (f"{runs} {'run' if runs == 1 else 'runs'}: too few to tell drift from noise.",)
    text = f"No drift beyond noise in {units.count(runs)} runs."
    if runs < FOUND_FROM:
        text += f" Under one engine it takes {FOUND_FROM} runs to tell."
    return (text,)


def _drift_sentence(drift: Drift) -> str:
    change = drift.after / drift.before - 1
    if drift.metric == "ttft":
        levels = f"{units.duration(drift.before)} to {units.duration(drift.after)}"
        what, way = "Time to first token", "grew" if change > 0 else "fell"
    else:
        levels = f"{units.rate(drift.before)} to {units.token_rate(drift.after)}"
        what, way = "Decode rate", "rose" if change > 0 else "fell"
    cause = (
        f"with the engine's change from {drift.engine_before} to {drift.engine_after}"
        if drift.is_with_engine
        else "under the same engine: look at clocks, other programs, drivers and the system's updates"
    )
    return (
        f"{what} {way} by {units.percent(abs(change))} ({levels}) from {drift.started_at} on "
        f"(run {drift.run_id}), {cause}."
    )


def engine_table(history: History) -> Table:
    """The levels under each engine version, oldest first."""
    lines = []
    for engine in history.engines:
        points = [point for point in history.points if point.engine == engine]
        lines.append(
            (
                engine,
                points[0].started_at[:10],
                points[-1].started_at[:10],
                units.count(len(points)),
                units.duration(_median(point.ttft_s for point in points)),
                units.rate(_median(point.decode_tok_s for point in points)),
            )
        )
    return Table(
        title="By engine version",
        columns=(
            Column(title="engine", numeric=False),
            Column(title="from", numeric=False),
            Column(title="to", numeric=False),
            Column(title="runs"),
            Column(title="TTFT"),
            Column(title="tok/s"),
        ),
        rows=tuple(lines),
        notes=(
            (
                "Medians over the runs: time to first token at a prompt of "
                f"{units.count(history.prompt_tokens)} tokens, without the load; decode rate at that depth."
            ),
        ),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
