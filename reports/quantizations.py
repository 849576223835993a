"""Quantizations of one model compared: what each label holds, and how decode and prefill go with it.

Groups of a run belong together when their headers describe the same model; where they do not, the difference
is named. Rates are compared at the same settings only.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence

from probes.records import CellResult, GroupResult, ModelFacts, Origin, Run, Settings
from reports import measured, stats
from reports.axes import axes, label
from reports.bandwidth_line import MOST_NOISE, OFF_SHARE, Line, Reading, find_line, is_sure
from reports.same_model import differences, is_same_model
from reports.text import clean

_SIZE = re.compile(r"(.+) - (Small|Medium|Large)")
_ALIASES = {"IQ3_S mix": "IQ3_M", "all F32": "F32", "Q2_K_M": "Q2_K", "MXFP4 MoE": "MXFP4_MOE"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One quantization, at one setting."""

    group: int
    """Index of the load group."""
    label: str
    """As llama.cpp's tools name it: `Q4_K_M`; numbered where two files share it."""
    model_bytes: int
    bytes_per_token: int
    bits_per_weight: float | None
    """Over all tensors, norms included; None without weights."""
    bytes_by_type: dict[str, int]
    """The commonest first."""
    made_from: Origin | None
    decode_s: float | None
    """Median for one token; None where it was not measured."""
    decode_noise: float | None
    """Half-width of its 95 % interval as a share of it; None below three passes."""
    line_s: float | None
    """What the line says for its bytes; None without a line."""
    off_line: float | None
    """By which share decode takes longer than that; None without a line. It tells nothing where
    `decode_noise` is not `is_sure`."""
    is_off_line: bool
    """Further than noise and OFF_SHARE explain."""
    prefill_s: float | None
    prefill_noise: float | None
    prefill_excess: float | None
    """By which share the prompt takes longer than with the fastest of those that are known well enough."""
    is_prefill_slower: bool
    """Than the fastest, by more than noise and OFF_SHARE."""
    is_source: bool
    """The others were made from it."""
    is_behind_source: bool
    """Prefill is slower than the source's, by more than noise and OFF_SHARE."""

    def share(self, type_name: str) -> float:
        """Of the bytes, what this type has."""
        total = sum(self.bytes_by_type.values())
        return self.bytes_by_type.get(type_name, 0) / total if total else 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The quantizations of a model at one setting, those that read most first."""

    backend: str
    """Device families that hold weights."""
    depth_tokens: int | None
    """Depth at which decode is compared: the shallowest that all of them measured."""
    prompt_tokens: int | None
    """Prompt for which prefill is compared: the longest that all of them measured."""
    setting: str
    """What tells it from the model's other comparisons; empty for a single one."""
    line: Line | None
    """Its `on` are indices of `variants` that have a decode time."""
    line_reason: str | None
    """Why there is none."""
    variants: tuple[Variant, ...]
    unlike: tuple[str, ...]
    """Differences between their files or settings beside the quantization, in words."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedModel:
    """All comparisons of one model."""

    name: str
    n_embd: int | None
    comparisons: tuple[Comparison, ...]
    strangers: tuple[str, ...]
    """Models of the run that are no quantization of this one, and by what that is known, in words."""


def quantized_models(run: Run) -> tuple[QuantizedModel, ...]:
    """Each model that the run has in several quantizations."""
    families: list[list[int]] = []
    for index, group in enumerate(run.groups):
        family = next((one for one in families if is_same_model(run.groups[one[0]].model, group.model)), None)
        if family is None:
            families.append([index])
        else:
            family.append(index)
    found = []
    for family in families:
        first = run.groups[family[0]].model
        if comparisons := tuple(_comparisons(run, family)):
            found.append(
                QuantizedModel(
                    name=clean(first.name, limit=60),
                    n_embd=first.n_embd,
                    comparisons=comparisons,
                    strangers=tuple(_strangers(first, run, families)),
                )
            )
    return tuple(found)


def short_label(label: str) -> str:
    """`Q4_K - Medium` as `Q4_K_M`, `IQ4_XS - 4.25 bpw` as `IQ4_XS`."""
    plain = clean(label, limit=40)
    if sized := _SIZE.fullmatch(plain):
        plain = f"{sized[1]}_{sized[2][0]}"
    plain = plain.split(" - ")[0]
    return _ALIASES.get(plain, plain)


def bits_per_weight(model: ModelFacts) -> float | None:
    """Of all tensors; None for a file without weights."""
    return 8 * model.model_bytes / model.n_params if model.n_params else None


# --- which belong together -----------------------------------------------------------------------


def _strangers(first: ModelFacts, run: Run, families: Sequence[Sequence[int]]) -> Iterator[str]:
    for family in families:
        other = run.groups[family[0]].model
        if not is_same_model(first, other):
            yield f"{clean(other.name, limit=60)} is another model: {', '.join(differences(first, other))}"


def _unlike(groups: Sequence[GroupResult]) -> Iterator[str]:
    """What else differs between files of one model, or between what the engine did with them."""
    names = dict.fromkeys(clean(group.model.name, limit=60) for group in groups)
    if len(names) > 1:
        yield f"their names differ ({', '.join(names)}): the same sizes, so speed compares"
    contexts = {group.model.n_ctx_train for group in groups}
    if len(contexts) > 1:
        yield "they name different training contexts"
    if len({group.model.tied_output for group in groups}) > 1:
        yield "some hold an output layer of its own, others share it with the embedding"
    plain = [short_label(group.model.quantization) for group in groups if not group.settings.repack]
    if 0 < len(plain) < len(groups):
        yield f"{', '.join(plain)} ran without repacked weights, the others with"


# --- comparing -----------------------------------------------------------------------------------


def _comparisons(run: Run, family: Sequence[int]) -> Iterator[Comparison]:
    """One for each setting. Repacking may have been given up for one quantization alone, after a crash of the
    engine: that is said, not kept apart."""
    alike: dict[Settings, list[int]] = {}
    for index in family:
        asked = dataclasses.replace(run.groups[index].settings, repack=True)
        alike.setdefault(asked, []).append(index)
    several = {
        settings: indices
        for settings, indices in alike.items()
        if len({run.groups[index].model.path for index in indices}) > 1
    }
    one_of_each = [
        dataclasses.replace(run.groups[indices[0]], settings=settings)
        for settings, indices in several.items()
    ]
    differing = axes(one_of_each)
    for group, indices in zip(one_of_each, several.values(), strict=True):
        yield _comparison(run, indices, label(group, differing))


def _comparison(run: Run, indices: Sequence[int], setting: str) -> Comparison:
    ordered = sorted(indices, key=lambda index: -run.groups[index].model.bytes_per_token)
    groups = [run.groups[index] for index in ordered]
    labels = _labels(groups)
    depth = min(_common(groups, measured.decode), default=None)
    prompt = max(_common(groups, measured.prefill), default=None)
    sources = {group.model.made_from.path for group in groups if group.model.made_from}
    variants = [
        dataclasses.replace(
            _variant(index, group, name, depth, prompt), is_source=group.model.path in sources
        )
        for index, group, name in zip(ordered, groups, labels, strict=True)
    ]
    line, reason = _line(variants)
    if placed := _placed_apart(groups, labels):
        line, reason = None, placed
    if line is not None:
        variants = [_beside_line(one, line) for one in variants]
    return Comparison(
        backend=", ".join(dict.fromkeys(clean(one.resolved.backend) for one in groups if one.resolved)),
        depth_tokens=depth,
        prompt_tokens=prompt,
        setting=setting,
        line=line,
        line_reason=reason,
        variants=_with_prefill(variants),
        unlike=tuple(_unlike(groups)),
    )


def _line(variants: Sequence[Variant]) -> tuple[Line | None, str | None]:
    """Through the times that are known well enough; its `on` are indices of all variants."""
    readings = {place: reading for place, one in enumerate(variants) if (reading := _reading(one))}
    if len(readings) < 2 <= sum(one.decode_s is not None for one in variants):
        most = f"{100 * MOST_NOISE:.0f} %"
        return None, f"their times are too uncertain (fewer than three passes, or scattered beyond ±{most})"
    line, reason = find_line(tuple(readings.values()))
    if line is None:
        return None, reason
    places = tuple(readings)
    return dataclasses.replace(line, on=tuple(places[i] for i in line.on)), None


def _reading(one: Variant) -> Reading | None:
    if not one.decode_s or one.decode_noise is None or not is_sure(one.decode_noise):
        return None
    return Reading(n_bytes=one.bytes_per_token, seconds=one.decode_s, noise=one.decode_noise)


def _beside_line(one: Variant, line: Line) -> Variant:
    line_s = line.seconds(one.bytes_per_token)
    reading = _reading(one)
    return dataclasses.replace(
        one,
        line_s=line_s,
        off_line=None if one.decode_s is None else one.decode_s / line_s - 1,
        is_off_line=reading is not None and line.is_off(reading),
    )


def _placed_apart(groups: Sequence[GroupResult], labels: Sequence[str]) -> str | None:
    """Weights read from different memories draw no common line: why, where that is so."""
    places = {
        name: (group.resolved.backend, group.resolved.n_gpu_layers)
        for group, name in zip(groups, labels, strict=True)
        if group.resolved
    }
    if len(set(places.values())) < 2:
        return None
    shown = ", ".join(f"{name} {layers} on {clean(backend)}" for name, (backend, layers) in places.items())
    return f"their layers are not placed alike ({shown})"


def _labels(groups: Sequence[GroupResult]) -> list[str]:
    plain = [short_label(group.model.quantization) for group in groups]
    return [
        name if plain.count(name) == 1 else f"{name} #{plain[: index + 1].count(name)}"
        for index, name in enumerate(plain)
    ]


_OfCell = Callable[[CellResult], "measured.Measured | None"]


def _common(groups: Sequence[GroupResult], of_cell: _OfCell) -> set[int]:
    """Prompt lengths at which a phase was measured in all groups that measured anything."""
    lengths = [
        {cell.prompt_tokens for cell in measured.measured_cells(group) if of_cell(cell)} for group in groups
    ]
    known = [one for one in lengths if one]
    return set.intersection(*known) if known else set()


def _time(group: GroupResult, length: int | None, of_cell: _OfCell) -> tuple[float | None, float | None]:
    """Median and relative half-width of its interval."""
    cells = [cell for cell in measured.measured_cells(group) if cell.prompt_tokens == length]
    found = of_cell(cells[0]) if cells else None
    if found is None or found.summary.median <= 0:
        return None, None
    return found.summary.median, stats.relative_half_width(found.summary)


def _variant(index: int, group: GroupResult, name: str, depth: int | None, prompt: int | None) -> Variant:
    model = group.model
    decode_s, decode_noise = _time(group, depth, measured.decode)
    prefill_s, prefill_noise = _time(group, prompt, measured.prefill)
    return Variant(
        group=index,
        label=name,
        model_bytes=model.model_bytes,
        bytes_per_token=model.bytes_per_token,
        bits_per_weight=bits_per_weight(model),
        bytes_by_type={clean(name, limit=20): n_bytes for name, n_bytes in model.bytes_by_type.items()},
        made_from=model.made_from,
        decode_s=decode_s,
        decode_noise=decode_noise,
        line_s=None,
        off_line=None,
        is_off_line=False,
        prefill_s=prefill_s,
        prefill_noise=prefill_noise,
        prefill_excess=None,
        is_prefill_slower=False,
        is_source=False,
        is_behind_source=False,
    )


def _with_prefill(variants: Sequence[Variant]) -> tuple[Variant, ...]:
    timed = [one for one in variants if one.prefill_s is not None and is_sure(one.prefill_noise)]
    fastest = min(timed, key=lambda one: one.prefill_s or 0.0, default=None)
    source = next((one for one in timed if one.is_source), None)
    return tuple(
        dataclasses.replace(
            one,
            prefill_excess=_excess(one, fastest),
            is_prefill_slower=_is_slower(one, fastest),
            is_behind_source=_is_slower(one, source),
        )
        for one in variants
    )


def _excess(one: Variant, other: Variant | None) -> float | None:
    """By which share a prompt takes longer than with another."""
    if other is None or other.prefill_s is None or one.prefill_s is None:
        return None
    return one.prefill_s / other.prefill_s - 1


def _is_slower(one: Variant, other: Variant | None) -> bool:
    excess = _excess(one, other)
    if other is None or excess is None or not is_sure(one.prefill_noise):
        return False
    return excess > max(OFF_SHARE, (one.prefill_noise or 0.0) + (other.prefill_noise or 0.0))
