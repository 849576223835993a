"""When a comparison is to fail: what `--fail-over` and `--noise-is-failure` mean."""

from __future__ import annotations

import dataclasses

from reports import units
from reports.comparison import ComparedCell, Comparison


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What was asked for; nothing fails without."""

    fail_over: float | None = None
    """A slowdown, as a share, that is still accepted."""
    noise_is_failure: bool = False


def limit_text(share: float) -> str:
    """A share that someone chose, with the digits they gave: `5 %`."""
    return f"{share * 100:g} %"


def failure(cell: ComparedCell, gate: Gate, same_within: float) -> str | None:
    """Why the cell fails the gate, or None.

    A slowdown fails where it is significant and over the limit; noise where it could hide one over the limit
    (`same_within` where no limit was given).
    """
    where = cell.named
    if gate.fail_over is not None and cell.verdict == "slower" and cell.change > gate.fail_over:
        return f"{where} is {units.percent(cell.change)} slower, over {limit_text(gate.fail_over)}"
    limit = same_within if gate.fail_over is None else gate.fail_over
    hides = cell.high is None or cell.high > 1 + limit
    if gate.noise_is_failure and cell.verdict == "too noisy to say" and hides:
        return f"{where} is too noisy to say: {cell.reason}"
    return None


def failures(comparison: Comparison, gate: Gate) -> tuple[str, ...]:
    """All that fails; a cell that could not be measured any more counts as noise: nothing is known of it."""
    found = [failure(cell, gate, comparison.same_within) for cell in comparison.cells]
    lost = [f"{text} was not measured again" for text in comparison.lost] if gate.noise_is_failure else []
    return (*filter(None, found), *lost)
