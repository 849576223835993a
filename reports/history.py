"""The saved runs of one model over time: time to first token and decode rate, and where they drifted.

`digest` is what an index keeps of each run; `build_history` chooses from all digests the runs that are alike
(one model, one machine, one set of settings, one prompt length) and says how many were left out, and why.
"""

from __future__ import annotations

import collections
import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import PurePath
from typing import Any, Literal

from probes.errors import UsageError
from probes.records import GroupResult, Run
from reports import measured, stats, units
from reports.drift import Shift, find_shifts
from reports.text import clean

DIGEST_KIND = "history-1"
"""Name and version of what `digest` returns."""

Metric = Literal["ttft", "decode"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """One load group of one run at one prompt length."""

    run_id: str
    started_at: str
    moment: float
    """Seconds since the epoch."""
    engine: str
    ttft_s: float | None
    """Median time to the first token, the load not included."""
    decode_tok_s: float | None
    """At the depth that the prompt leaves."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A metric that changed its level."""

    metric: Metric
    run_id: str
    """The first run of the new level."""
    started_at: str
    before: float
    after: float
    engine_before: str
    engine_after: str

    @property
    def is_with_engine(self) -> bool:
        """Whether the engine changed between the two levels."""
        return self.engine_before != self.engine_after


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the runs of one model say together."""

    model: str
    settings: str
    machine: str
    prompt_tokens: int
    points: tuple[HistoryPoint, ...]
    """Oldest first."""
    engines: tuple[str, ...]
    """In the order of their first run."""
    drifts: tuple[Drift, ...]
    notes: tuple[str, ...]
    """What was left out."""


def digest(run: Run) -> list[dict[str, Any]]:
    """What a history needs of a run: a record for each load group that was measured."""
    moment = _moment(run.started_at)
    if moment is None:
        return []
    return [
        {
            "started_at": clean(run.started_at, limit=40),
            "moment": moment,
            "name": clean(group.model.name, limit=60),
            "quantization": clean(group.model.quantization, limit=30),
            "path": group.model.path,
            "settings": _settings(run, group),
            "machine": _machine(run),
            "engine": _engine(run),
            "cells": cells,
        }
        for group in run.groups
        if (cells := _cells(group))
    ]


def _moment(started_at: str) -> float | None:
    try:
        moment = datetime.fromisoformat(started_at.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def _cells(group: GroupResult) -> list[list[float | None]]:
    """Prompt length, time to first token in seconds and decode rate of each measured cell."""
    found = []
    for cell in measured.measured_cells(group):
        prefill, step = _level(measured.prefill_samples(cell)), _level(measured.decode_samples(cell))
        overhead = measured.first_token_overhead_s(group, cell.prompt_tokens)
        ttft = None if prefill is None or overhead is None else prefill + overhead
        found.append([cell.prompt_tokens, ttft, 1 / step if step else None])
    return found


def _level(samples: Sequence[tuple[int, float]]) -> float | None:
    """The median of those that count; a summary would cost ten times as much, and many runs are read."""
    counted = stats.counted(samples)
    return statistics.median(counted) if counted else None


def _settings(run: Run, group: GroupResult) -> str:
    """What must be alike for figures to be comparable, in words; rarer settings only where they are not as
    usual."""
    asked, actual = group.settings, group.resolved or group.settings
    threads = f"{actual.threads} threads"
    if actual.threads_batch != actual.threads:
        threads += f" ({actual.threads_batch} for prompts)"
    layers = group.resolved.n_gpu_layers if group.resolved else None
    parts = [threads, f"{units.UNKNOWN if layers is None else layers} layers on a device"]
    parts += [
        f"batch {actual.n_batch}/{actual.n_ubatch}",
        f"cache {clean(asked.type_k)}/{clean(asked.type_v)}",
    ]
    attention = group.resolved.flash_attn if group.resolved else None
    parts += [f"flash attention {attention or units.UNKNOWN}"]
    parts += [
        f"{field.name} {clean(str(getattr(asked, field.name)), limit=80)}"
        for field in dataclasses.fields(asked)
        if field.default is not dataclasses.MISSING and getattr(asked, field.name) != field.default
    ]
    return ", ".join([*parts, *(["random tokens"] if run.options.tokens == "random" else [])])


def _machine(run: Run) -> str:
    gpus = ", ".join(clean(name, limit=60) for name in run.machine.gpu_names)
    return " · ".join([clean(run.machine.cpu_name or units.UNKNOWN, limit=80), *([gpus] if gpus else [])])


def _engine(run: Run) -> str:
    if run.engine is None:
        return units.UNKNOWN
    commit = f" ({clean(run.engine.commit, limit=12)})" if run.engine.commit else ""
    return f"{clean(run.engine.version, limit=60)}{commit}"


def build_history(
    digests: Iterable[tuple[str, Sequence[Mapping[str, Any]]]],
    names: Sequence[str] = (),
    prompt_tokens: int | None = None,
) -> History:
    """The history of one model: the one that `names` (names, files or paths) mean, else the newest run's.

    `digests`: run id and digest, oldest first. Raises UsageError: `no-history` where nothing is saved or
    nothing fits, naming what there is.
    """
    entries = [(run_id, entry) for run_id, digest in digests for entry in digest]
    if not entries:
        raise UsageError(
            "no saved run has a measured cell yet: `llmphase profile MODEL` makes one", reason="no-history"
        )
    entries = _of_model(entries, names)
    notes: list[str] = []
    for key, what in (("machine", "on other machines"), ("settings", "with other settings")):
        entries, left_out = _most(entries, key)
        if left_out:
            notes.append(f"{left_out} measured {what} left out.")
    length = _length(entries, prompt_tokens)
    points = _points(entries, length)
    if len(points) < len(entries):
        notes.append(
            f"{len(entries) - len(points)} without a prompt of {units.count(length)} tokens left out."
        )
    first = entries[-1][1]
    return History(
        model=f"{first['name']} {first['quantization']}",
        settings=first["settings"],
        machine=first["machine"],
        prompt_tokens=length,
        points=points,
        engines=tuple(dict.fromkeys(point.engine for point in points)),
        drifts=(*_drifts(points, "ttft"), *_drifts(points, "decode")),
        notes=tuple(notes),
    )


_Entry = tuple[str, Mapping[str, Any]]


def _of_model(entries: Sequence[_Entry], wanted: Sequence[str]) -> list[_Entry]:
    """The entries of the model that was measured last of those that are meant: a name may have several
    quantizations."""
    meant = [entry for entry in entries if not wanted or any(_is_named(entry[1], name) for name in wanted)]
    if not meant:
        names = dict.fromkeys(f"{entry['name']} {entry['quantization']}" for _, entry in reversed(entries))
        shown = ", ".join(list(names)[:5]) + (" ..." if len(names) > 5 else "")
        raise UsageError(
            f"no saved run measured {clean(wanted[0], limit=80)}; there are runs of {shown}",
            reason="no-history",
        )
    last = _identity(meant[-1][1])
    return [entry for entry in meant if _identity(entry[1]) == last]


def _identity(entry: Mapping[str, Any]) -> tuple[str, str]:
    return entry["name"], entry["quantization"]


def _is_named(entry: Mapping[str, Any], model: str) -> bool:
    """Whether `model` is the model's name, with or without quantization, its file's name or its path."""
    path = PurePath(entry["path"])
    name = str(entry["name"]).lower()
    names = {name, f"{name} {entry['quantization']}".lower(), path.name.lower(), path.stem.lower()}
    return model.lower() in names or PurePath(model) == path


def _most(entries: Sequence[_Entry], key: str) -> tuple[list[_Entry], int]:
    """The entries that share the commonest value (of equally common ones the latest), and how many others."""
    counts = collections.Counter(entry[key] for _, entry in entries)
    latest = {entry[key]: index for index, (_, entry) in enumerate(entries)}
    best = max(counts, key=lambda value: (counts[value], latest[value]))
    kept = [entry for entry in entries if entry[1][key] == best]
    return kept, len(entries) - len(kept)


def _length(entries: Sequence[_Entry], asked: int | None) -> int:
    """The prompt length asked for, else the one that most runs have, of equally common ones the longest."""
    counts = collections.Counter(int(cell[0]) for _, entry in entries for cell in entry["cells"])
    if asked is None:
        return max(counts, key=lambda length: (length > 0, counts[length], length))
    if asked not in counts:
        known = ", ".join(units.count(length) for length in sorted(counts)[:12])
        raise UsageError(
            f"no run measured a prompt of {units.count(asked)} tokens; there are {known}", reason="no-history"
        )
    return asked


def _points(entries: Sequence[_Entry], length: int) -> tuple[HistoryPoint, ...]:
    found = [
        HistoryPoint(
            run_id=run_id,
            started_at=entry["started_at"],
            moment=entry["moment"],
            engine=entry["engine"],
            ttft_s=cell[1],
            decode_tok_s=cell[2],
        )
        for run_id, entry in entries
        for cell in entry["cells"]
        if cell[0] == length
    ]
    return tuple(sorted(found, key=lambda point: point.moment))


def value_of(point: HistoryPoint, metric: Metric) -> float | None:
    """Seconds, or tokens per second."""
    return point.ttft_s if metric == "ttft" else point.decode_tok_s


def _drifts(points: Sequence[HistoryPoint], metric: Metric) -> tuple[Drift, ...]:
    known = [point for point in points if (value_of(point, metric) or 0) > 0]
    values = [value_of(point, metric) or 0.0 for point in known]
    updates = [i for i in range(1, len(known)) if known[i].engine != known[i - 1].engine]
    return tuple(_drift(known, metric, shift) for shift in find_shifts(values, updates))


def _drift(points: Sequence[HistoryPoint], metric: Metric, shift: Shift) -> Drift:
    first = points[shift.position]
    return Drift(
        metric=metric,
        run_id=first.run_id,
        started_at=first.started_at,
        before=shift.before,
        after=shift.after,
        engine_before=points[shift.position - 1].engine,
        engine_after=first.engine,
    )
