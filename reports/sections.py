"""A group's tables and facts: phases by length, load, placement, settings and what stands beside the
phases."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from probes.records import CellResult, GroupResult, Run
from reports import headline, measured, stats, units
from reports.parts import Column, Fact, Facts, Table
from reports.phases import PhaseModel
from reports.rows import Row, is_over_budget
from reports.text import clean

NOT_MEASURED = "not measured"
ABSENT = "–"
"""A cell that does not apply."""


def figure(row: Row | None) -> str:
    """A row's time: `6.10 ± 0.04 s`; with too few samples for an interval `6.10 (6.05–6.31) s`; predicted `≈
    …`."""
    if row is None:
        return ABSENT
    if row.median_s is None:
        return row.status
    if row.status == "predicted":
        return f"≈ {units.duration_interval(row.median_s, row.ci_low_s, row.ci_high_s)}"
    if row.ci_low_s is None and (row.samples or 0) > 1 and row.min_s is not None and row.max_s is not None:
        return units.duration_range(row.median_s, row.min_s, row.max_s)
    return units.duration_interval(row.median_s, row.ci_low_s, row.ci_high_s)


def _rate(row: Row | None) -> str:
    return ABSENT if row is None or row.tokens_per_s is None else units.rate(row.tokens_per_s)


def _samples(rows: Iterable[Row | None]) -> str:
    """`6`, or `6/5` where the phases count different numbers of passes; `fit` for a prediction."""
    known = [row for row in rows if row]
    if any(row.status == "predicted" for row in known):
        return "fit"
    return "/".join(dict.fromkeys(str(row.samples) for row in known)) or ABSENT


def phase_table(rows: Sequence[Row], group: GroupResult, model: PhaseModel) -> Table:
    """Prefill, time to first token and decode of each prompt length."""
    lengths = sorted(
        {row.prompt_tokens for row in rows if row.phase == "decode" and row.prompt_tokens is not None}
    )
    by_key = {(row.phase, row.prompt_tokens): row for row in rows}
    lines = []
    for n in lengths:
        prefill, decode, ttft = (by_key.get((phase, n)) for phase in ("prefill", "decode", "ttft"))
        has_ttft = ttft is not None and ttft.median_s is not None
        lines.append(
            (
                units.count(n),
                figure(prefill),
                _rate(prefill),
                units.duration(ttft.median_s) if ttft and has_ttft else ABSENT,
                figure(decode),
                _rate(decode),
                _p95(decode),
                _samples((prefill, decode)),
            )
        )
    return Table(
        title="Phases by prompt length",
        columns=(
            Column(title="prompt"),
            Column(title="prefill"),
            Column(title="tok/s"),
            Column(title="TTFT"),
            Column(title="decode/token"),
            Column(title="tok/s"),
            Column(title="token p95", wide=True),
            Column(title="n"),
        ),
        rows=tuple(lines),
        notes=tuple(_phase_notes(rows, group, model)),
    )


def _p95(row: Row | None) -> str:
    return ABSENT if row is None or row.p95_s is None else units.duration(row.p95_s)


def _phase_notes(rows: Sequence[Row], group: GroupResult, model: PhaseModel) -> list[str]:
    """What the signs mean, where any stands in the table, and why a length is not there in full."""
    shown = [row for row in rows if row.phase in ("prefill", "decode")]
    notes = []
    if any(row.status == "ok" for row in shown):
        notes.append(
            "Median ± the wider half of its 95 % interval over n passes. TTFT: tokenize, prefill and one "
            "draw, without the load. Decode at the depth that the prompt leaves."
        )
    if any(row.status == "predicted" for row in shown):
        notes.append(f"≈: not measured, predicted from the lengths that were, 95 % interval.{_beyond(model)}")
    elif model.prefill_reason and any(is_over_budget(cell) for cell in group.cells):
        notes.append(f"What was skipped is not predicted: {model.prefill_reason}.")
    notes += [
        f"{units.count(cell.prompt_tokens)}: {cell.status}, {clean(cell.reason or 'no reason given')}"
        for cell in sorted(group.cells, key=lambda one: one.prompt_tokens)
        if cell.status != "ok"
    ]
    return notes


def _beyond(model: PhaseModel) -> str:
    """From where on a prediction leaves what was measured."""
    if model.prefill is None:
        return ""
    return f" Beyond {units.count(round(model.prefill.largest_tokens))} tokens it extrapolates."


def load_table(group: GroupResult) -> Table | None:
    """Loads by cache state with their stages, medians; None where none was timed."""
    lines = []
    for state in measured.CACHE_STATES:
        summary = measured.load(group, state)
        if summary is None:
            continue
        loads = measured.loads(group, state)
        stages = [
            statistics.median(getattr(load, stage) for load in loads) * measured.NS
            for stage in ("open_ns", "tensors_ns", "context_ns", "first_touch_ns")
        ]
        lines.append(
            (
                state,
                _summary(summary),
                *(units.duration(stage) for stage in stages),
                units.size_rate(group.model.file_bytes, summary.median),
                str(summary.n),
            )
        )
    if not lines:
        return None
    return Table(
        title="Load, in fresh processes",
        columns=(
            Column(title="cache", numeric=False),
            Column(title="load"),
            Column(title="open"),
            Column(title="tensors"),
            Column(title="context"),
            Column(title="touch"),
            Column(title="file/s"),
            Column(title="n"),
        ),
        rows=tuple(lines),
        notes=(
            (
                "Cache: how much of the file was in memory before. Touch: the first token, which reads what "
                "mmap left on disk. file/s: the file's size over the whole load."
            ),
        ),
    )


def _summary(summary: stats.Summary) -> str:
    if summary.ci_low is None and summary.n > 1:
        return units.duration_range(summary.median, summary.min, summary.max)
    return units.duration_interval(summary.median, summary.ci_low, summary.ci_high)


def placement(group: GroupResult) -> tuple[Facts, Table | None]:
    """Where the engine really put things, read back from it."""
    facts = group.resolved
    if facts is None:
        reason = clean(group.reason or "the model was not loaded")
        return Facts(title="Placement", facts=(Fact(name="resolved", value=units.unknown(reason)),)), None
    layers = units.unknown("the engine did not say")
    if facts.n_gpu_layers is not None and facts.layers_total is not None:
        layers = f"{facts.n_gpu_layers} of {facts.layers_total} on a device"
    asked = group.settings
    attention = facts.flash_attn or units.unknown("the engine did not say")
    listed = (
        Fact(name="layers", value=f"{layers} (asked: {_layers_asked(asked.n_gpu_layers)})"),
        Fact(name="backend", value=clean(facts.backend)),
        Fact(
            name="flash attention",
            value=f"{attention} (asked: {asked.flash_attn})",
        ),
        Fact(name="graph splits", value=_known_count(facts.graph_splits)),
    )
    table = Table(
        title="Memory by buffer",
        columns=(
            Column(title="buffer", numeric=False),
            Column(title="weights"),
            Column(title="KV cache"),
            Column(title="compute"),
            Column(title="output"),
        ),
        rows=tuple(
            (
                clean(place.buffer),
                units.size(place.model_bytes),
                units.size(place.kv_bytes),
                units.size(place.compute_bytes),
                units.size(place.output_bytes),
            )
            for place in facts.placements
        ),
    )
    return Facts(title="Placement, as the engine resolved it", facts=listed), table if table.rows else None


def _layers_asked(number: int | None) -> str:
    if number is None:
        return "left to the engine"
    return "all" if number < 0 else str(number)


def _known_count(number: int | None) -> str:
    return units.unknown("the engine did not say") if number is None else units.count(number)


def settings(run: Run, group: GroupResult) -> Facts:
    """Every setting and option with its value, those that took a default marked.

    `Options.defaulted` names them as the fields of `Settings` and `Options` are named.
    """
    asked, options = group.settings, run.options
    actual = group.resolved or asked
    listed = (
        ("threads", "threads", str(actual.threads)),
        ("threads_batch", "threads-batch", str(actual.threads_batch)),
        ("n_gpu_layers", "gpu-layers", _layers_asked(asked.n_gpu_layers)),
        ("n_ctx", "ctx", units.count(actual.n_ctx)),
        ("n_batch", "batch", units.count(actual.n_batch)),
        ("n_ubatch", "ubatch", units.count(actual.n_ubatch)),
        ("flash_attn", "flash-attn", asked.flash_attn),
        ("type_k", "type-k", asked.type_k),
        ("type_v", "type-v", asked.type_v),
        ("load_mode", "load-mode", asked.load_mode),
        ("repack", "repack", "on" if asked.repack else "off"),
        ("output_tokens", "output-tokens", units.count(options.output_tokens)),
        (
            "repetitions",
            "repetitions",
            "until precise" if options.repetitions is None else str(options.repetitions),
        ),
        ("precision", "precision", units.percent(options.precision)),
        ("budget_ns", "budget", units.duration(options.budget_ns * measured.NS)),
        ("tokens", "tokens", options.tokens),
        ("seed", "seed", str(options.seed)),
    )
    return Facts(
        title="Settings",
        facts=tuple(
            Fact(name=name, value=clean(value), is_default=field in options.defaulted)
            for field, name, value in listed
        ),
        is_flowing=True,
    )


def beside(group: GroupResult) -> Facts | None:
    """What stands beside the phases: tokenizing, sampling, first token, time between tokens, the rest,
    memory.

    At the longest prompt that was measured; None where none was.
    """
    cell = headline.longest_cell(group)
    if cell is None:
        return None
    n = cell.prompt_tokens
    facts = []
    if n > 0:
        tokenized = measured.tokenize(group, n)
        value = _summary(tokenized) if tokenized else units.unknown(NOT_MEASURED)
        facts.append(Fact(name=f"tokenizing {units.count(n)} tokens", value=value))
    for chain in ("default", "greedy"):
        drawn = measured.sampling(group, chain)
        value = f"{_summary(drawn)} a token" if drawn else units.unknown(NOT_MEASURED)
        facts.append(Fact(name=f"sampling, {chain} chain", value=value))
    if n > 0:
        facts.append(Fact(name=f"first token at {units.count(n)}", value=_first_token(group, cell)))
    facts.append(Fact(name=f"between tokens at depth {units.count(n)}", value=_between_tokens(cell)))
    facts.append(Fact(name="unaccounted in a request", value=_unaccounted(group)))
    facts += _memory(group)
    return Facts(title="Beside the phases", facts=tuple(facts))


def _first_token(group: GroupResult, cell: CellResult) -> str:
    """TTFT without and with the load."""
    ttft = measured.ttft(group, cell)
    if ttft is None:
        return units.unknown("tokenizing, prefill or sampling not measured")
    usual = measured.usual_load(group)
    if usual is None:
        return f"{_summary(ttft)} without the load, {units.unknown('no load timed')} with it"
    state, load = usual
    return f"{_summary(ttft)} without the load, {units.duration(ttft.median + load.median)} with it ({state})"


def _between_tokens(cell: CellResult) -> str:
    steps = measured.inter_token_s(cell)
    if not steps:
        return units.unknown(NOT_MEASURED)
    p95 = stats.percentile_95(steps)
    parts = [f"median {units.duration(statistics.median(steps))}"]
    parts += [f"p95 {units.duration(p95)}"] if p95 is not None else []
    return ", ".join([*parts, f"max {units.duration(max(steps))} ({units.count(len(steps))} steps)"])


def _unaccounted(group: GroupResult) -> str:
    """Wall minus phases of whole requests; below zero there is nothing left to explain, and no sign is
    printed."""
    if not group.requests:
        return units.unknown(NOT_MEASURED)
    rest = statistics.median(request.unaccounted_ns for request in group.requests) * measured.NS
    wall = statistics.median(request.wall_ns for request in group.requests) * measured.NS
    if rest < 0 or wall <= 0:
        return f"none: the phases explain all of {units.duration(wall)}"
    return f"{units.duration(rest)} of {units.duration(wall)} ({units.percent(rest / wall)})"


def _memory(group: GroupResult) -> list[Fact]:
    process = group.peak_memory_bytes
    value = units.unknown("the system did not say") if process is None else units.size(process)
    facts = [Fact(name="peak memory, process", value=value)]
    for memory in group.device_memory:
        used = f"{units.size(memory.used_bytes)} of {units.size(memory.total_bytes)}, others' use included"
        facts.append(Fact(name=f"memory in use, {clean(memory.device)}", value=used))
    return facts
