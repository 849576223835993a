"""What a comparison of quantizations says, in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from reports import units
from reports.bandwidth_line import LEAST_ON_LINE, MOST_NOISE, Line, is_sure
from reports.quantizations import Comparison, QuantizedModel, Variant

_NAMESAKE_SHARE = 0.5
"""A label whose own type holds less than this share of the bytes promises what it does not hold."""
_BLOCK = 256
"""Weights that K and IQ types store together: a row must be a multiple of it."""
_FIRST_WORD = re.compile(r"(I?[QT]Q?\d_(?:K|NL|XXS|XS|[SM01])|MXFP4|BF16|F16|F32)")


def sentences(model: QuantizedModel) -> tuple[str, ...]:
    """Decode and prefill at each setting, then where the files come from, what they hold, and how they differ
    beside."""
    first = model.comparisons[0]
    found = [text for one in model.comparisons for text in _speed_sentences(one)]
    found += [*_origin_sentences(first), *_label_sentences(model, first)]
    found += [f"{text[0].upper()}{text[1:]}." for text in (*first.unlike, *model.strangers)]
    return tuple(found)


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
        if own and variant.bytes_by_type and variant.share(own[1]) < _NAMESAKE_SHARE:
            most = next(iter(variant.bytes_by_type))
            found.append(
                f"{variant.label} holds {units.percent(variant.share(own[1]))} {own[1]}, mostly {most}"
            )
    if found:
        why = ""
        if model.n_embd and model.n_embd % _BLOCK:
            why = f" (rows of {model.n_embd} weights are no multiple of the {_BLOCK} that some types need)"
        yield f"Labels are not what the bytes are{why}: {'; '.join(found)}."
