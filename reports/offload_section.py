"""The offload model in words, a table and two charts: what layers on devices do to decode and prefill."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from probes.records import Run
from reports import headline, offload, units
from reports.charts import Point
from reports.offload import OffloadPoint, OffloadSweep
from reports.parts import Column, Table
from reports.text import clean

_ABSENT = "–"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSection:
    """One sweep of `--gpu-layers`."""

    title: str
    sentences: tuple[str, ...]
    """The best setting first."""
    table: Table
    decode: tuple[Point, ...]
    """Tokens per second over layers on devices; marked as predicted where a cliff is."""
    prefill: tuple[Point, ...]


def offload_sections(run: Run) -> tuple[OffloadSection, ...]:
    """One for each sweep in the run."""
    return tuple(_section(run, sweep) for sweep in offload.sweeps(run))


def _section(run: Run, sweep: OffloadSweep) -> OffloadSection:
    group = run.groups[sweep.points[0].group]
    name = clean(group.model.name, limit=60)
    quantization = clean(group.model.quantization, limit=20)
    return OffloadSection(
        title=f"Layers on devices: {name} {quantization}",
        sentences=tuple(_sentences(sweep)),
        table=_table(sweep),
        decode=tuple(_points(sweep, [point.decode_s for point in sweep.points], 1)),
        prefill=tuple(_points(sweep, [point.prefill_s for point in sweep.points], sweep.prompt_tokens)),
    )


def _sentences(sweep: OffloadSweep) -> Iterator[str]:
    yield _best_sentence(sweep)
    if sweep.cliff is not None:
        yield _cliff_sentence(sweep, sweep.cliff)
    if sweep.decode is not None:
        yield _costs_sentence(sweep)


def _best_sentence(sweep: OffloadSweep) -> str:
    best, first = sweep.best, sweep.points[0]
    device = sweep.device or "the device"
    if best is None or best.wait_s is None:
        return f"Which number of layers on {device} is best is unknown: decode was measured with too few."
    where = (
        f"{units.count(sweep.prompt_tokens)} prompt and {headline.OUTPUT_TOKENS} output tokens take"
        f" {units.duration(best.wait_s)}"
    )
    if best.layers == 0:
        slowest = max(sweep.points, key=lambda point: point.wait_s or 0.0)
        if sweep.device_helps is False and slowest.wait_s is not None:
            return (
                f"Keep layers off {device}: {where} without it, {units.duration(slowest.wait_s)} with"
                f" {slowest.layers} of {sweep.total} layers there."
            )
        return f"{device} makes no difference that can be seen: {where} without it."
    against = ""
    if first is not best and first.wait_s is not None:
        against = f", against {units.duration(first.wait_s)} with {first.layers or 'none'}"
    return f"Best with {best.layers} of {sweep.total} layers on {device}: {where}{against}."


def _cliff_sentence(sweep: OffloadSweep, cliff: OffloadPoint) -> str:
    before = sweep.points[sweep.points.index(cliff) - 1]
    saved = offload.middle(before.decode_s) - offload.middle(cliff.decode_s)
    last = " (the output layer)" if before.layers == sweep.total - 1 else ""
    return (
        f"The step from {before.layers} to {cliff.layers}{last} alone saves {units.duration(saved)} a token:"
        " far more for each layer than the steps before it."
    )


def _costs_sentence(sweep: OffloadSweep) -> str:
    assert sweep.decode is not None
    host, device, crossing = sweep.decode.coefficients
    parts = [
        f"{units.size_rate(1, cost)} from {where}"
        for where, cost in (("the host", host), (sweep.device or "the device", device))
        if cost > 0
    ]
    border = f", and {units.duration(crossing)} for each border between them" if crossing > 0 else ""
    each = _layer_gain(sweep, host, device)
    return (
        f"Fitted on {len(sweep.points)} settings, decode reads weights at {' and '.join(parts)}{border}"
        f" (scatter {units.percent(sweep.decode.sigma)}){each}."
    )


def _layer_gain(sweep: OffloadSweep, host: float, device: float) -> str:
    """What one more layer there does to a token, by the fit."""
    first, last = sweep.points[0], sweep.points[-1]
    steps = last.layers - first.layers
    change = (last.device_bytes - first.device_bytes) / steps * (host - device)
    if not change:
        return ""
    verb = "saves" if change > 0 else "costs"
    return f"; a layer more there {verb} {units.duration(abs(change))} a token on average"


def _table(sweep: OffloadSweep) -> Table:
    rows = []
    before: OffloadPoint | None = None
    for point in sweep.points:
        marks = [
            word for word, is_so in (("best", point is sweep.best), ("cliff", point is sweep.cliff)) if is_so
        ]
        rows.append(
            (
                f"{point.layers}/{sweep.total}",
                units.size(point.device_bytes),
                _rate(point.prefill_s, sweep.prompt_tokens),
                _rate(point.decode_s, 1),
                _gain(before, point),
                units.duration(point.wait_s) if point.wait_s is not None else _ABSENT,
                ", ".join(marks),
            )
        )
        before = point
    return Table(
        title=f"By layers on {sweep.device or 'devices'}, at {units.count(sweep.prompt_tokens)} prompt"
        " tokens",
        columns=(
            Column(title="layers"),
            Column(title="read there"),
            Column(title="prefill tok/s"),
            Column(title="decode tok/s"),
            Column(title="a layer buys"),
            Column(title="wait"),
            Column(title="", numeric=False),
        ),
        rows=tuple(rows),
        notes=(
            (
                "Read there: weights that a token reads from devices. A layer buys: change of a token's time"
                f" for each further layer. Wait: the prompt and {headline.OUTPUT_TOKENS} output tokens."
            ),
        ),
    )


def _gain(before: OffloadPoint | None, point: OffloadPoint) -> str:
    if before is None or not before.decode_s or not point.decode_s:
        return _ABSENT
    change = (offload.middle(point.decode_s) - offload.middle(before.decode_s)) / (
        point.layers - before.layers
    )
    return f"{'+' if change > 0 else '-'}{units.duration(abs(change))}"


def _points(sweep: OffloadSweep, times: Sequence[Sequence[float]], tokens: int) -> Iterator[Point]:
    for point, seconds in zip(sweep.points, times, strict=True):
        if seconds and tokens:
            yield Point(
                tokens=point.layers, value=tokens / offload.middle(seconds), predicted=point is sweep.cliff
            )


def _rate(seconds: Sequence[float], tokens: int) -> str:
    return units.rate(tokens / offload.middle(seconds)) if seconds and tokens else _ABSENT
