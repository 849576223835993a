"""Comparisons against one base turned into what a renderer needs: sentences, tables, bars."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Sequence

from reports import units
from reports.comparable import PHASES, Comparable
from reports.comparison import LEAST_CHANGE, ComparedCell, Comparison, Verdict
from reports.comparison_gate import Gate, failures, limit_text
from reports.comparison_matching import name_of
from reports.comparison_stats import FALSE_ALARMS
from reports.parts import Column, Fact, Facts, Table
from reports.text import clean

_FILES_A_TABLE = 3
"""More columns than this do not fit into 80."""
_MAX_PLACES = 4
_ABSENT = "-"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RatioBar:
    """A file's time for one phase over the first file's: the geometric mean over the cells of both."""

    phase: str
    file: str
    """Its number: `2`."""
    ratio: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonReport:
    """Everything that comparisons say, for any renderer."""

    comparisons: tuple[Comparison, ...]
    gate: Gate
    divergences: tuple[str, ...]
    """What makes it not like for like; empty where nothing does."""
    headline: tuple[str, ...]
    """The answer, one line for each new file."""
    files: Facts
    tables: tuple[Table, ...]
    bars: tuple[RatioBar, ...]
    """With several new files alone."""
    notes: tuple[str, ...]
    """What to know before trusting it."""
    failures: tuple[str, ...]
    """Why the gate is not met."""


def build_comparison_report(comparisons: Sequence[Comparison], gate: Gate) -> ComparisonReport:
    """The report of one comparison or several, all against the same base."""
    several = len(comparisons) > 1
    numbers = _numbers(comparisons)
    return ComparisonReport(
        comparisons=tuple(comparisons),
        gate=gate,
        divergences=_each(comparisons, _unlike),
        headline=_each(comparisons, lambda one: [" ".join(_answer(one))]),
        files=_files(comparisons),
        tables=tuple(_tables_of_several(comparisons)) if several else (_table(comparisons[0]),),
        bars=tuple(_bars(comparisons, numbers)) if several else (),
        notes=(*_file_notes(comparisons), *_each(comparisons, _notes)),
        failures=_each(comparisons, lambda one: failures(one, gate)),
    )


def _numbers(comparisons: Sequence[Comparison]) -> list[str]:
    """What the new files are called: the base is file 1."""
    return [str(number) for number in range(2, len(comparisons) + 2)]


def _each(comparisons: Sequence[Comparison], texts: Callable[[Comparison], Sequence[str]]) -> tuple[str, ...]:
    """Texts of each comparison; where there are several, behind the file's number."""
    several = len(comparisons) > 1
    return tuple(
        f"File {number}: {text}" if several else text
        for number, one in zip(_numbers(comparisons), comparisons, strict=True)
        for text in texts(one)
    )


def _unlike(comparison: Comparison) -> list[str]:
    texts = [found.text for found in comparison.divergences if not found.is_soft]
    return ["; ".join(texts)] if texts else []


def _answer(comparison: Comparison) -> Iterator[str]:
    """What got slower or faster, and of how many cells nothing else can be said."""
    by_verdict: dict[Verdict, list[ComparedCell]] = {}
    for cell in comparison.cells:
        by_verdict.setdefault(cell.verdict, []).append(cell)
    changed = [verdict for verdict in ("slower", "faster") if verdict in by_verdict]
    if not changed:
        yield "No change is shown."
    for verdict in changed:
        cells = by_verdict[verdict]
        yield f"{verdict.capitalize()}: {_places(cells)}, {_extent(cells)}."
    same = by_verdict.get("same", [])
    if same:
        yield f"The same within {limit_text(comparison.same_within)}: {_cells(same)}."
    noisy = by_verdict.get("too noisy to say", [])
    if noisy:
        yield f"Too noisy to say: {_cells(noisy)}{_remedy(noisy, comparison.same_within)}."
    disturbed = [side for side in (comparison.base, comparison.new) if side.is_disturbed]
    if disturbed:
        which = "both" if len(disturbed) > 1 else "the base" if disturbed[0] is comparison.base else "the new"
        yield f"Drift or a busy machine is in the figures of {which}: repeat before believing a change."


def _cells(cells: Sequence[ComparedCell]) -> str:
    return f"{len(cells)} {'cell' if len(cells) == 1 else 'cells'}"


def _places(cells: Sequence[ComparedCell]) -> str:
    """`decode at 0, 128 and 512 tokens`, phase by phase."""
    phases: dict[tuple[str, str], list[ComparedCell]] = {}
    for cell in cells:
        phases.setdefault((cell.label, cell.phase), []).append(cell)
    texts = [_place_of_phase(found) for found in phases.values()]
    more = len(texts) - _MAX_PLACES
    return "; ".join(texts[:_MAX_PLACES]) + (f" and {more} more" if more > 0 else "")


def _place_of_phase(cells: Sequence[ComparedCell]) -> str:
    first = cells[0]
    if len(cells) == 1:
        return first.named
    of = f"{first.label}: " if first.label else ""
    lengths = [_length(cell) for cell in cells]
    listed = f"{', '.join(lengths[:-1])} and {lengths[-1]}"
    if first.phase == "load":
        return f"{of}load ({listed})"
    return f"{of}{first.phase} {'at' if first.phase == 'decode' else 'of'} {listed} tokens"


def _extent(cells: Sequence[ComparedCell]) -> str:
    most = max(cells, key=lambda cell: abs(math.log(cell.ratio)))
    return f"by {'up to ' if len(cells) > 1 else ''}{units.percent(abs(most.change))}"


def _remedy(cells: Sequence[ComparedCell], share: float) -> str:
    needed = max((cell.repetitions for cell in cells if cell.repetitions is not None), default=None)
    if needed is None:
        return ""
    return f"; to see {limit_text(share)} there, about {units.count(needed)} repetitions a file are needed"


def _files(comparisons: Sequence[Comparison]) -> Facts:
    base = comparisons[0].base
    names = ["base", "new"] if len(comparisons) == 1 else ["1 (base)", *_numbers(comparisons)]
    sides = [base, *(one.new for one in comparisons)]
    facts = tuple(Fact(name=name, value=_file(side)) for name, side in zip(names, sides, strict=True))
    return Facts(title="Compared", facts=facts)


def _file(side: Comparable) -> str:
    started = f", {clean(side.started_at, limit=30)}" if side.started_at else ""
    origin = "" if side.source == "run" else f", {clean(side.source, limit=30)}"
    return f"{name_of(side)}{started}{origin}"


def _length(cell: ComparedCell) -> str:
    if cell.phase == "load":
        return clean(cell.cache_state or "", limit=10)
    if cell.phase == "decode" or not cell.depth_tokens:
        return units.count(cell.depth_tokens if cell.phase == "decode" else cell.prompt_tokens)
    return f"{units.count(cell.prompt_tokens)} @ {units.count(cell.depth_tokens)}"


def _interval(cell: ComparedCell) -> str:
    if cell.low is None or cell.high is None:
        return units.UNKNOWN
    return f"{units.change(cell.low - 1).removesuffix(' %')} to {units.change(cell.high - 1)}"


def _head(is_labelled: bool) -> tuple[Column, ...]:
    label = (Column(title="of", numeric=False),) if is_labelled else ()
    return (*label, Column(title="phase", numeric=False), Column(title="tokens"))


def _table(comparison: Comparison) -> Table:
    is_labelled = any(cell.label for cell in comparison.cells)
    columns = (
        *_head(is_labelled),
        Column(title="base"),
        Column(title="new"),
        Column(title="n", wide=True),
        Column(title="change"),
        Column(title="95 % interval"),
        Column(title="verdict", numeric=False),
    )
    rows = tuple(
        (
            *((cell.label,) if is_labelled else ()),
            cell.phase,
            _length(cell),
            units.duration(cell.base_s),
            units.duration(cell.new_s),
            f"{_samples(cell.base_n)} / {_samples(cell.new_n)}",
            units.change(cell.change),
            _interval(cell),
            cell.verdict,
        )
        for cell in comparison.cells
    )
    return Table(title="Time, new against base", columns=columns, rows=rows, notes=_how(comparison))


def _samples(n: int | None) -> str:
    return "?" if n is None else str(n)


def _how(comparison: Comparison) -> tuple[str, ...]:
    tested = sum(cell.p_value is not None for cell in comparison.cells)
    corrected = (
        f"Verdicts are corrected for {tested} {'test' if tested == 1 else 'tests'}: a false alarm in at most"
        f" {limit_text(FALSE_ALARMS)} of comparisons. Less than {limit_text(LEAST_CHANGE)} is no change."
    )
    return (
        "Medians; decode per token; + is slower. Intervals are each cell's own.",
        *((corrected,) if tested else ()),
        "Noise within each file is known, what differs from run to run (clocks, a busy host) is not.",
    )


def _tables_of_several(comparisons: Sequence[Comparison]) -> Iterator[Table]:
    numbered = list(zip(_numbers(comparisons), comparisons, strict=True))
    cells: dict[tuple[str, str], ComparedCell] = {}
    for one in comparisons:
        for cell in one.cells:
            cells.setdefault((cell.label, cell.place), cell)
    is_labelled = any(cell.label for cell in cells.values())
    notes = ("= is the same, ? too noisy to say; others are changes.", *_how(comparisons[0]))
    for start in range(0, len(numbered), _FILES_A_TABLE):
        shown = numbered[start : start + _FILES_A_TABLE]
        found = [{(cell.label, cell.place): cell for cell in one.cells} for _, one in shown]
        rows = tuple(
            (
                *((cell.label,) if is_labelled else ()),
                cell.phase,
                _length(cell),
                units.duration(cell.base_s),
                *(_brief(of_file.get(key)) for of_file in found),
            )
            for key, cell in cells.items()
        )
        yield Table(
            title="Time against file 1",
            columns=(
                *_head(is_labelled),
                Column(title="1 (base)"),
                *(Column(title=f"file {number}") for number, _ in shown),
            ),
            rows=rows,
            notes=notes if start + _FILES_A_TABLE >= len(numbered) else (),
        )


_SIGNS: dict[Verdict, str] = {"same": " =", "too noisy to say": " ?", "slower": "", "faster": ""}


def _brief(cell: ComparedCell | None) -> str:
    return _ABSENT if cell is None else f"{units.change(cell.change)}{_SIGNS[cell.verdict]}"


def _bars(comparisons: Sequence[Comparison], numbers: Sequence[str]) -> Iterator[RatioBar]:
    for phase in PHASES:
        for number, one in zip(numbers, comparisons, strict=True):
            ratios = [cell.ratio for cell in one.cells if cell.phase == phase]
            if ratios:
                yield RatioBar(phase=phase, file=number, ratio=statistics.geometric_mean(ratios))


def _file_notes(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """What the files say of themselves, each once."""
    for side in (comparisons[0].base, *(one.new for one in comparisons)):
        for note in side.notes:
            yield f"{name_of(side)}: {note}"
        if not side.machine:
            yield f"{name_of(side)} does not name its machine: whether it is the same one is not known."


def _notes(comparison: Comparison) -> list[str]:
    soft = [found.text for found in comparison.divergences if found.is_soft]
    lost = [f"Not measured in {name_of(comparison.new)}: {text}." for text in comparison.lost]
    different = [f"Also different, and taken for harmless: {'; '.join(soft)}."] if soft else []
    reasons = dict.fromkeys(
        cell.reason for cell in comparison.cells if cell.p_value is None and cell.reason is not None
    )
    untested = [f"Some cells could not be tested: {reason}." for reason in reasons]
    return [*different, *comparison.unmatched, *lost, *untested]
