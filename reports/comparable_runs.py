"""A saved run as `Comparable`: all raw samples that count."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from probes.records import CellResult, GroupResult, Run, Settings
from reports import measured, stats
from reports.comparable import Comparable, ComparableCell, known_texts
from reports.notices import notices

DISTURBING = frozenset({"drift", "disturbed", "foreign-cpu", "steal", "throttled", "swap-in"})
"""Notices that say the figures hold more than the program's own speed."""
TELLING = DISTURBING | {"unfinished", "memory-low", "threads-over-cores"}
"""Notices that bear on whether two runs may be compared. Noise is what a comparison itself measures."""
MODEL_FACTS = ("architecture", "quantization", "model_bytes", "n_params")
SETTINGS = tuple(field.name for field in dataclasses.fields(Settings))
_RESOLVED_ALONE = frozenset({"n_gpu_layers", "flash_attn"})
"""What was asked is a wish (`auto`, all layers), no setting."""
_COMMIT_CHARACTERS = 7


def of_run(run: Run, label: str | None = None) -> Comparable:
    """Every load group's loads and cells, with the facts that must be alike for a fair comparison."""
    machine = run.machine
    engine = run.engine
    telling = [notice for notice in notices(run) if notice.code in TELLING]
    return Comparable(
        label=label or run.run_id,
        source="run",
        started_at=run.started_at,
        machine=known_texts(
            {
                "cpu": machine.cpu_name,
                "usable cpus": machine.usable_cpus,
                "gpus": ", ".join(machine.gpu_names) or "none",
                "os": machine.os,
            }
        ),
        engine=known_texts(
            {
                "version": engine.version if engine else None,
                "commit": (engine.commit or "")[:_COMMIT_CHARACTERS] if engine else None,
                "llmphase": run.llmphase_version,
            }
        ),
        cells=tuple(cell for group in run.groups for cell in _group_cells(run, group)),
        notes=tuple(notice.text for notice in telling),
        is_disturbed=any(notice.code in DISTURBING for notice in telling),
    )


def _group_cells(run: Run, group: GroupResult) -> Iterator[ComparableCell]:
    facts = {name: getattr(group.model, name) for name in MODEL_FACTS}
    blank = ComparableCell(
        model=known_texts({"name": group.model.name, **facts}),
        settings=_settings(run, group),
        phase="load",
        prompt_tokens=None,
        depth_tokens=None,
        output_tokens=None,
    )
    for state in measured.CACHE_STATES:
        loads = measured.loads(group, state)
        if loads:
            seconds = tuple(load.total_ns * measured.NS for load in loads)
            yield _sampled(dataclasses.replace(blank, cache_state=state), seconds)
    if not group.cells and group.status != "ok":
        yield dataclasses.replace(blank, problem=_problem(group))
    for cell in group.cells:
        yield from _phase_cells(group, cell, blank)


def _settings(run: Run, group: GroupResult) -> dict[str, str]:
    """Every setting, as the engine resolved it where it says so; what was asked and not resolved says nothing
    about speed."""
    resolved = group.resolved
    facts: dict[str, object] = {"backend": resolved.backend if resolved else None}
    for name in SETTINGS:
        asked = getattr(group.settings, name)
        if name in _RESOLVED_ALONE:
            facts[name] = getattr(resolved, name, None)
        else:
            facts[name] = getattr(resolved, name, asked)
    return known_texts(facts | {"tokens": run.options.tokens})


def _problem(part: GroupResult | CellResult) -> str:
    return f"{part.status}: {part.reason or 'no reason was saved'}"


def _sampled(cell: ComparableCell, samples_s: tuple[float, ...]) -> ComparableCell:
    """The cell with its samples; no time at all is no measurement, and says nothing about speed."""
    if all(seconds > 0 for seconds in samples_s):
        return dataclasses.replace(cell, samples_s=samples_s)
    return dataclasses.replace(cell, problem="impossible: a duration of zero was saved")


def _phase_cells(group: GroupResult, cell: CellResult, blank: ComparableCell) -> Iterator[ComparableCell]:
    """Prefill, TTFT and decode at one length; where the cell was not measured, each with the reason."""
    n = cell.prompt_tokens
    problem = None if cell.status == "ok" else _problem(cell)
    prefill = () if problem else stats.counted(measured.prefill_samples(cell))
    decode = () if problem else stats.counted(measured.decode_samples(cell))
    if n > 0:
        at_length = dataclasses.replace(blank, prompt_tokens=n, depth_tokens=0, problem=problem)
        yield _sampled(dataclasses.replace(at_length, phase="prefill"), prefill)
        overhead = measured.first_token_overhead_s(group, n)
        if overhead is not None:
            ttft = tuple(value + overhead for value in prefill)
            yield _sampled(dataclasses.replace(at_length, phase="ttft"), ttft)
    at_depth = dataclasses.replace(
        blank, phase="decode", depth_tokens=n, output_tokens=cell.output_tokens, problem=problem
    )
    yield _sampled(at_depth, decode)
