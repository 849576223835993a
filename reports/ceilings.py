"""What share of its ceiling each phase reached, and what the ceiling would allow.

A share is the least time that the devices allow (`reports.roofs`) over the time that was measured. More than
the whole is an error of measurement: it has no share and becomes a notice with both numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from probes.records import CellResult, DeviceCeiling, GroupResult
from reports import measured, roofs, units
from reports.notices import Notice
from reports.roofs import Roof

TOLERANCE = 0.03
"""Both sides of a share are measured: up to this much above the ceiling counts as having reached it."""

Phase = Literal["prefill", "decode"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PhaseShare:
    """One phase of one cell beside its roof."""

    phase: Phase
    prompt_tokens: int
    """Of the cell."""
    tokens: int
    """That the seconds are for: 1 for decode, the prompt for prefill."""
    measured_s: float
    roof: Roof | None
    share: float | None
    """Of the ceiling reached, 0 to 1."""
    reason: str | None
    """Why `share` is None."""

    @property
    def measured_tokens_s(self) -> float:
        """Tokens per second as measured."""
        return self.tokens / self.measured_s

    @property
    def allowed_tokens_s(self) -> float | None:
        """Tokens per second that the ceiling would allow."""
        return self.tokens / self.roof.total_s if self.roof else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CeilingReport:
    """Shares of all measured cells of one load group, by ascending prompt length."""

    prefill: tuple[PhaseShare, ...]
    decode: tuple[PhaseShare, ...]
    notices: tuple[Notice, ...]
    """`over-ceiling`, where a phase was faster than can be."""
    unknown: tuple[str, ...]
    """What the roofs had to leave out, or the figures rest on with doubt."""


def assess(group: GroupResult, ceilings: Sequence[DeviceCeiling]) -> CeilingReport:
    """Set every measured cell beside its roof. Pure; what can not be told has its reason."""
    cells = measured.measured_cells(group)
    prefill = tuple(filter(None, (_prefill_share(group, cell, ceilings) for cell in cells)))
    decode = tuple(filter(None, (_decode_share(group, cell, ceilings) for cell in cells)))
    return CeilingReport(
        prefill=prefill,
        decode=decode,
        notices=tuple(_over_ceiling((*prefill, *decode))),
        unknown=_doubts(group, ceilings),
    )


def sentence(share: PhaseShare) -> str:
    """The share in words, or why there is none."""
    name = "Decode" if share.phase == "decode" else "Prefill"
    if share.share is None or share.roof is None:
        return f"{name}: its share of the ceiling is {units.unknown(share.reason or 'not measured')}."
    return (
        f"{name} runs at {units.percent(share.share)} of what this machine can do with this model: "
        f"{units.rate(share.measured_tokens_s)} of at most {units.token_rate(share.allowed_tokens_s)}."
    )


def _prefill_share(
    group: GroupResult, cell: CellResult, ceilings: Sequence[DeviceCeiling]
) -> PhaseShare | None:
    found = measured.prefill(cell)
    if found is None:
        return None
    tokens = cell.prompt_tokens
    seconds = found.summary.median
    return _share("prefill", cell, tokens, seconds, lambda: roofs.prefill_roof(group, ceilings, tokens))


def _decode_share(
    group: GroupResult, cell: CellResult, ceilings: Sequence[DeviceCeiling]
) -> PhaseShare | None:
    found = measured.decode(cell)
    if found is None:
        return None
    depth = measured.depth_tokens(cell)
    return _share("decode", cell, 1, found.summary.median, lambda: roofs.decode_roof(group, ceilings, depth))


def _share(
    phase: Phase, cell: CellResult, tokens: int, seconds: float, ask: Callable[[], Roof]
) -> PhaseShare | None:
    if seconds <= 0:
        return None
    roof = reached = reason = None
    try:
        roof = ask()
    except roofs.UnknownRoofError as error:
        reason = str(error)
    else:
        reached = roof.total_s / seconds
        if reached > 1 + TOLERANCE:
            reached, reason = None, "it was faster than the ceiling allows: an error of measurement"
    return PhaseShare(
        phase=phase,
        prompt_tokens=cell.prompt_tokens,
        tokens=tokens,
        measured_s=seconds,
        roof=roof,
        share=None if reached is None else min(reached, 1.0),
        reason=reason,
    )


def _over_ceiling(shares: Sequence[PhaseShare]) -> Iterator[Notice]:
    """One notice a phase, for the cell that is furthest off."""
    for phase in ("prefill", "decode"):
        over = [item for item in shares if item.phase == phase and item.roof and item.share is None]
        if not over:
            continue
        worst = min(over, key=lambda item: item.measured_s / item.tokens * (item.allowed_tokens_s or 0.0))
        yield Notice(
            code="over-ceiling",
            phase=phase,
            prompt_tokens=tuple(item.prompt_tokens for item in over),
            text=f"An error of measurement: {phase} at {units.count(worst.prompt_tokens)} prompt tokens ran "
            f"at {units.token_rate(worst.measured_tokens_s)}, and the measured ceiling allows "
            f"{units.token_rate(worst.allowed_tokens_s)}. Measure both again while nothing else runs.",
        )


def _doubts(group: GroupResult, ceilings: Sequence[DeviceCeiling]) -> tuple[str, ...]:
    doubts = [f"{one.device}: {field}: {why}" for one in ceilings for field, why in one.unknown.items()]
    if group.resolved is not None and group.resolved.graph_nodes is None:
        doubts.append("cost of operations: the engine did not tell how many its graph has")
    if group.model.attention == "hybrid":
        doubts.append("attention of a prompt: the file does not tell which layers attend")
    return tuple(doubts)
