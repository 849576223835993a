"""The phase diagram: over prompt and answer lengths, which phase takes longer, and where the two cross.

Both axes are logarithmic (base 2), since requests differ by factors: the crossover is then nearly a straight
line. What differs is drawn with different signs, so the map reads without colour too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from reports import units
from reports.evidence import Evidence
from reports.phases import Estimate, PhaseModel
from reports.request_costs import Costs, ModelCosts, costs_of
from reports.waits import Waits

MIN_WIDTH = 40
_PROMPT_OCTAVES = (4, 13)
"""From 16 to 8,192 prompt tokens, wider where the request itself lies outside."""
_OUTPUT_OCTAVES = (2, 11)
"""From 4 to 2,048 answer tokens, likewise."""
_MOST_OCTAVE = 40
_ROWS = (10, 16)
"""Least and most rows; between them one an octave."""
_TICK_GAP = 7
"""Columns that a tick label of the x axis needs."""
_ROWS_PER_LABEL = 2
_LONGEST_ANSWER = 2**24
"""Tokens; an answer that is longer than any before it outweighs the prompt has no crossover."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """Costs at any length, put through the request as it was measured."""

    costs: Costs
    prefill_factor: float
    decode_factor: float

    def prefill(self, prompt_tokens: int, cached_tokens: int = 0) -> Estimate | None:
        """Evaluating a prompt of which the first `cached_tokens` are in the cache already."""
        found = self.costs.prefill(prompt_tokens, cached_tokens)
        return found.times(self.prefill_factor) if found else None

    def decode(self, prompt_tokens: int, output_tokens: int) -> Estimate | None:
        """All decode steps of an answer after that prompt."""
        found = self.costs.decode(prompt_tokens, output_tokens)
        return found.times(self.decode_factor) if found else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PhaseMap:
    """Which phase takes longer at every pair of lengths around one request."""

    costs: Calibrated
    cached_tokens: int
    """Prefix that is in the cache at every point of the map."""
    evaluated_tokens: int
    """Of the request's prompt, behind that prefix."""
    output_tokens: int
    measured_tokens: int | None
    """Longest prompt that was measured; beyond it the map extrapolates. None: it rests on single rates."""

    def crossover_tokens(self, evaluated_tokens: int) -> int | None:
        """The shortest answer, in tokens, whose decode takes at least as long as this prompt's prefill; None
        where no answer does.

        By doubling and halving: decode only grows with the answer.
        """
        prompt = self.cached_tokens + evaluated_tokens
        prefill = self.costs.prefill(prompt, self.cached_tokens)
        if prefill is None:
            return None
        low, high = 0, 1
        while not self._outweighs(prompt, high, prefill.value_s):
            low, high = high, 2 * high
            if high > _LONGEST_ANSWER:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._outweighs(prompt, middle, prefill.value_s) else (middle, high)
        return high

    def _outweighs(self, prompt_tokens: int, output_tokens: int, prefill_s: float) -> bool:
        decode = self.costs.decode(prompt_tokens, output_tokens)
        return decode is not None and decode.value_s >= prefill_s


def calibrated(evidence: Evidence, model: PhaseModel | None, waits: Waits) -> Calibrated:
    """The fitted costs, or those of single rates, scaled to what the request itself took."""
    costs = costs_of(evidence, model)
    prompt, cached, output = evidence.n_prompt or 0, evidence.n_prompt_cached or 0, evidence.n_output or 0
    return Calibrated(
        costs=costs,
        prefill_factor=_factor(waits.prefill_s, costs.prefill(prompt, cached)),
        decode_factor=_factor(waits.decode_s, costs.decode(prompt, output)),
    )


def _factor(measured_s: float | None, predicted: Estimate | None) -> float:
    """Measured over predicted; 1 where one of them is unknown or nothing."""
    if not measured_s or predicted is None or predicted.value_s <= 0:
        return 1.0
    return measured_s / predicted.value_s


def phase_map(evidence: Evidence, costs: Calibrated) -> PhaseMap | None:
    """The map around a request; None where its lengths or a phase's cost are not known."""
    evaluated, output = evidence.n_evaluated, evidence.n_output
    prefill, decode = costs.prefill(1), costs.decode(1, 2)
    if evaluated is None or output is None or prefill is None or decode is None or decode.value_s <= 0:
        return None
    fit = costs.costs.model.prefill if isinstance(costs.costs, ModelCosts) else None
    return PhaseMap(
        costs=costs,
        cached_tokens=evidence.n_prompt_cached or 0,
        evaluated_tokens=evaluated,
        output_tokens=output,
        measured_tokens=round(fit.largest_tokens) if fit else None,
    )


# --- drawing -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Signs:
    prefill: str
    decode: str
    crossover: str
    here: str
    corner: str
    dash: str
    tick: str
    side: str


_UNICODE = _Signs(prefill="▒", decode="·", crossover="━", here="X", corner="└", dash="─", tick="┬", side="┤")
_ASCII = _Signs(prefill="#", decode=".", crossover="=", here="X", corner="+", dash="-", tick="+", side="|")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """Octaves laid over cells."""

    low: int
    high: int
    cells: int

    def cell(self, tokens: float) -> int:
        """The nearest cell, which may lie outside."""
        share = (math.log2(max(tokens, 1)) - self.low) / (self.high - self.low)
        return round(share * (self.cells - 1))

    def within(self, tokens: float) -> int:
        """The nearest cell of the axis."""
        return min(max(self.cell(tokens), 0), self.cells - 1)

    def tokens(self, cell: int) -> float:
        """Tokens at the middle of a cell."""
        return float(2.0 ** (self.low + (self.high - self.low) * cell / (self.cells - 1)))


def draw(phases: PhaseMap, *, width: int, unicode: bool) -> str | None:
    """The map as lines of at most `width` columns, a title first and a legend last; None where the width is
    too small."""
    if width < MIN_WIDTH:
        return None
    signs = _UNICODE if unicode else _ASCII
    low, high = _octaves(phases.output_tokens, _OUTPUT_OCTAVES)
    answer = _Axis(low=low, high=high, cells=min(max(high - low + 1, _ROWS[0]), _ROWS[1]))
    labels = {answer.cell(2**k): units.tick(2**k) for k in range(low, high + 1)}
    margin = max(len(label) for label in labels.values())
    low, high = _octaves(phases.evaluated_tokens, _PROMPT_OCTAVES)
    prompt = _Axis(low=low, high=high, cells=width - margin - 1)
    grid = _grid(phases, prompt, answer, signs)
    lines = ["Phase diagram: which phase takes longer", "answer [tokens]"]
    for row in range(answer.cells - 1, -1, -1):
        # Every second label: those of all rows would read as one column of figures.
        is_labelled = row in labels and (answer.cells - 1 - row) % _ROWS_PER_LABEL == 0
        label = labels[row] if is_labelled else ""
        lines.append(f"{label:>{margin}}{signs.side}{''.join(grid[row])}")
    lines += _ruler(prompt, margin, signs)
    lines.append(_caption(phases).center(width).rstrip())
    lines += _legend(phases, signs, width)
    return "\n".join(lines)


def _octaves(tokens: int, usual: tuple[int, int]) -> tuple[int, int]:
    """The usual range, stretched so that the request lies an octave inside of it."""
    place = math.log2(max(tokens, 1))
    low = min(usual[0], max(math.floor(place) - 1, 0))
    return low, min(max(usual[1], math.ceil(place) + 1), _MOST_OCTAVE)


def _grid(phases: PhaseMap, prompt: _Axis, answer: _Axis, signs: _Signs) -> list[list[str]]:
    """Rows from the shortest answer up, each from the shortest prompt on."""
    grid = [[signs.prefill] * prompt.cells for _ in range(answer.cells)]
    for column in range(prompt.cells):
        crossover = phases.crossover_tokens(round(prompt.tokens(column)))
        if crossover is None:
            continue
        line = answer.cell(crossover)
        for row in range(max(line, 0), answer.cells):
            grid[row][column] = signs.crossover if row == line else signs.decode
    here = answer.within(phases.output_tokens)
    for sign, name in ((signs.prefill, " prompt: prefill "), (signs.decode, " answer: decode ")):
        _write(grid, sign, name, keep=here)
    _mark(grid[here], prompt.within(phases.evaluated_tokens), signs.here)
    return grid


def _write(grid: list[list[str]], sign: str, name: str, *, keep: int) -> None:
    """A region's name where the region is widest, but not in the row `keep`."""
    runs = [(_longest_run(row, sign), number) for number, row in enumerate(grid) if number != keep]
    (length, start), number = max(runs, key=lambda run: run[0][0])
    if length >= len(name) + 2:
        begin = start + (length - len(name)) // 2
        grid[number][begin : begin + len(name)] = name


def _longest_run(row: Sequence[str], sign: str) -> tuple[int, int]:
    """Length and start of the longest run of a sign."""
    best, start = (0, 0), 0
    for column in range(len(row) + 1):
        if column == len(row) or row[column] != sign:
            best = max(best, (column - start, start), key=lambda run: run[0])
            start = column + 1
    return best


def _mark(row: list[str], column: int, sign: str) -> None:
    """The request, with room around it."""
    for beside in (column - 1, column + 1):
        if 0 <= beside < len(row):
            row[beside] = " "
    row[column] = sign


def _ruler(axis: _Axis, margin: int, signs: _Signs) -> list[str]:
    """The x axis and its labels."""
    step = math.ceil(_TICK_GAP * (axis.high - axis.low) / axis.cells)
    line = [signs.dash] * axis.cells
    labels = [" "] * (axis.cells + margin + 1)
    for octave in range(axis.low, axis.high + 1, step):
        column = axis.cell(2**octave)
        text = units.tick(2**octave)
        line[column] = signs.tick
        start = min(column + margin + 1, len(labels) - len(text))
        labels[start : start + len(text)] = text
    return [f"{'':>{margin}}{signs.corner}{''.join(line)}", "".join(labels).rstrip()]


def _caption(phases: PhaseMap) -> str:
    if not phases.cached_tokens:
        return "prompt [tokens]"
    return f"prompt [tokens] behind {units.count(phases.cached_tokens)} cached ones"


def _legend(phases: PhaseMap, signs: _Signs, width: int) -> list[str]:
    """What the signs mean, broken between two of them."""
    here = f"{signs.here} this request"
    lengths = f"{units.count(phases.evaluated_tokens)} and {units.count(phases.output_tokens)} tokens"
    items = (
        f"{signs.prefill * 2} reading the prompt takes longer",
        f"{signs.decode * 2} writing the answer does",
        f"{signs.crossover * 2} crossover",
        f"{here}: {lengths}" if len(f"{here}: {lengths}") <= width else here,
    )
    lines = [""]
    for item in items:
        joined = f"{lines[-1]}   {item}" if lines[-1] else item
        if len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(item)
    return [*lines, *_doubt(phases, width)]


def _doubt(phases: PhaseMap, width: int) -> list[str]:
    """From where on the map is less sure."""
    if phases.measured_tokens is None:
        text = "From one rate a phase: what lengths do to the rates is not known."
    else:
        text = f"Beyond {units.count(phases.measured_tokens)} tokens it extrapolates."
    return [text] if len(text) <= width else []
