"""A saved run turned into all that a renderer needs: sentences, tables, facts, chart figures, notices, flat
rows."""

from __future__ import annotations

import dataclasses

from probes.records import GroupResult, Run
from reports import headline, measured, sections, units
from reports.charts import ChartData, Point, Share
from reports.notices import Notice, notices
from reports.parts import Fact, Facts, Table
from reports.phases import PhaseModel, fit_phases
from reports.rows import Row, group_rows
from reports.text import clean


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """One load group: a model with one set of settings."""

    name: str
    """Cleaned; a number is added where two groups would share it."""
    subtitle: str
    headline: tuple[str, ...]
    """What one waits for and why, plain sentences, the answer first."""
    phases: Table
    load: Table | None
    placement: Facts
    buffers: Table | None
    beside: Facts | None
    """None where nothing was measured."""
    settings: Facts
    charts: ChartData
    model: PhaseModel
    """The fits, for further questions."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that a run says, for any renderer."""

    run_id: str
    started_at: str
    llmphase_version: str
    machine: Facts
    comparison: tuple[str, ...]
    """Sentences over several models; empty for one."""
    models: tuple[ModelReport, ...]
    notices: tuple[Notice, ...]
    rows: tuple[Row, ...]


def build_report(run: Run) -> Report:
    """The report of a run, finished or not. Pure: the same run gives the same report."""
    found = notices(run)
    names = _names(run.groups)
    fits = [fit_phases(group) for group in run.groups]
    rows = [group_rows(run, index, fit, found) for index, fit in enumerate(fits)]
    models = tuple(
        _model_report(run, group, name, fit, made)
        for group, name, fit, made in zip(run.groups, names, fits, rows, strict=True)
    )
    return Report(
        run_id=run.run_id,
        started_at=run.started_at,
        llmphase_version=run.llmphase_version,
        machine=_machine(run),
        comparison=headline.comparison(tuple(zip(names, run.groups, fits, strict=True))),
        models=models,
        notices=found,
        rows=tuple(row for made in rows for row in made),
    )


def _names(groups: tuple[GroupResult, ...]) -> tuple[str, ...]:
    """A name for each group, told apart by quantization or number where models share one."""
    plain = [clean(group.model.name, limit=60) for group in groups]
    full = [
        name if plain.count(name) == 1 else f"{name} {clean(group.model.quantization, limit=20)}"
        for name, group in zip(plain, groups, strict=True)
    ]
    return tuple(
        name if full.count(name) == 1 else f"{name} #{full[: index + 1].count(name)}"
        for index, name in enumerate(full)
    )


def _model_report(
    run: Run, group: GroupResult, name: str, fit: PhaseModel, rows: tuple[Row, ...]
) -> ModelReport:
    placement, buffers = sections.placement(group)
    return ModelReport(
        name=name,
        subtitle=_subtitle(group),
        headline=headline.sentences(group, fit),
        phases=sections.phase_table(rows, group, fit),
        load=sections.load_table(group),
        placement=placement,
        buffers=buffers,
        beside=sections.beside(group),
        settings=sections.settings(run, group),
        charts=_charts(group, fit, rows),
        model=fit,
    )


def _subtitle(group: GroupResult) -> str:
    facts = group.model
    return " · ".join(
        (
            clean(facts.architecture, limit=30),
            f"{units.short_count(facts.n_params)} parameters",
            clean(facts.quantization, limit=30),
            units.size(facts.model_bytes),
        )
    )


def _machine(run: Run) -> Facts:
    machine = run.machine
    cpu = clean(machine.cpu_name) if machine.cpu_name else _why(run, "cpu_name")
    memory = (
        units.size(machine.memory_bytes) if machine.memory_bytes is not None else _why(run, "memory_bytes")
    )
    engine = run.engine
    build = f"{clean(engine.version)} ({clean(engine.commit or 'commit unknown')})" if engine else None
    return Facts(
        title="Machine",
        facts=(
            Fact(name="processor", value=cpu),
            Fact(
                name="usable cores",
                value=f"{machine.usable_cpus} ({clean(machine.usable_cpus_reason)})",
            ),
            Fact(name="memory", value=memory),
            Fact(name="GPUs", value=", ".join(clean(gpu) for gpu in machine.gpu_names) or "none seen"),
            Fact(name="engine", value=build or units.unknown("no worker has reported")),
            Fact(name="system", value=f"{clean(machine.os)}, Python {clean(machine.python)}"),
        ),
    )


def _why(run: Run, field: str) -> str:
    return units.unknown(clean(run.machine.unknown.get(field, "the system did not say")))


def _charts(group: GroupResult, fit: PhaseModel, rows: tuple[Row, ...]) -> ChartData:
    ttft = [row for row in rows if row.phase == "ttft"]
    decode = [row for row in rows if row.phase == "decode"]
    cell = headline.longest_cell(group)
    wait = headline.wait_at(group, fit, cell) if cell else None
    return ChartData(
        ttft=tuple(
            Point(tokens=row.prompt_tokens, value=row.median_s, predicted=row.status == "predicted")
            for row in ttft
            if row.prompt_tokens is not None and row.median_s is not None
        ),
        decode=tuple(
            Point(tokens=row.depth_tokens, value=row.tokens_per_s, predicted=row.status == "predicted")
            for row in decode
            if row.depth_tokens is not None and row.tokens_per_s is not None
        ),
        wait=_wait_parts(group, wait) if wait else (),
        wait_title=_wait_title(group, wait) if wait else "",
    )


def _wait_parts(group: GroupResult, wait: headline.Wait) -> tuple[Share, ...]:
    usual = measured.usual_load(group)
    load = (Share(name=f"load ({clean(usual[0])})", seconds=usual[1].median),) if usual else ()
    return (
        *load,
        Share(name="prefill", seconds=wait.prefill_s),
        Share(name="decode", seconds=wait.decode_s),
    )


def _wait_title(group: GroupResult, wait: headline.Wait) -> str:
    load = "included" if measured.usual_load(group) else "not measured"
    prompt, output = units.count(wait.prompt_tokens), units.count(wait.output_tokens)
    return f"One request, load {load}: {prompt} prompt, {output} output tokens"
