"""The section of a report that compares the quantizations of a model: sentences, tables and a chart's
figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from probes.records import Run
from reports import units
from reports.bandwidth_line import OFF_SHARE, Line, is_sure
from reports.charts import BytesChart, BytesPoint
from reports.parts import Column, Table
from reports.quantization_sentences import sentences
from reports.quantizations import Comparison, QuantizedModel, Variant, quantized_models

_ABSENT = "–"
_CURVE_STEPS = 60
_NAMED_TYPE_SHARE = 0.005
"""Types with less of the bytes (norms) are left out of the list."""


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
    return QuantizationSection(
        title=f"Quantizations of {model.name}",
        sentences=sentences(model),
        holds=_holds(model.comparisons[0]),
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
    shares = [(name, variant.share(name)) for name in variant.bytes_by_type]
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
