"""A saved run turned into all that a renderer needs: sentences, tables, facts, chart figures, notices, flat
rows."""

from __future__ import annotations

import dataclasses

from probes.records import GroupResult, Run
from reports import headline, measured, sections, units
from reports.axes import Axis, axes, label
from reports.charts import ChartData, Point, Share
from reports.llama_bench import BenchTest, bench_tests
from reports.notices import Notice, notices
from reports.offload_section import OffloadSection, offload_sections
from reports.overview import overview
from reports.parts import Fact, Facts, Table
from reports.phases import PhaseModel, fit_phases
from reports.quantization_section import QuantizationSection, quantization_sections
from reports.remote_use import remote_facts
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

    run_id: str | None
    """None for what is no run of ours; so are the next two where a file does not tell."""
    started_at: str | None
    llmphase_version: str | None
    machine: Facts
    comparison: tuple[str, ...]
    """Sentences over several models; empty for one."""
    models: tuple[ModelReport, ...]
    notices: tuple[Notice, ...]
    rows: tuple[Row, ...]
    tests: tuple[BenchTest, ...] | None
    """Prefill and decode as llama-bench's tests; None where the rows alone are known."""
    overview: Table | None = None
    """All settings side by side; None for one."""
    offload: tuple[OffloadSection, ...] = ()
    """Sweeps of the number of layers on devices."""
    with_details: bool = False
    """Show each setting in full however many there are."""
    remote: Facts | None = None
    """Devices of other machines and the ways there; None for a run without."""
    source: str | None = None
    """What the figures were read from, where it is no run of ours."""
    quantizations: tuple[QuantizationSection, ...] = ()
    """Models of which the run has several quantizations."""

    @property
    def origin(self) -> str:
        """Where the figures come from and when they were measured, one sentence."""
        named = [f"Run {self.run_id}" if self.run_id else self.source or "Of an unknown source"]
        named += [self.started_at] if self.started_at else []
        named += [f"llmphase {self.llmphase_version}"] if self.llmphase_version else []
        return f"{', '.join(named)}."


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
        comparison=headline.comparison(tuple(zip(_short(names, run.groups), run.groups, fits, strict=True))),
        overview=overview(run.groups, fits),
        offload=offload_sections(run),
        models=models,
        notices=found,
        rows=tuple(row for made in rows for row in made),
        remote=remote_facts(run),
        quantizations=quantization_sections(run),
        tests=bench_tests(run),
    )


def run_rows(run: Run) -> tuple[Row, ...]:
    """The flat rows of a run alone, for many runs at once."""
    found = notices(run)
    return tuple(
        row
        for index, group in enumerate(run.groups)
        for row in group_rows(run, index, fit_phases(group), found)
    )


def _names(groups: tuple[GroupResult, ...]) -> tuple[str, ...]:
    """A name for each group, told apart by quantization, settings or number where models share one."""
    found = axes(groups)
    plain = [clean(group.model.name, limit=60) for group in groups]
    models = {(group.model.name, group.model.quantization) for group in groups}
    full = [
        name
        if len({quantization for other, quantization in models if other == group.model.name}) == 1
        else f"{name} {clean(group.model.quantization, limit=20)}"
        for name, group in zip(plain, groups, strict=True)
    ]
    full = [_told_apart(name, group, full, found) for name, group in zip(full, groups, strict=True)]
    return tuple(
        name if full.count(name) == 1 else f"{name} #{full[: index + 1].count(name)}"
        for index, name in enumerate(full)
    )


def _short(names: tuple[str, ...], groups: tuple[GroupResult, ...]) -> tuple[str, ...]:
    """Without the model's name where all share it."""
    if len({group.model.name for group in groups}) > 1:
        return names
    plain = clean(groups[0].model.name, limit=60) if groups else ""
    return tuple(name.removeprefix(plain).lstrip(" ,") or name for name in names)


def _told_apart(name: str, group: GroupResult, names: list[str], found: tuple[Axis, ...]) -> str:
    settings = label(group, found)
    return f"{name}, {settings}" if settings and names.count(name) > 1 else name


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
