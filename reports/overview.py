"""All settings of a run in one table: what was measured with each, at the longest prompt they share."""

from __future__ import annotations

from collections.abc import Sequence

from probes.records import CellResult, GroupResult
from reports import headline, measured, units
from reports.axes import Axis, axes
from reports.parts import Column, Table
from reports.phases import PhaseModel
from reports.text import clean

_ABSENT = "–"


def overview(groups: Sequence[GroupResult], fits: Sequence[PhaseModel]) -> Table | None:
    """One row for each group; None for a single one. What could not be measured has its reason below."""
    found = axes(groups)
    if len(groups) < 2:
        return None
    length = _longest_common(groups)
    shown = found or (Axis(name="model", value=lambda g: clean(g.model.name, limit=40), is_setting=False),)
    with_layers = any((group.resolved and group.resolved.n_gpu_layers) for group in groups)
    rows = tuple(
        _row(group, fit, shown, length, with_layers=with_layers)
        for group, fit in zip(groups, fits, strict=True)
    )
    columns = [Column(title=axis.name, numeric=axis.is_setting) for axis in shown]
    columns += [Column(title="on devices")] if with_layers else []
    columns += [Column(title=title) for title in ("prefill tok/s", "decode tok/s", "TTFT", "wait")]
    return Table(
        title="All settings" if length is None else f"All settings, at {units.count(length)} prompt tokens",
        columns=tuple(columns),
        rows=rows,
        notes=(
            f"Wait: the prompt and {headline.OUTPUT_TOKENS} output tokens, without the load.",
            *_failures(groups, shown),
        ),
    )


def _longest_common(groups: Sequence[GroupResult]) -> int | None:
    lengths = [{c.prompt_tokens for c in measured.measured_cells(group)} for group in groups]
    able = [found for found in lengths if found]
    return max(set.intersection(*able), default=None) if able else None


def _row(
    group: GroupResult, fit: PhaseModel, shown: Sequence[Axis], length: int | None, *, with_layers: bool
) -> tuple[str, ...]:
    cells = {cell.prompt_tokens: cell for cell in measured.measured_cells(group)}
    cell = None if length is None else cells.get(length)
    placed = [_placed(group)] if with_layers else []
    return (*(axis.value(group) for axis in shown), *placed, *_figures(group, fit, cell))


def _placed(group: GroupResult) -> str:
    resolved = group.resolved
    if resolved is None or resolved.n_gpu_layers is None:
        return _ABSENT
    return f"{resolved.n_gpu_layers}/{resolved.layers_total or '?'}"


def _figures(group: GroupResult, fit: PhaseModel, cell: CellResult | None) -> tuple[str, str, str, str]:
    if cell is None:
        return (group.status if group.status != "ok" else "skipped", _ABSENT, _ABSENT, _ABSENT)
    prefill, decode, ttft = measured.prefill(cell), measured.decode(cell), measured.ttft(group, cell)
    wait = headline.wait_at(group, fit, cell)
    return (
        units.rate(cell.prompt_tokens / prefill.summary.median) if prefill else _ABSENT,
        units.rate(1 / decode.summary.median) if decode else _ABSENT,
        units.duration(ttft.median) if ttft else _ABSENT,
        units.duration(wait.total_s) if wait else _ABSENT,
    )


def _failures(groups: Sequence[GroupResult], shown: Sequence[Axis]) -> tuple[str, ...]:
    notes = []
    for group in groups:
        reason = group.reason or next((c.reason for c in group.cells if c.status != "ok" and c.reason), None)
        if reason and not measured.measured_cells(group):
            what = ", ".join(f"{axis.name} {axis.value(group)}" for axis in shown)
            notes.append(f"{what}: {clean(reason)}")
    return tuple(notes)
