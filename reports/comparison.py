"""Two measurements compared: what differs between them as a whole, and a verdict for each cell."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Literal

from probes.errors import UsageError
from reports import comparison_stats as decide
from reports.comparable import PHASES, Comparable, ComparableCell, ComparedPhase
from reports.comparison_matching import Divergence, Match, Pair, match, name_of, place

Verdict = Literal["slower", "faster", "same", "too noisy to say"]
Method = Literal["bootstrap", "t", "none"]
DEFAULT_PHASES: tuple[ComparedPhase, ...] = ("load", "prefill", "decode")
"""TTFT is prefill with a constant added: compared beside it, one change would be counted twice."""
SAME_WITHIN = 0.05
LEAST_CHANGE = 0.01
"""A smaller change is never called one: between two runs of one program it is nothing."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCell:
    """One cell in both files. Times are seconds: for decode per token. A ratio is new over base: above 1 is
    slower."""

    phase: ComparedPhase
    place: str
    """`decode at 512 tokens`."""
    label: str
    """The model or setting that parts it from others of the same place."""
    model: dict[str, str]
    settings: dict[str, str]
    prompt_tokens: int | None
    depth_tokens: int | None
    output_tokens: int | None
    cache_state: str | None
    base_s: float
    """Medians."""
    new_s: float
    base_n: int | None
    new_n: int | None
    ratio: float
    """Of medians."""
    low: float | None
    """Its 95 % interval; None where the samples do not carry one."""
    high: float | None
    interval: Method
    """A bootstrap of medians from five samples on, else Student's t on logarithms."""
    p_value: float | None
    """Corrected for the number of cells; None where no test was possible."""
    detectable: float | None
    """The change that would have been found with 95 %, as a share."""
    repetitions: int | None
    """Needed in each file to find a change of `same_within` with 95 %."""
    verdict: Verdict
    reason: str | None
    """Why it is too noisy to say."""

    @property
    def named(self) -> str:
        """The place, behind what parts it from others."""
        return f"{self.label}: {self.place}" if self.label else self.place

    @property
    def change(self) -> float:
        """0.1: a tenth slower."""
        return self.ratio - 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One file against the first."""

    base: Comparable
    new: Comparable
    divergences: tuple[Divergence, ...]
    cells: tuple[ComparedCell, ...]
    unmatched: tuple[str, ...]
    lost: tuple[str, ...]
    same_within: float

    @property
    def like_for_like(self) -> bool:
        """Whether nothing that matters differs, as far as the files say."""
        return all(found.is_soft for found in self.divergences)


def compare(
    base: Comparable,
    new: Comparable,
    *,
    phases: Sequence[ComparedPhase] = DEFAULT_PHASES,
    same_within: float = SAME_WITHIN,
    anyway: bool = False,
) -> Comparison:
    """Compare two files cell by cell.

    Raises UsageError: `not-alike` where machine, engine, model or settings differ and `anyway` is not set,
    and as `match` does.
    """
    matched = match(base, new, phases)
    if matched.hard and not anyway:
        differing = "; ".join(found.text for found in matched.hard)
        raise UsageError(
            f"not like for like, {name_of(base)} against {name_of(new)}: {differing}. --anyway compares them"
            " all the same",
            reason="not-alike",
        )
    return Comparison(
        base=base,
        new=new,
        divergences=matched.divergences,
        cells=_cells(matched, same_within),
        unmatched=matched.unmatched,
        lost=matched.lost,
        same_within=same_within,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Tested:
    """A pair whose noise is known on both sides."""

    base: decide.Side
    new: decide.Side
    difference: decide.Difference
    p_value: float
    tests: int


def _cells(matched: Match, same_within: float) -> tuple[ComparedCell, ...]:
    tested = _test(matched.pairs)
    cells = [_cell(pair, tested.get(i), same_within) for i, pair in enumerate(matched.pairs)]
    return tuple(sorted(cells, key=_order))


def _order(cell: ComparedCell) -> tuple[str, int, int, int]:
    """Phase by phase, each by length."""
    return cell.label, PHASES.index(cell.phase), cell.depth_tokens or 0, cell.prompt_tokens or 0


def _test(pairs: Sequence[Pair]) -> dict[int, _Tested]:
    """By index: the pairs that can be tested, corrected for their number."""
    sides = {i: (decide.side(pair.base), decide.side(pair.new)) for i, pair in enumerate(pairs)}
    known = {i: (base, new) for i, (base, new) in sides.items() if base and new}
    phases = [pairs[i].base.phase for i in known]
    bases = decide.steadied([base for base, _ in known.values()], phases)
    news = decide.steadied([new for _, new in known.values()], phases)
    differences = [decide.difference(base, new) for base, new in zip(bases, news, strict=True)]
    corrected = decide.holm([found.p_value for found in differences])
    return {
        i: _Tested(base=base, new=new, difference=found, p_value=p, tests=len(known))
        for i, base, new, found, p in zip(known, bases, news, differences, corrected, strict=True)
    }


def _cell(pair: Pair, tested: _Tested | None, same_within: float) -> ComparedCell:
    base, new = pair.base, pair.new
    base_s, new_s = _median(base), _median(new)
    ratio = new_s / base_s
    low, high, method = _interval(base, new, tested)
    verdict, reason = _verdict(pair, tested, ratio, low, high, same_within)
    return ComparedCell(
        phase=base.phase,
        place=place(base),
        label=pair.label,
        model=base.model,
        settings=base.settings,
        prompt_tokens=base.prompt_tokens,
        depth_tokens=base.depth_tokens,
        output_tokens=base.output_tokens,
        cache_state=base.cache_state,
        base_s=base_s,
        new_s=new_s,
        base_n=_count(base),
        new_n=_count(new),
        ratio=ratio,
        low=low,
        high=high,
        interval=method,
        p_value=tested.p_value if tested else None,
        detectable=tested.difference.detectable(tested.tests) if tested else None,
        repetitions=decide.repetitions_needed(tested.base, tested.new, same_within, tested.tests)
        if tested
        else None,
        verdict=verdict,
        reason=reason,
    )


def _median(cell: ComparableCell) -> float:
    if cell.samples_s:
        return statistics.median(cell.samples_s)
    assert cell.summary is not None
    return cell.summary.median_s


def _count(cell: ComparableCell) -> int | None:
    if cell.samples_s:
        return len(cell.samples_s)
    return cell.summary.n if cell.summary else None


def _interval(
    base: ComparableCell, new: ComparableCell, tested: _Tested | None
) -> tuple[float | None, float | None, Method]:
    if min(len(base.samples_s), len(new.samples_s)) >= decide.MIN_BOOTSTRAPPED:
        return *decide.bootstrap_interval(base.samples_s, new.samples_s), "bootstrap"
    if tested:
        return *tested.difference.interval(), "t"
    return None, None, "none"


def _verdict(
    pair: Pair, tested: _Tested | None, ratio: float, low: float | None, high: float | None, limit: float
) -> tuple[Verdict, str | None]:
    if tested is None:
        return "too noisy to say", _unknown_noise(pair)
    is_change = abs(math.log(ratio)) > math.log1p(LEAST_CHANGE)
    # Logarithms are averaged, medians are shown: where an outlier makes the two disagree, neither is right.
    agree = (ratio > 1) == (tested.difference.value > 0)
    if tested.p_value <= decide.ALPHA and is_change and agree:
        return ("slower" if ratio > 1 else "faster"), None
    if low is not None and high is not None and 1 / (1 + limit) < low and high < 1 + limit:
        return "same", None
    return "too noisy to say", f"its interval reaches beyond ±{limit * 100:g} %"


def _unknown_noise(pair: Pair) -> str:
    """Why a pair could not be tested."""
    for cell in (pair.base, pair.new):
        n = _count(cell)
        if n is None:
            return "a file does not say how many repetitions it has (--assume-repetitions)"
        if n < 2:
            return "one repetition does not show how much it varies"
    return "a file does not say how much its samples vary"
