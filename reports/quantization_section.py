"""The section of a report that compares the quantizations of a model: sentences, tables and a chart's
figures."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

from probes.records import Run
from reports import units
from reports.bandwidth_line import LEAST_ON_LINE, MOST_NOISE, OFF_SHARE, Line, is_sure
from reports.charts import BytesChart, BytesPoint
from reports.parts import Column, Table
from reports.quantizations import Comparison, QuantizedModel, Variant, quantized_models

_ABSENT = "–"
_CURVE_STEPS = 60
_NAMED_TYPE_SHARE = 0.005
"""Types with less of the bytes (norms) are left out of the list."""
_NAMESAKE_SHARE = 0.5
"""A label whose own type holds less than this share of the bytes promises what it does not hold."""
_BLOCK = 256
"""Weights that K and IQ types store together: a row must be a multiple of it."""
_FIRST_WORD = re.compile(r"(I?[QT]Q?\d_(?:K|NL|XXS|XS|[SM01])|MXFP4|BF16|F16|F32)")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationSection:
    """One model in several quantizations."""

    title: str
    sentences: tuple[str, ...]
    holds: Table
    speeds: Table
    chart: BytesChart
    """Of the setting with the fastest decode."""
    model: QuantizedModel

    def figures(self) -> dict[str, Any]:
        """What the section rests on, as JSON holds it."""
        return {
            "model": self.model.name,
            "sentences": self.sentences,
            "comparisons": [
                {
                    "setting": one.setting,
                    "backend": one.backend,
                    "depth_tokens": one.depth_tokens,
                    "prompt_tokens": one.prompt_tokens,
                    "line": None if one.line is None else _line_figures(one.line),
                    "line_reason": one.line_reason,
                    "variants": [_variant_figures(variant) for variant in one.variants],
                }
                for one in self.model.comparisons
            ],
        }


def quantization_sections(run: Run) -> tuple[QuantizationSection, ...]:
    """One for each model that the run has in several quantizations."""
    return tuple(_section(model) for model in quantized_models(run))


def _section(model: QuantizedModel) -> QuantizationSection:
    sentences = [text for one in model.comparisons for text in _speed_sentences(one)]
    first = model.comparisons[0]
    sentences += [*_origin_sentences(first), *_label_sentences(model, first)]
    sentences += [f"{text[0].upper()}{text[1:]}." for text in (*first.unlike, *model.strangers)]
    return QuantizationSection(
        title=f"Quantizations of {model.name}",
        sentences=tuple(sentences),
        holds=_holds(first),
        speeds=_speeds(model.comparisons),
        chart=_chart(model.comparisons),
        model=model,
    )


def _line_figures(line: Line) -> dict[str, float | None]:
    return {
        "constant_s": line.constant_s,
        "constant_low_s": line.constant_low_s,
        "constant_high_s": line.constant_high_s,
        "bandwidth_bytes_s": line.bandwidth_bytes_s,
        "bandwidth_low_bytes_s": line.bandwidth_low_bytes_s,
        "bandwidth_high_bytes_s": line.bandwidth_high_bytes_s,
    }


def _variant_figures(variant: Variant) -> dict[str, Any]:
    """Without the file's path: a report may be shown to anyone."""
    origin = variant.made_from
    return dataclasses.asdict(dataclasses.replace(variant, made_from=None)) | {
        "made_from": None if origin is None else origin.quantization
    }


# --- sentences -----------------------------------------------------------------------------------


def _speed_sentences(one: Comparison) -> Iterator[str]:
    start = f"With {one.setting}: " if one.setting else ""
    timed = [variant for variant in one.variants if variant.decode_s and is_sure(variant.decode_noise)]
    unsure = [variant.label for variant in one.variants if variant.decode_s and variant not in timed]
    if one.depth_tokens is not None and len(timed) + len(unsure) > 1:
        yield start + _line_sentence(one, timed)
        yield from _off_sentences(one, timed)
    if unsure and one.line is not None:
        yield f"Too uncertain to be judged: {', '.join(unsure)} (±{units.percent(MOST_NOISE)} would do)."
    yield from _prefill_sentences(start, one)


def _line_sentence(one: Comparison, timed: Sequence[Variant]) -> str:
    line = one.line
    if line is None:
        return f"No line of decode time against bytes is to be seen: {one.line_reason}."
    constant = f"{_constant(line)} and the time to read its weights at {_bandwidth(line)}"
    if len(timed) < LEAST_ON_LINE:
        return (
            f"By these two, a token takes {constant}; with a third quantization it would show whether decode"
            " keeps to that."
        )
    how_many = "all" if len(line.on) == len(timed) else str(len(line.on))
    return f"Decode goes by the bytes for {how_many} of {len(timed)}: a token takes {constant}."


def _constant(line: Line) -> str:
    return units.duration_interval(line.constant_s, line.constant_low_s, line.constant_high_s)


def _bandwidth(line: Line) -> str:
    """`13.1 GiB/s (95 %: 12.5 to 13.8 GiB/s)`, with the ends of the interval that it has."""
    text = units.size_rate(line.bandwidth_bytes_s, 1.0)
    low, high = line.bandwidth_low_bytes_s, line.bandwidth_high_bytes_s
    if low is None:
        return text
    least = units.size_rate(low, 1.0)
    if high is None:
        return f"{text} (95 %: at least {least})"
    most = units.size_rate(high, 1.0)
    if least.split()[1] == most.split()[1]:
        least = least.split()[0]
    return f"{text} (95 %: {least} to {most})"


def _off_sentences(one: Comparison, timed: Sequence[Variant]) -> Iterator[str]:
    off = [variant for variant in timed if variant.is_off_line]
    for variant in sorted(off, key=lambda variant: -(variant.off_line or 0.0)):
        if variant.off_line is None or variant.line_s is None or variant.decode_s is None:
            continue
        instead = f"{units.duration(variant.decode_s)} a token instead of {units.duration(variant.line_s)}"
        if variant.off_line > 0:
            yield (
                f"{variant.label} takes {units.percent(variant.off_line)} longer than its bytes explain"
                f" ({instead}): its kernels are slow on this backend ({one.backend})."
            )
        else:
            yield (
                f"{variant.label} takes {units.percent(-variant.off_line)} less than its bytes explain"
                f" ({instead}): its kernels are faster than the others' here."
            )


def _prefill_sentences(start: str, one: Comparison) -> Iterator[str]:
    timed = [variant for variant in one.variants if variant.prefill_s and is_sure(variant.prefill_noise)]
    if one.prompt_tokens is None or len(timed) < 2:
        return
    fastest = min(timed, key=lambda variant: variant.prefill_s or 0.0)
    slower = [
        f"{variant.label} by {units.percent(variant.prefill_excess)}"
        for variant in sorted(timed, key=lambda variant: -(variant.prefill_excess or 0.0))
        if variant.is_prefill_slower
    ]
    where = f"{start}a prompt of {units.count(one.prompt_tokens)} tokens"
    if not slower:
        yield f"{where[0].upper()}{where[1:]} takes about the same time with {_listed(timed, one)}."
        return
    smaller = any(
        variant.is_prefill_slower and variant.bytes_per_token < fastest.bytes_per_token for variant in timed
    )
    why = ": fewer bytes do not help where arithmetic decides" if smaller else ""
    yield (
        f"{where[0].upper()}{where[1:]} is read fastest with {fastest.label}; it takes longer with"
        f" {', '.join(slower)}{why}."
    )
    yield from _behind_source(timed, fastest)


def _listed(some: Sequence[Variant], one: Comparison) -> str:
    """`all of them`, or their names."""
    return "all of them" if len(some) == len(one.variants) else ", ".join(variant.label for variant in some)


def _behind_source(timed: Sequence[Variant], fastest: Variant) -> Iterator[str]:
    """Made files that read a prompt more slowly than what they were made from."""
    source = next((variant for variant in timed if variant.is_source), None)
    if source is None or source is fastest:
        return
    slower = [variant.label for variant in timed if variant.is_behind_source]
    if slower:
        yield f"Slower than their source {source.label} at that: {', '.join(slower)}."


def _origin_sentences(one: Comparison) -> Iterator[str]:
    made = [variant for variant in one.variants if variant.made_from]
    again = [variant.label for variant in made if variant.made_from and variant.made_from.is_quantized]
    first = [variant.label for variant in made if variant.label not in again]
    if again:
        yield (
            f"Made from quantized weights (--requantize): {', '.join(again)}. Their speed is that of the"
            " type, the quality of their answers is not."
        )
    if first:
        yield (
            f"Made here without an importance matrix: {', '.join(first)}. Their speed is that of the type;"
            " published files may answer better."
        )


def _label_sentences(model: QuantizedModel, one: Comparison) -> Iterator[str]:
    """Labels whose own type is the smaller part of the file."""
    found = []
    for variant in one.variants:
        own = _FIRST_WORD.match(variant.label)
        if own and variant.bytes_by_type and _share(variant, own[1]) < _NAMESAKE_SHARE:
            most = next(iter(variant.bytes_by_type))
            found.append(
                f"{variant.label} holds {units.percent(_share(variant, own[1]))} {own[1]}, mostly {most}"
            )
    if found:
        why = ""
        if model.n_embd and model.n_embd % _BLOCK:
            why = f" (rows of {model.n_embd} weights are no multiple of the {_BLOCK} that some types need)"
        yield f"Labels are not what the bytes are{why}: {'; '.join(found)}."


def _share(variant: Variant, type_name: str) -> float:
    total = sum(variant.bytes_by_type.values())
    return variant.bytes_by_type.get(type_name, 0) / total if total else 0.0


# --- tables and chart ----------------------------------------------------------------------------


def _holds(one: Comparison) -> Table:
    return Table(
        title="What each label holds",
        columns=(
            Column(title="label", numeric=False),
            Column(title="weights"),
            Column(title="bits/weight"),
            Column(title="read/token"),
            Column(title="tensor types, by bytes", numeric=False),
        ),
        rows=tuple(
            (
                variant.label,
                units.size(variant.model_bytes),
                _ABSENT if variant.bits_per_weight is None else f"{variant.bits_per_weight:.2f}",
                units.size(variant.bytes_per_token),
                _types(variant),
            )
            for variant in one.variants
        ),
    )


def _types(variant: Variant) -> str:
    shares = [(name, _share(variant, name)) for name in variant.bytes_by_type]
    shown = [f"{name} {units.percent(share)}" for name, share in shares if share >= _NAMED_TYPE_SHARE]
    return ", ".join(shown) or _ABSENT


def _speeds(comparisons: Sequence[Comparison]) -> Table:
    has_settings = len(comparisons) > 1
    setting = (Column(title="setting", numeric=False),) if has_settings else ()
    return Table(
        title=_speeds_title(comparisons),
        columns=(
            *setting,
            Column(title="label", numeric=False),
            Column(title="read/token", wide=True),
            Column(title="decode/token"),
            Column(title="tok/s"),
            Column(title="by bytes"),
            Column(title="off"),
            Column(title="prefill tok/s"),
            Column(title="behind"),
        ),
        rows=tuple(
            (*((one.setting,) if has_settings else ()), *_speed_row(one, variant))
            for one in comparisons
            for variant in one.variants
        ),
        notes=(
            (
                "By bytes: what the line says for the bytes that a token reads. Off: how far decode is from"
                f" it; ! beyond {units.percent(OFF_SHARE)} and the noise, ? too uncertain to tell."
                " Behind: how much longer prefill takes than the fastest."
            ),
        ),
    )


def _speeds_title(comparisons: Sequence[Comparison]) -> str:
    depths = {one.depth_tokens for one in comparisons}
    prompts = {one.prompt_tokens for one in comparisons}
    parts = []
    if len(depths) == 1 and None not in depths:
        parts.append(f"decode at depth {units.count(depths.pop())}")
    if len(prompts) == 1 and None not in prompts:
        parts.append(f"prefill of {units.count(prompts.pop())} tokens")
    return f"Speed by bytes{': ' if parts else ''}{', '.join(parts)}"


def _speed_row(one: Comparison, variant: Variant) -> tuple[str, ...]:
    seconds, noise = variant.decode_s, variant.decode_noise
    half = None if seconds is None or noise is None else seconds * noise
    decode = _ABSENT
    if seconds is not None:
        low, high = (None, None) if half is None else (seconds - half, seconds + half)
        decode = units.duration_interval(seconds, low, high)
    prefill = _ABSENT
    if variant.prefill_s and one.prompt_tokens:
        prefill = units.rate(one.prompt_tokens / variant.prefill_s)
    return (
        variant.label,
        units.size(variant.bytes_per_token),
        decode,
        units.rate(1 / seconds) if seconds else _ABSENT,
        _ABSENT if variant.line_s is None else units.duration(variant.line_s),
        _signed(variant.off_line, variant.is_off_line, variant.decode_noise),
        prefill,
        _signed(variant.prefill_excess, variant.is_prefill_slower, variant.prefill_noise),
    )


def _signed(share: float | None, is_beyond: bool, noise: float | None) -> str:
    """`+12 %!`, `-3 %`, `+40 %?` where noise does not let it be judged, `–` where it is not known."""
    if share is None:
        return _ABSENT
    mark = "!" if is_beyond else "" if is_sure(noise) else "?"
    return f"{100 * share:+.0f} %{mark}".replace("-0 %", "+0 %")


def _chart(comparisons: Sequence[Comparison]) -> BytesChart:
    one = min(comparisons, key=_fastest_s)
    points = tuple(
        BytesPoint(
            label=variant.label,
            n_bytes=variant.bytes_per_token,
            tokens_per_s=1 / variant.decode_s,
            is_off_line=variant.is_off_line,
        )
        for variant in one.variants
        if variant.decode_s
    )
    curve: tuple[tuple[float, float], ...] = ()
    if one.line and points:
        low, high = min(point.n_bytes for point in points), max(point.n_bytes for point in points)
        places = [low + (high - low) * step / _CURVE_STEPS for step in range(_CURVE_STEPS + 1)]
        curve = tuple((place, 1 / one.line.seconds(place)) for place in places)
    where = f" with {one.setting}" if one.setting else ""
    return BytesChart(title=f"Decode rate by bytes read{where}", points=points, line=curve)


def _fastest_s(one: Comparison) -> float:
    return min((variant.decode_s for variant in one.variants if variant.decode_s), default=float("inf"))
