"""`--quant`: models in the quantizations asked for, with progress on standard error."""

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Sequence

from probes.errors import UsageError
from probes.ggml_types import QUANTIZATION_ALIASES, QUANTIZATIONS
from probes.quantized_models import Making, make_variants, require_may_quantize
from probes.records import ModelFacts
from profiler_cli.console import note
from profiler_cli.streams import is_live, width_of, write_error
from reports.text import clean

_CLEAR = "\r\x1b[K"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Quantizing:
    """As the options say."""

    types: tuple[str, ...]
    """Keys of QUANTIZATIONS; empty: the models as they are."""
    requantize: bool

    @classmethod
    def read(cls, quant: str | None, requantize: bool) -> Quantizing:
        """From `--quant` and `--requantize`. Raises UsageError."""
        if quant is None and requantize:
            raise UsageError("--requantize needs --quant: name the types to make", reason="requantize")
        parts = [] if quant is None else quant.split(",")
        return cls(types=tuple(dict.fromkeys(map(_read_type, parts))), requantize=requantize)


def _read_type(text: str) -> str:
    name = text.strip().upper()
    name = QUANTIZATION_ALIASES.get(name, name)
    if name not in QUANTIZATIONS:
        near = difflib.get_close_matches(name, QUANTIZATIONS, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UsageError(
            f"--quant: {clean(text, limit=40)!r} is no quantization{hint}; there are"
            f" {', '.join(QUANTIZATIONS)}",
            reason="quant",
        )
    return name


def quantized(
    models: Sequence[ModelFacts], wish: Quantizing, threads: int, *, quiet: bool
) -> list[ModelFacts]:
    """Each model in each type; the models as they are where no type is asked for. Raises LlmphaseError."""
    if not wish.types:
        return list(models)
    for model in models:  # all of them, before minutes are spent on the first
        require_may_quantize(model, wish.types, requantize=wish.requantize)
    display = _Display(quiet=quiet)
    try:
        return [
            variant
            for model in models
            for variant in make_variants(
                model,
                wish.types,
                requantize=wish.requantize,
                threads=threads,
                progress=display.show,
            )
        ]
    finally:
        display.close()


class _Display:
    """One line that is redrawn; where standard error is no terminal, a line for each variant."""

    def __init__(self, *, quiet: bool) -> None:
        self._is_live = is_live(sys.stderr) and not quiet
        self._quiet = quiet
        self._last = ""

    def show(self, making: Making) -> None:
        what = f"{making.quantization} of {clean(making.model_name)}"
        line = f"Making {what}" if making.share is not None else f"Waiting: another llmphase makes {what}"
        if self._is_live:
            share = "" if making.share is None else f": {making.share:.0%}"
            write_error(_CLEAR + f"{line}{share}"[: width_of(sys.stderr) - 1])
        elif line != self._last:
            note(f"{line}.", quiet=self._quiet)
        self._last = line

    def close(self) -> None:
        """Take the line away."""
        if self._is_live and self._last:
            write_error(_CLEAR)
