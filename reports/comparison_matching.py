"""Which cells of two files are the same cell, and what differs between the files as a whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from probes.errors import UsageError
from reports import units
from reports.comparable import Comparable, ComparableCell, ComparedPhase
from reports.text import clean

Kind = Literal["machine", "engine", "model", "setting"]
_SOFT = frozenset({"os", "llmphase", "n_ctx", "tokens"})
"""Told where they differ, and no reason to refuse: their effect on speed is small, or none."""
_BATCHES = frozenset({"n_batch", "n_ubatch"})
_LENGTHS = ("prompt_tokens", "depth_tokens", "cache_state")
_MAX_SHOWN = 4

Axis = tuple[Kind, str]
Key = tuple[object, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """One thing in which two files differ as a whole."""

    kind: Kind
    name: str
    base: str
    new: str
    is_soft: bool
    """Told, and no reason to refuse."""

    @property
    def text(self) -> str:
        """`engine version 0.3.36 against 0.3.37`."""
        kind = f"{self.kind} " if self.kind in ("engine", "model") else ""
        return f"{kind}{self.name} {self.base} against {self.new}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The same cell in both files, measured in both."""

    base: ComparableCell
    new: ComparableCell
    label: str
    """What parts it from others of its phase and lengths: `threads 4`; empty where nothing does."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Two files laid side by side."""

    divergences: tuple[Divergence, ...]
    pairs: tuple[Pair, ...]
    """In the order of the first file."""
    unmatched: tuple[str, ...]
    """Sentences: what one file alone has."""
    lost: tuple[str, ...]
    """Cells that the first file measured and the second could not, with the reason."""

    @property
    def hard(self) -> tuple[Divergence, ...]:
        """What makes the comparison not like for like."""
        return tuple(found for found in self.divergences if not found.is_soft)


def match(base: Comparable, new: Comparable, phases: Sequence[ComparedPhase]) -> Match:
    """Match the cells of these phases by the model, settings and lengths that both files know.

    What has one value in each file, and not the same, is a divergence and does not part the cells. Raises
    UsageError: `no-common-cell` naming the axis that differs, `duplicate-rows`.
    """
    all_cells = [[cell for cell in side.cells if cell.phase in phases] for side in (base, new)]
    measured = [[cell for cell in cells if _is_measured(cell)] for cells in all_cells]
    for side, cells in zip((base, new), measured, strict=True):
        if not cells:
            raise UsageError(
                f"{name_of(side)} has no measured cell of {' or '.join(phases)}: measure it again, or choose"
                " other phases with --phase",
                reason="no-common-cell",
            )
    divergences = [*_facts("machine", base.machine, new.machine), *_facts("engine", base.engine, new.engine)]
    key_axes: list[Axis] = []
    longest = _longest_common_prompt(*measured)
    for axis in _common_axes(*measured):
        first, second = (_values(cells, axis) for cells in measured)
        if len(first) == 1 == len(second):
            found = _facts(axis[0], {axis[1]: first[0]}, {axis[1]: second[0]})
            reaches = axis[1] in _BATCHES and _covers((first[0], second[0]), longest)
            divergences += (dataclasses.replace(one, is_soft=one.is_soft or reaches) for one in found)
        elif set(first) & set(second):
            key_axes.append(axis)
        else:
            raise _no_common_cell([(_axis_name(axis), first, second)])
    indexes = [
        _index(cells, key_axes, name_of(side)) for side, cells in zip((base, new), all_cells, strict=True)
    ]
    pairs = _pairs(indexes[0], indexes[1], key_axes)
    if not pairs:
        raise _no_common_cell(_parting_lengths(*measured))
    return Match(
        divergences=tuple(divergences),
        pairs=pairs,
        unmatched=tuple(_unmatched(base, new, *indexes)),
        lost=tuple(_lost(*indexes)),
    )


def name_of(side: Comparable) -> str:
    """The file's label, made harmless."""
    return clean(side.label, limit=60)


def place(cell: ComparableCell) -> str:
    """`decode at 512 tokens`, `load (warm)`."""
    if cell.phase == "load":
        return f"load ({clean(cell.cache_state, limit=20)})" if cell.cache_state else "load"
    depth = f" and {units.count(cell.depth_tokens)} in the cache" if cell.depth_tokens else ""
    if cell.phase == "decode":
        return f"decode at {units.count(cell.depth_tokens)} tokens"
    return f"{cell.phase} of {units.count(cell.prompt_tokens)} tokens{depth}"


def _is_measured(cell: ComparableCell) -> bool:
    return bool(cell.samples_s) or cell.summary is not None


def _facts(kind: Kind, base: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Divergence]:
    """Where both know a fact and do not agree."""
    for name in base:
        if name in new and base[name] != new[name]:
            first, second = (clean(value, limit=60) for value in (base[name], new[name]))
            yield Divergence(
                kind=kind, name=name.replace("_", " "), base=first, new=second, is_soft=name in _SOFT
            )


def _longest_common_prompt(base: Iterable[ComparableCell], new: Iterable[ComparableCell]) -> int:
    prompts = [{cell.prompt_tokens or 0 for cell in cells} for cells in (base, new)]
    return max(prompts[0] & prompts[1], default=0)


def _covers(batches: Iterable[str], prompt_tokens: int) -> bool:
    """Whether each batch takes the whole prompt: a larger one then does the same work. Decode takes one
    token."""
    return all(size.isdecimal() and int(size) >= prompt_tokens for size in batches)


def _value(cell: ComparableCell, axis: Axis) -> str | None:
    kind, name = axis
    if name == "output_tokens":
        return None if cell.output_tokens is None else str(cell.output_tokens)
    return (cell.model if kind == "model" else cell.settings).get(name)


def _values(cells: Iterable[ComparableCell], axis: Axis) -> tuple[str, ...]:
    """Each value once, in the file's order."""
    found = dict.fromkeys(_value(cell, axis) for cell in cells)
    return tuple(value for value in found if value is not None)


def _common_axes(base: Sequence[ComparableCell], new: Sequence[ComparableCell]) -> list[Axis]:
    """Axes that both files know, models first."""
    axes: dict[Axis, None] = {}
    for cell in base:
        axes |= dict.fromkeys(("model", name) for name in cell.model)
    for cell in base:
        axes |= dict.fromkeys(("setting", name) for name in cell.settings)
    axes["setting", "output_tokens"] = None
    return [axis for axis in axes if _values(base, axis) and _values(new, axis)]


def _axis_name(axis: Axis) -> str:
    kind, name = axis
    return f"model {name.replace('_', ' ')}" if kind == "model" else name.replace("_", " ")


def _no_common_cell(parting: Sequence[tuple[str, Sequence[object], Sequence[object]]]) -> UsageError:
    texts = [f"{name} {_listed(first)} against {_listed(second)}" for name, first, second in parting]
    why = "; ".join(texts) or "each combination of model, settings and lengths is in one file alone"
    return UsageError(
        f"no cell is in both files: {why}. Measure the same cells in both", reason="no-common-cell"
    )


def _listed(values: Sequence[object]) -> str:
    shown = ", ".join(clean(str(value), limit=40) for value in values[:_MAX_SHOWN])
    return f"{shown} ..." if len(values) > _MAX_SHOWN else shown


def _parting_lengths(
    base: Sequence[ComparableCell], new: Sequence[ComparableCell]
) -> list[tuple[str, Sequence[object], Sequence[object]]]:
    """The phases, or within a phase the lengths, of which the files have none in common."""
    phases = [tuple(dict.fromkeys(cell.phase for cell in cells)) for cells in (base, new)]
    common = [phase for phase in phases[0] if phase in phases[1]]
    if not common:
        return [("phase", phases[0], phases[1])]
    parting: dict[str, tuple[str, Sequence[object], Sequence[object]]] = {}
    for phase in common:
        for name in _LENGTHS:
            first, second = (_lengths(cells, phase, name) for cells in (base, new))
            if first and second and not set(first) & set(second):
                label = f"{phase} {name.replace('_', ' ')}"
                parting[label] = (label, first, second)
    return list(parting.values())


def _lengths(cells: Iterable[ComparableCell], phase: str, name: str) -> tuple[object, ...]:
    found = dict.fromkeys(getattr(cell, name) for cell in cells if cell.phase == phase)
    return tuple(value for value in found if value is not None)


def _key(cell: ComparableCell, axes: Sequence[Axis]) -> Key:
    lengths = (getattr(cell, name) for name in _LENGTHS)
    return (cell.phase, *lengths, *(_value(cell, axis) for axis in axes))


def _index(cells: Iterable[ComparableCell], axes: Sequence[Axis], label: str) -> dict[Key, ComparableCell]:
    """Cells by their key. Samples of a cell measured twice are pooled; two summaries of one cell are an
    error."""
    index: dict[Key, ComparableCell] = {}
    for cell in cells:
        key = _key(cell, axes)
        earlier = index.get(key)
        if earlier is None or not _is_measured(earlier):
            index[key] = cell
        elif earlier.samples_s and cell.samples_s:
            samples = (*earlier.samples_s, *cell.samples_s)
            index[key] = dataclasses.replace(earlier, samples_s=samples)
        elif _is_measured(cell):
            where = " and ".join(filter(None, (earlier.where, cell.where))) or label
            raise UsageError(
                f"{clean(where)}: {place(cell)} is there twice: remove one, or export it again",
                reason="duplicate-rows",
            )
    return index


def _pairs(
    base: Mapping[Key, ComparableCell], new: Mapping[Key, ComparableCell], axes: Sequence[Axis]
) -> tuple[Pair, ...]:
    both = [
        (cell, new[key])
        for key, cell in base.items()
        if _is_measured(cell) and key in new and _is_measured(new[key])
    ]
    telling = _telling([cell for cell, _ in both], axes)
    return tuple(Pair(base=one, new=other, label=_label(one, telling)) for one, other in both)


def _telling(cells: Sequence[ComparableCell], axes: Sequence[Axis]) -> list[Axis]:
    """As few axes as part the cells as far as all would: a model's name makes its size superfluous."""
    kept: list[Axis] = []
    parts = 1
    for axis in axes:
        finer = len({tuple(_value(cell, known) for known in (*kept, axis)) for cell in cells})
        if finer > parts:
            kept.append(axis)
            parts = finer
    return kept


def _label(cell: ComparableCell, axes: Sequence[Axis]) -> str:
    texts = []
    for axis in axes:
        value = _value(cell, axis)
        if value is not None:
            shown = clean(value, limit=30)
            texts.append(shown if axis[0] == "model" else f"{_axis_name(axis)} {shown}")
    return ", ".join(texts)


def _unmatched(
    base: Comparable,
    new: Comparable,
    in_base: Mapping[Key, ComparableCell],
    in_new: Mapping[Key, ComparableCell],
) -> Iterator[str]:
    for side, mine, others in ((base, in_base, in_new), (new, in_new, in_base)):
        alone = [place(cell) for key, cell in mine.items() if _is_measured(cell) and key not in others]
        if alone:
            yield f"Only in {name_of(side)}: {_listed(tuple(dict.fromkeys(alone)))}."


def _lost(base: Mapping[Key, ComparableCell], new: Mapping[Key, ComparableCell]) -> Iterator[str]:
    for key, cell in base.items():
        other = new.get(key)
        if _is_measured(cell) and other is not None and not _is_measured(other):
            yield f"{place(cell)} ({clean(other.problem or 'not measured', limit=120)})"
