"""What two measurements are compared by, wherever they come from: a saved run, our own export, another
tool's file.

A file becomes one `Comparable`; `reports.comparison` knows nothing else. Machine, engine, model and settings
are dictionaries of short texts: a key that a source does not know is left out, never guessed, and is then not
compared.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

from probes.errors import UsageError
from reports.text import clean

ComparedPhase = Literal["load", "prefill", "decode", "ttft"]
_LEAST, _MOST = 1e-12, 1e18
"""A picosecond in seconds, thirty years in nanoseconds: beyond, a digit is wrong, and ratios overflow."""
PHASES: tuple[ComparedPhase, ...] = ("load", "prefill", "decode", "ttft")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    """All that is left of a cell's samples where a file does not carry them."""

    median_s: float
    """The mean stands in where the source has no median."""
    stddev_s: float | None
    """Of the samples (n - 1), not of their mean."""
    low_s: float | None
    """95 % interval of the median."""
    high_s: float | None
    n: int | None
    """Samples behind the figures; None where the source does not say."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ComparableCell:
    """One phase at one length, of one model with one set of settings."""

    model: dict[str, str]
    """Keys: `name`, `architecture`, `quantization`, `model_bytes`, `n_params`; others are compared where both
    have them."""
    settings: dict[str, str]
    """Keys as the columns of `reports.rows`: `backend`, `n_gpu_layers`, `n_batch`, `n_ubatch`, `threads`,
    `threads_batch`, `flash_attn` (`enabled`, `disabled`), `type_k`, `type_v`, `load_mode`, `n_ctx` and others
    of the source. `n_gpu_layers` and `flash_attn` are as resolved; what was asked for is another key."""
    phase: ComparedPhase
    prompt_tokens: int | None
    """Evaluated by one sample; None for load and decode."""
    depth_tokens: int | None
    """In the cache when the phase starts; None for load."""
    output_tokens: int | None
    """Steps behind one sample; for decode alone."""
    cache_state: str | None = None
    """Of the model file before a load."""
    samples_s: tuple[float, ...] = ()
    """Seconds, one a repetition, those that count: for the whole load or prompt; for decode per token."""
    summary: CellSummary | None = None
    """Where there are no samples."""
    problem: str | None = None
    """Why there are neither: the cell failed or was left out."""
    where: str = ""
    """The cell's place in its file, for messages: `row 7`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparable:
    """One file's measurements."""

    label: str
    """What to call it: a run id or a file's name. Untrusted text."""
    source: str
    """`run`, `csv`, `json`, `llama-bench`."""
    started_at: str | None
    """UTC, ISO 8601."""
    machine: dict[str, str]
    """Keys: `cpu`, `usable cpus`, `gpus`, `os`."""
    engine: dict[str, str]
    """Keys: `version`, `commit` (its first seven characters), `llmphase`."""
    cells: tuple[ComparableCell, ...]
    notes: tuple[str, ...] = ()
    """What to know before trusting it: drift, a busy machine, what was left out."""
    is_disturbed: bool = False
    """Drift, or something else on the machine, is in the figures."""


def known_texts(facts: Mapping[str, object]) -> dict[str, str]:
    """The facts that are known, as text; several values joined by commas, none of several left out."""
    texts = {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for name, value in facts.items()
        if value is not None
    }
    return {name: clean(text) for name, text in texts.items() if text}


def checked_seconds(value: object, *, field: str, where: str, may_be_zero: bool = False) -> float:
    """`value` as a duration: a number above zero (no time is no measurement) and of sane size, whatever the
    unit.

    Raises UsageError (`bad-duration`) naming the place for anything else.
    """
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    fits = _LEAST <= number <= _MOST or (may_be_zero and number == 0)
    if isinstance(value, bool) or not fits:
        shown = "missing" if value is None else clean(str(value), limit=40)
        raise UsageError(
            f"{where}: {field} is {shown}, which is no duration: remove the row, or make the file again",
            reason="bad-duration",
        )
    return number


def with_repetitions(file: Comparable, n: int) -> Comparable:
    """The file with `n` repetitions behind each summary that does not say how many, and a note that they are
    assumed."""
    cells = tuple(_with_repetitions(cell, n) for cell in file.cells)
    if cells == file.cells:
        return file
    note = f"It does not say how many repetitions it has: {n} are assumed, as asked."
    return dataclasses.replace(file, cells=cells, notes=(*file.notes, note))


def _with_repetitions(cell: ComparableCell, n: int) -> ComparableCell:
    if cell.summary is None or cell.summary.n is not None:
        return cell
    return dataclasses.replace(cell, summary=dataclasses.replace(cell.summary, n=n))
