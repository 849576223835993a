"""Whether devices of other machines help: the same model and settings with layers on them and without."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from probes.records import CellResult, GroupResult, Run
from reports import measured, stats, units
from reports.links import is_remote, layers_there, link_facts
from reports.parts import Fact, Facts
from reports.text import clean

CLEAR = 0.03
"""Where an interval is missing, figures nearer than this are the same."""

Effect = Literal["faster", "slower", "no different beyond the noise"]
_Phase = Callable[[CellResult], measured.Measured | None]


def remote_facts(run: Run) -> Facts | None:
    """The ways to the servers, what they cost, and whether the devices behind them help; None for a run
    without servers."""
    if not run.links:
        return None
    return Facts(title="Remote devices", facts=(*link_facts(run), *use_facts(run.groups)))


def use_facts(groups: Sequence[GroupResult]) -> tuple[Fact, ...]:
    """For each model and setting measured both without and with layers on other machines: what that does to
    decode and to prefill, the fastest of each side compared, and what to do."""
    facts: list[Fact] = []
    for kin in _kindred(groups):
        common = _longest_common(kin)
        found = () if common is None else tuple(_compared(kin, common))
        where = f"{clean(kin[0].model.name, limit=60)}, {units.count(common)} prompt tokens"
        facts += [
            Fact(name=phase, value=f"{effect} with them: {rates} ({where})") for phase, effect, rates in found
        ]
        if found:
            facts.append(Fact(name="advice", value=_advice([effect for _, effect, _ in found])))
    return tuple(facts)


def _kindred(groups: Sequence[GroupResult]) -> Iterable[list[GroupResult]]:
    """Measured groups that differ only in where layers lie."""
    kin: dict[object, list[GroupResult]] = {}
    for group in groups:
        if measured.measured_cells(group):
            same = dataclasses.replace(
                group.settings, n_gpu_layers=None, devices=(), tensor_split=(), rpc_servers=()
            )
            kin.setdefault((group.model.path, same), []).append(group)
    return kin.values()


def _longest_common(groups: Sequence[GroupResult]) -> int | None:
    lengths = [{cell.prompt_tokens for cell in measured.measured_cells(group)} for group in groups]
    return max(set.intersection(*lengths), default=None)


def _compared(kin: Sequence[GroupResult], prompt_tokens: int) -> Iterator[tuple[str, Effect, str]]:
    """Phase, what the remote devices do to it, and the rates, for each phase measured on both sides."""
    sides = [[group for group in kin if is_remote(group) is there] for there in (False, True)]
    for phase, of_cell, tokens in (
        ("decode", measured.decode, 1),
        ("prefill", measured.prefill, prompt_tokens),
    ):
        here, there = (_fastest(side, prompt_tokens, of_cell) for side in sides)
        if here is None or there is None:
            continue
        with_them, without = (units.rate(tokens / side[0].median) for side in (there, here))
        rates = f"{with_them} tok/s with {layers_there(there[1])} there, {without} without"
        yield phase, _effect(here[0], there[0]), rates


def _fastest(
    groups: Sequence[GroupResult], prompt_tokens: int, of_cell: _Phase
) -> tuple[stats.Summary, GroupResult] | None:
    found = []
    for group in groups:
        cell = next(c for c in measured.measured_cells(group) if c.prompt_tokens == prompt_tokens)
        phase = of_cell(cell)
        if phase and phase.summary.median > 0:
            found.append((phase.summary, group))
    return min(found, key=lambda pair: pair[0].median, default=None)


def _effect(here: stats.Summary, there: stats.Summary) -> Effect:
    if _is_below(there, here):
        return "faster"
    return "slower" if _is_below(here, there) else "no different beyond the noise"


def _is_below(low: stats.Summary, high: stats.Summary) -> bool:
    if low.ci_high is None or high.ci_low is None:
        return low.median < high.median * (1 - CLEAR)
    return low.ci_high < high.ci_low


def _advice(effects: Sequence[Effect]) -> str:
    if "faster" in effects:
        return (
            "Adding them helps." if "slower" not in effects else "They help one phase and hold up the other."
        )
    return "Keep layers off them." if "slower" in effects else "Adding them changes nothing that shows."
