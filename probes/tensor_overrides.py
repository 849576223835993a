"""What `--override-tensor` takes from where its layer lies to another buffer, told from the header.

Follows `llama_model_loader::create_tensor` in llama.cpp: the first pattern that `std::regex_search` finds in
a tensor's full name decides, whatever layer it is of. A tied embedding that is moved is kept once: its copy
for the output layer has the same name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

from probes.errors import UsageError
from probes.gguf_header import layer_bytes, layer_expert_bytes, output_bytes
from probes.gguf_reader import TensorInfo, read_tensors
from probes.records import ModelFacts, Settings

_ESCAPE = re.compile(r"\\.", re.DOTALL)
_CLASS = re.compile(r"\[\^?[^\]]*\]")
_ENGINE_DIFFERS = (
    (re.compile(r"\\[AZaUN]"), "escapes such as \\A and \\Z: use ^ and $"),
    (re.compile(r"\[\^?\]"), "] first in a class: write \\]"),
    (re.compile(r"\[[:.=]"), "named classes such as [:digit:] are not followed here: write 0-9"),
    (re.compile(r"\(\?(?![:=!])"), "of groups with a ? it has (?:...), (?=...) and (?!...) alone"),
    (re.compile(r"[*+?}]\+"), "it has no possessive repeats such as *+"),
    (
        re.compile(r"\{(?![0-9]+(?:,[0-9]*)?\})"),
        "a { begins a repeat such as {2}: write \\{ for it",
    ),
)
"""Where a pattern means something else, or nothing, to the engine's `std::regex` (ECMAScript). The first is
looked for in the whole pattern, the next two outside of escapes, the others outside of classes too."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Weights that overrides send to one buffer type."""

    buffer: str
    """As asked: `CPU`, `CUDA0`, `RPC0[...]`."""
    n_bytes: int
    """Of all tensors that go there."""
    layer_bytes: tuple[int, ...]
    """Of these, by the repeating layer that they are taken from."""
    layer_expert_bytes: tuple[int, ...]
    output_bytes: int
    """Of these, taken from the output layer; a tied embedding counts as that."""


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern as Python's, which searches as the engine does. Raises UsageError for one that is no
    regular expression, or that means something else to the engine."""
    without_escapes = _ESCAPE.sub("e", pattern)
    texts = (pattern, *(without_escapes,) * 2, *(_CLASS.sub("c", without_escapes),) * 3)
    for (differs, why), text in zip(_ENGINE_DIFFERS, texts, strict=True):
        if differs.search(text):
            raise _no_pattern(pattern, f"is not read so by the engine: {why}")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise _no_pattern(pattern, f"is no regular expression: {error}") from error


def moved_weights(model: ModelFacts, settings: Settings) -> tuple[Moved, ...]:
    """What the overrides of these settings move; nothing is read where there are none.

    Raises UsageError as `compile_pattern`, ModelFileError and UnmeasurableError as `read_header`.
    """
    if not settings.override_tensor:
        return ()
    tensors = read_tensors(model.files)
    return moved_of(tensors, settings.override_tensor, n_layers=model.n_layers, tied=model.tied_output)


def moved_of(
    tensors: Iterable[TensorInfo], overrides: Sequence[str], *, n_layers: int | None, tied: bool
) -> tuple[Moved, ...]:
    """What overrides `PATTERN=BUFFER` move, by buffer. Raises UsageError as `compile_pattern`."""
    asked = [override.rpartition("=")[::2] for override in overrides]
    rules = [(compile_pattern(pattern), buffer) for pattern, buffer in asked]
    by_buffer: dict[str, list[TensorInfo]] = {}
    for tensor in tensors:
        buffer = next((buffer for pattern, buffer in rules if pattern.search(tensor.name)), None)
        if buffer is not None:
            by_buffer.setdefault(buffer, []).append(tensor)
    return tuple(
        Moved(
            buffer=buffer,
            n_bytes=sum(tensor.n_bytes for tensor in there),
            layer_bytes=layer_bytes(there, n_layers),
            layer_expert_bytes=layer_expert_bytes(there, n_layers),
            output_bytes=output_bytes(there, tied=tied),
        )
        for buffer, there in by_buffer.items()
    )


def without(model: ModelFacts, moved: Sequence[Moved]) -> ModelFacts:
    """The facts of what is left where the layers lie."""
    for one in moved:
        model = dataclasses.replace(
            model,
            model_bytes=model.model_bytes - one.n_bytes,
            layer_bytes=_difference(model.layer_bytes, one.layer_bytes),
            layer_expert_bytes=_difference(model.layer_expert_bytes, one.layer_expert_bytes),
            output_bytes=model.output_bytes - one.output_bytes,
        )
    return model


def scaled(moved: Sequence[Moved], share: float) -> tuple[Moved, ...]:
    """The same tensors in a quantization that takes this share of the bytes."""
    return tuple(
        Moved(
            buffer=one.buffer,
            n_bytes=round(share * one.n_bytes),
            layer_bytes=tuple(round(share * size) for size in one.layer_bytes),
            layer_expert_bytes=tuple(round(share * size) for size in one.layer_expert_bytes),
            output_bytes=round(share * one.output_bytes),
        )
        for one in moved
    )


def _difference(whole: Sequence[int], part: Sequence[int]) -> tuple[int, ...]:
    """Of facts that do not tell their layers there is nothing to take away."""
    return tuple(size - gone for size, gone in zip(whole, part, strict=True)) if whole else ()


def _no_pattern(pattern: str, why: str) -> UsageError:
    return UsageError(f"--override-tensor: {pattern[:40]!r} {why}", reason="override-tensor")
