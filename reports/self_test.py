"""Judges a self-test: do small models of known work measure as they must?

Each statement is about a ratio, taken within every round, since a machine's pace drifts from round to round.
It holds where the 95 % interval of the median ratio meets what is wanted, and the median itself is not far
off: noise alone never passes for agreement.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from probes.records import SelfTestRound
from reports import stats, units
from reports.parts import Column, Table

_WARM_UP_ROUNDS = 1
_WIDE = 0.2
_NOISY = "Some intervals are wide: other work ran. Repeat it on a quiet machine for a sharper test."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One thing that must hold, with what was measured."""

    code: str
    """Stable."""
    passed: bool
    text: str
    measured: float
    """Median over the rounds."""
    low: float | None
    """95 % interval of that median; None: too few rounds."""
    high: float | None
    wanted_low: float
    wanted_high: float
    rounds: int


def judge(rounds: Sequence[SelfTestRound]) -> tuple[Statement, ...]:
    """Every statement. The first round warms up and does not count; raises ValueError for none beside it."""
    counted = rounds[_WARM_UP_ROUNDS:]
    if not counted:
        raise ValueError("a self-test needs more than one round")
    return (
        _doubling(counted),
        _repeating(counted),
        *(_walking(counted, length) for length in counted[0].walk_prefill_ns),
        _accounting(counted),
    )


def _doubling(rounds: Sequence[SelfTestRound]) -> Statement:
    """A step has a small fixed part beside the layers, so the ratio may stay below 2; a cache that holds only
    the smaller model lifts it. The fastest step of a round counts: a longer one is interrupted more often."""
    ratios = [min(each.doubled_decode_ns) / min(each.decode_ns) for each in rounds]
    return _statement("layers-double", "decode with twice the layers takes", ratios, (1.8, 2.2), 1.4)


def _repeating(rounds: Sequence[SelfTestRound]) -> Statement:
    """A prefix cache would make every round but the first nearly free."""
    longest = list(rounds[0].walk_prefill_ns)[-1]
    times = [each.walk_prefill_ns[longest] for each in rounds]
    ratios = [later / earlier for earlier, later in itertools.pairwise(times)] or [1.0]
    text = f"the same prompt of {longest} tokens again takes"
    return _statement("repeat-costs-the-same", text, ratios, (0.95, 1.05), 1.5)


def _walking(rounds: Sequence[SelfTestRound], length: str) -> Statement:
    ratios = [each.walk_prefill_ns[length] / each.fresh_prefill_ns[length] for each in rounds]
    text = f"prefill of {length} tokens on the walk takes"
    return _statement(
        f"walk-is-fresh-{length}", f"{text}, against a fresh process,", ratios, (0.97, 1.03), 1.5
    )


def _accounting(rounds: Sequence[SelfTestRound]) -> Statement:
    """The phases must not sum above the wall, nor leave much of it out."""
    shares = [(each.request.wall_ns - each.request.unaccounted_ns) / each.request.wall_ns for each in rounds]
    found = _statement(
        "phases-sum-to-wall", "load aside, the phases of a request make up", shares, (0.95, 1.0), 1.2
    )
    return dataclasses.replace(
        found,
        passed=found.passed and max(shares) <= 1.0,
        text=f"the phases of a request make up {units.percent(found.measured)} of its wall time",
    )


def _statement(
    code: str, what: str, ratios: Sequence[float], wanted: tuple[float, float], factor: float
) -> Statement:
    """`factor`: how far beyond what is wanted the median may lie at the most, however wide its interval."""
    found = stats.summarize(ratios)
    low, high = found.ci_low, found.ci_high
    meets = (
        wanted[0] <= found.median <= wanted[1]
        if low is None or high is None
        else low <= wanted[1] and high >= wanted[0]
    )
    near = wanted[0] / factor <= found.median <= wanted[1] * factor
    interval = "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"
    return Statement(
        code=code,
        passed=meets and near,
        text=f"{what} {found.median:.2f} times as long{interval}",
        measured=found.median,
        low=low,
        high=high,
        wanted_low=wanted[0],
        wanted_high=wanted[1],
        rounds=found.n,
    )


def _is_wide(one: Statement) -> bool:
    return one.low is not None and one.high is not None and one.high - one.low > _WIDE * one.measured


def statements_table(statements: Sequence[Statement], threads: int) -> Table:
    """The statements in words."""
    titles = ("", "what must hold", "measured", "95 %", "wanted")
    rows = tuple(
        (
            "pass" if one.passed else "FAIL",
            one.text.partition(f" {one.measured:.2f} times")[0],
            f"{one.measured:.3f}",
            "-" if one.low is None or one.high is None else f"{one.low:.3f}–{one.high:.3f}",
            f"{one.wanted_low:.2f}–{one.wanted_high:.2f}",
        )
        for one in statements
    )
    noisy = any(_is_wide(one) for one in statements)
    passed = all(one.passed for one in statements)
    return Table(
        title="Self-test",
        columns=tuple(Column(title=title, numeric=index > 1) for index, title in enumerate(titles)),
        rows=rows,
        notes=(
            f"Median ratios of {statements[0].rounds} rounds over generated models, threads: {threads}.",
            "All hold." if passed else "Not all hold.",
            *((_NOISY,) if noisy else ()),
        ),
    )
