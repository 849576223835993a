"""What a reader must know before trusting the figures: noise, drift, a busy machine, settings that do not fit
it.

Each check is one function from a run (or one of its groups) to notices, listed in an ordered tuple. A notice
is data: a stable code, a text that says what to do, and where it applies.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

from probes.records import CellResult, Disturbance, GroupResult, Run
from reports import disturbed, links, measured, stats, units
from reports.hardware_notices import hardware_notices
from reports.text import clean

LOW_MEMORY_SHARE = 0.05
DRIFT_PASSES = 4
"""Passes needed before early ones are compared with late ones."""
UNACCOUNTED_SHARE = 0.05
MAX_ENGINE_LINES = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing to know, with where it applies: None in a field stands for everywhere."""

    code: str
    """Stable, kebab-case."""
    text: str
    """What was seen and what to do, one or two sentences."""
    group: int | None = None
    """Index of the load group."""
    phase: str | None = None
    prompt_tokens: tuple[int, ...] | None = None


def notices(run: Run) -> tuple[Notice, ...]:
    """All notices of a run: those of the whole run, then those of each group."""
    found: list[Notice] = []
    for check in _RUN_CHECKS:
        found += check(run)
    for index, group in enumerate(run.groups):
        for group_check in _GROUP_CHECKS:
            found += [dataclasses.replace(notice, group=index) for notice in group_check(run, group)]
    return tuple(found)


def codes_for(
    found: Iterable[Notice], *, group: int, phase: str, prompt_tokens: int | None
) -> tuple[str, ...]:
    """The codes that concern one row, each once, in order."""
    codes = (
        notice.code
        for notice in found
        if notice.group in (None, group)
        and notice.phase in (None, phase)
        and (notice.prompt_tokens is None or prompt_tokens in notice.prompt_tokens)
    )
    return tuple(dict.fromkeys(codes))


def _unfinished(run: Run) -> Iterator[Notice]:
    if not run.finished:
        yield Notice(
            code="unfinished",
            text="The run was interrupted: this is what was measured until then. Run it again for the rest.",
        )


def _recorded(run: Run) -> Iterator[Notice]:
    for text in run.warnings:
        yield Notice(code="recorded", text=clean(text))


def _busy_machine(run: Run) -> Iterator[Notice]:
    foreign = disturbed.mean(run.disturbances, lambda one: one.foreign_cpus)
    if foreign is not None and foreign > disturbed.FOREIGN_CPUS:
        yield Notice(
            code="foreign-cpu",
            text=f"Other programs used {foreign:.1f} CPUs on average while measuring: close them and repeat.",
        )
    stolen = disturbed.mean(run.disturbances, lambda one: one.steal_fraction)
    if stolen is not None and stolen > disturbed.STOLEN_SHARE:
        yield Notice(
            code="steal",
            text=f"The hypervisor gave {units.percent(stolen)} of the CPU time to other guests: "
            "repeat at a quieter time, or on a machine of your own.",
        )
    throttled = disturbed.mean(run.disturbances, lambda one: one.throttled_fraction)
    if throttled is not None and throttled > disturbed.THROTTLED_SHARE:
        yield Notice(
            code="throttled",
            text=f"The container's CPU quota held the run back {units.percent(throttled)} of the time: "
            "use fewer threads than the quota has CPUs, or raise the quota.",
        )


def _short_memory(run: Run) -> Iterator[Notice]:
    swapped = sum(d.swap_in_bytes or 0 for d in run.disturbances)
    if swapped >= disturbed.SWAPPED_BYTES:
        yield Notice(
            code="swap-in",
            text=f"{units.size(swapped)} came back from swap while measuring, so times include the disk: "
            "free memory, or use a smaller model or context.",
        )
    lowest = _lowest_available(run.disturbances)
    total = run.machine.memory_limit_bytes or run.machine.memory_bytes
    if lowest is not None and total and lowest < LOW_MEMORY_SHARE * total:
        yield Notice(
            code="memory-low",
            text=f"Only {units.size(lowest)} of {units.size(total)} memory was left while measuring: "
            "free memory, or use a smaller model or context.",
        )


def _lowest_available(samples: Sequence[Disturbance]) -> int | None:
    known = [s.memory_available_bytes for s in samples if s.memory_available_bytes is not None]
    return min(known, default=None)


def _threads(run: Run, group: GroupResult) -> Iterator[Notice]:
    if group.resolved is None:
        return
    most = max(group.resolved.threads, group.resolved.threads_batch)
    usable = run.machine.usable_cpus
    if most > usable:
        yield Notice(
            code="threads-over-cores",
            text=f"{most} threads on {usable} usable {'core' if usable == 1 else 'cores'} "
            f"({clean(run.machine.usable_cpus_reason)}): they wait for each other. Try --threads {usable}.",
        )


def _training_context(run: Run, group: GroupResult) -> Iterator[Notice]:
    del run
    limit = group.model.n_ctx_train
    measured_cells = measured.measured_cells(group)
    over = [c.prompt_tokens for c in measured_cells if limit and c.prompt_tokens + c.output_tokens > limit]
    if over:
        yield Notice(
            code="beyond-training-context",
            prompt_tokens=tuple(over),
            text=f"{_lengths(over)} tokens and the answer go beyond the {units.count(limit)} tokens "
            "the model was trained for: the times are right, the text it writes there may not be.",
        )


def _lengths(tokens: Iterable[int]) -> str:
    """`512`, `512 and 2,048`, `128, 512 and 2,048`."""
    texts = [units.count(n) for n in sorted(set(tokens))]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


_TIMED: tuple[tuple[str, Callable[[CellResult], measured.Measured | None]], ...] = (
    ("prefill", measured.prefill),
    ("decode", measured.decode),
)


def _noise(run: Run, group: GroupResult) -> Iterator[Notice]:
    wanted = run.options.precision
    for phase, of_cell in _TIMED:
        loose: dict[int, float] = {}
        far_off = 0
        for cell in measured.measured_cells(group):
            found = of_cell(cell)
            width = stats.relative_half_width(found.summary) if found else None
            if found and width is not None and width > wanted:
                loose[cell.prompt_tokens] = width
                far_off += len(found.summary.outliers)
        if loose:
            yield Notice(
                code="noise",
                phase=phase,
                prompt_tokens=tuple(loose),
                text=f"{phase.capitalize()} at {_lengths(loose)} tokens is known to "
                f"±{units.percent(max(loose.values()))}, not to the wanted ±{units.percent(wanted)}: "
                f"close other programs, or raise {_more_time(run)}."
                + (f" {far_off} of its samples lie far off the others." if far_off else ""),
            )


def _more_time(run: Run) -> str:
    """What to raise: a diagnosis decides on its passes itself."""
    return "--budget" if run.workload is not None else "--repetitions or --budget"


def _failed_cells(run: Run, group: GroupResult) -> Iterator[Notice]:
    """For a diagnosis, which has no table of cells to say it."""
    if run.workload is None:
        return
    by_reason: dict[str, list[int]] = {}
    for cell in group.cells:
        if cell.status == "failed" and cell.reason:
            by_reason.setdefault(cell.reason, []).append(cell.prompt_tokens)
    for reason, lengths in by_reason.items():
        text = f"Nothing was measured at {_lengths(lengths)} tokens: {clean(reason)}."
        yield Notice(code="failed", prompt_tokens=tuple(lengths), text=text)


def _few_samples(run: Run, group: GroupResult) -> Iterator[Notice]:
    few = [
        cell.prompt_tokens
        for cell in measured.measured_cells(group)
        if any(found and found.summary.n < stats.MIN_COUNTED for found in (of(cell) for _, of in _TIMED))
    ]
    if few:
        yield Notice(
            code="few-samples",
            prompt_tokens=tuple(few),
            text=f"At {_lengths(few)} tokens fewer than {stats.MIN_COUNTED} passes count, so how far "
            f"to trust the figures is unknown: raise {_more_time(run)}.",
        )


def _disturbed_passes(run: Run, group: GroupResult) -> Iterator[Notice]:
    del run
    by_use: dict[bool, list[CellResult]] = {}
    for cell in measured.measured_cells(group):
        if len(disturbed.quiet_samples(cell)) < len(cell.samples):
            counts = disturbed.counted_samples(cell) == cell.samples
            by_use.setdefault(counts, []).append(cell)
    for counts, cells in sorted(by_use.items()):
        yield _disturbed_notice(cells, counts=counts)


def _disturbed_notice(cells: Sequence[CellResult], *, counts: bool) -> Notice:
    hit = [len(cell.samples) - len(disturbed.quiet_samples(cell)) for cell in cells]
    most = max(range(len(cells)), key=hit.__getitem__)
    passes = f"{'up to ' if len(cells) > 1 else ''}{hit[most]} of {len(cells[most].samples)} passes"
    codes = dict.fromkeys(code for cell in cells for sample in cell.samples for code in sample.disturbed)
    why = ", ".join(_DISTURBING_WORDS.get(code, clean(code)) for code in codes)
    lengths = tuple(cell.prompt_tokens for cell in cells)
    seen = (
        f"At {_lengths(lengths)} tokens {passes} ran while the machine was busy with something else ({why})"
    )
    if counts:
        text = (
            f"{seen}: fewer than {stats.MIN_COUNTED} were quiet, so all count. Close other programs, repeat."
        )
        return Notice(code="disturbed", prompt_tokens=lengths, text=text)
    text = f"{seen}. They are kept in the saved run and do not count."
    return Notice(code="disturbed-left-out", prompt_tokens=lengths, text=text)


_DISTURBING_WORDS = {
    "foreign-cpu": "other programs",
    "steal": "other guests of the host",
    "throttled": "the container's CPU quota",
    "swap-in": "memory from swap",
}


def _first_pass(run: Run, group: GroupResult) -> Iterator[Notice]:
    del run
    for phase, of_cell in _TIMED:
        apart: dict[int, float] = {}
        for cell in measured.measured_cells(group):
            found = of_cell(cell)
            if found and found.first_apart_s is not None and found.summary.median > 0:
                apart[cell.prompt_tokens] = found.first_apart_s / found.summary.median
        if apart:
            worst = max(apart.values(), key=lambda ratio: abs(ratio - 1))
            yield Notice(
                code="first-pass-apart",
                phase=phase,
                prompt_tokens=tuple(apart),
                text=f"The first pass of {phase} at {_lengths(apart)} tokens took {worst:.2f} times "
                "the later ones. It is kept and not counted: expect it once after each start.",
            )


def _pass_levels(group: GroupResult) -> list[float]:
    """For each counted pass in order of time: the median over cells of its prefill over that cell's
    median."""
    ratios: dict[int, list[float]] = {}
    for cell in measured.measured_cells(group):
        samples = measured.prefill_samples(cell) or measured.decode_samples(cell)
        counted = [(index, value) for index, value in samples if index > 0 and value > 0]
        if counted:
            centre = statistics.median(value for _, value in counted)
            for index, value in counted:
                ratios.setdefault(index, []).append(value / centre)
    return [statistics.median(ratios[index]) for index in sorted(ratios)]


def _drift(run: Run, group: GroupResult) -> Iterator[Notice]:
    levels = _pass_levels(group)
    if len(levels) < DRIFT_PASSES:
        return
    half = len(levels) // 2
    early, late = levels[:half], levels[-half:]
    change = statistics.median(late) / statistics.median(early) - 1
    apart = min(late) > max(early) or max(late) < min(early)
    if apart and abs(change) > run.options.precision:
        way = "slower" if change > 0 else "faster"
        yield Notice(
            code="drift",
            text=f"Late passes were {units.percent(abs(change))} {way} than early ones: the machine warmed "
            "up, changed its clock or was shared. Let it settle and repeat.",
        )


def _unaccounted(run: Run, group: GroupResult) -> Iterator[Notice]:
    del run
    shares = [r.unaccounted_ns / r.wall_ns for r in group.requests if r.wall_ns > 0]
    if shares and statistics.median(shares) > UNACCOUNTED_SHARE:
        yield Notice(
            code="unaccounted",
            text=f"{units.percent(statistics.median(shares))} of a whole request belongs to no phase: "
            "something else held it up. Close other programs and repeat.",
        )


def _told(run: Run, group: GroupResult) -> Iterator[Notice]:
    del run
    for text in group.warnings[:MAX_ENGINE_LINES]:
        yield Notice(code="recorded", text=_sentence(clean(text)))
    more = len(group.warnings) - MAX_ENGINE_LINES
    if more > 0:
        yield Notice(code="recorded", text=f"{more} more such things are in the saved run.")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "…")) else ".")


def _engine_lines(run: Run, group: GroupResult) -> Iterator[Notice]:
    del run
    for line in group.engine_warnings[:MAX_ENGINE_LINES]:
        yield Notice(code="engine", text=f"The engine says: {clean(line)}")
    more = len(group.engine_warnings) - MAX_ENGINE_LINES
    if more > 0:
        yield Notice(code="engine", text=f"The engine says {more} more things: they are in the saved run.")


def _network(run: Run, group: GroupResult) -> Iterator[Notice]:
    found = links.network_share(group, run.links)
    if found is not None and found[1] >= links.NETWORK_SHARE:
        yield Notice(
            code="network",
            phase="decode",
            text=f"The network takes much of each token's time: {links.cost_text(group, run.links)}. Keep "
            "layers off the remote devices, or use a faster network.",
        )


def _hardware(run: Run, group: GroupResult) -> Iterator[Notice]:
    for code, text in hardware_notices(run, group):
        yield Notice(code=code, text=text)


_RUN_CHECKS: tuple[Callable[[Run], Iterator[Notice]], ...] = (
    _unfinished,
    _recorded,
    _busy_machine,
    _short_memory,
)
_GROUP_CHECKS: tuple[Callable[[Run, GroupResult], Iterator[Notice]], ...] = (
    _failed_cells,
    _noise,
    _few_samples,
    _disturbed_passes,
    _first_pass,
    _drift,
    _threads,
    _training_context,
    _unaccounted,
    _network,
    _hardware,
    _told,
    _engine_lines,
)
