"""Whether devices of other machines help: the same model and settings with layers on them and without."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

from probes.records import CellResult, GroupResult, Run
from reports import measured, stats, units
from reports.links import is_remote, layers_there, link_facts
from reports.parts import Fact, Facts
from reports.text import clean

CLEAR = 0.03
"""Where an interval is missing, figures nearer than this are the same."""

_Phase = Callable[[CellResult], measured.Measured | None]


def remote_facts(run: Run) -> Facts | None:
    """The ways to the servers, what they cost, and whether the devices behind them help; None for a run
    without servers."""
    if not run.links:
        return None
    used = (Fact(name="use", value=text) for text in uses(run.groups))
    return Facts(title="Remote devices", facts=(*link_facts(run), *used))


def uses(groups: Sequence[GroupResult]) -> tuple[str, ...]:
    """For each model and setting measured both without and with layers on other machines: what that does to
    decode and to prefill, the fastest of each side compared."""
    texts = []
    for kin in _kindred(groups):
        local = [group for group in kin if not is_remote(group)]
        remote = [group for group in kin if is_remote(group)]
        common = _longest_common(kin)
        if local and remote and common is not None:
            phases = "; ".join(_phase_texts(local, remote, common))
            texts.append(f"{clean(kin[0].model.name, limit=60)}: {phases}")
    return tuple(texts)


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


def _phase_texts(
    local: Sequence[GroupResult], remote: Sequence[GroupResult], prompt_tokens: int
) -> Iterator[str]:
    for phase, of_cell, tokens in (
        ("decode", measured.decode, 1),
        ("prefill", measured.prefill, prompt_tokens),
    ):
        here, there = (_fastest(side, prompt_tokens, of_cell) for side in (local, remote))
        if here is None or there is None:
            continue
        verb = _verb(here[0], there[0])
        rates = [units.rate(tokens / side[0].median) for side in (there, here)]
        yield (
            f"{verb} {phase} ({rates[0]} tok/s with {layers_there(there[1])} there, {rates[1]} without, at"
            f" {units.count(prompt_tokens)} prompt tokens)"
        )


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


def _verb(here: stats.Summary, there: stats.Summary) -> str:
    """Whether the remote devices are faster, slower, or neither beyond the noise."""
    if _is_below(there, here):
        return "the remote devices help"
    if _is_below(here, there):
        return "keep layers off the remote devices: they slow"
    return "the remote devices make no difference to"


def _is_below(low: stats.Summary, high: stats.Summary) -> bool:
    if low.ci_high is None or high.ci_low is None:
        return low.median < high.median * (1 - CLEAR)
    return low.ci_high < high.ci_low
