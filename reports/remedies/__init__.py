"""Remedies: for each lever the wait that it would leave, computed rather than listed, the largest saving
first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reports.evidence import Evidence
from reports.phases import PhaseModel
from reports.remedies import around, request, room, settings, weights
from reports.remedies.base import USUAL_OUTPUT_TOKENS, Remedy, Situation, Tool, Trial
from reports.request_costs import costs_of
from reports.waits import Waits, waits_of

__all__ = ["LEAST_SHARE", "Remedy", "Tool", "Trial", "futile", "remedies"]

LEAST_SHARE = 0.03
"""Share of the wait below which a saving is no advice: nobody notices it, and runs differ by as much."""

_LEVERS: tuple[Callable[[Situation], Iterable[Remedy | None]], ...] = (
    request.levers,
    weights.levers,
    room.levers,
    settings.levers,
    around.levers,
)


def remedies(evidence: Evidence, model: PhaseModel | None = None) -> tuple[Remedy, ...]:
    """What would shorten the wait: changes with a figure by seconds saved, then those that only a trial can
    tell by the most that they could save.

    `model` is the fit of the measured group; without it the rates of the request itself are used.
    """
    situation = _situation(evidence, model)
    if not situation.waits.compute_s:
        return ()  # neither phase is known: what is left says nothing about the wait
    found = [remedy for levers in _LEVERS for remedy in levers(situation) if remedy is not None]
    worth = [remedy for remedy in found if _is_advice(remedy, situation.total_s)]
    return tuple(sorted(worth, key=_rank))


def futile(evidence: Evidence) -> tuple[str, ...]:
    """What will not help however far one goes, said because it is what people try first."""
    waits = waits_of(evidence)
    return tuple(text for part, text in _FUTILE if _is_small(waits, part))


_FUTILE = (
    ("prefill", "Nothing about the length of the prompt will help: reading it is a small part of the wait."),
    ("decode", "Nothing about the length of the answer will help: writing it is a small part of the wait."),
    ("load", "Keeping the model loaded will not help: loading is a small part of the wait."),
)


def _is_small(waits: Waits, part: str) -> bool:
    """A part that, gone altogether, would save less than is worth advice. All of the wait must be known."""
    share = waits.share(part)
    if waits.prefill_s is None or waits.decode_s is None or share is None:
        return False
    return share < LEAST_SHARE and (part != "load" or bool(waits.load_s))


def _situation(evidence: Evidence, model: PhaseModel | None) -> Situation:
    """The request; where only rates are known, one with an answer of usual length."""
    waits, step = waits_of(evidence), evidence.decode_step_s
    output = evidence.n_output or USUAL_OUTPUT_TOKENS
    if waits.decode_s is None and step is not None:
        decode_s = step * max(output - 1, 0)
        waits = Waits(
            load_s=waits.load_s,
            tokenize_s=waits.tokenize_s,
            prefill_s=waits.prefill_s,
            decode_s=decode_s,
            sampling_s=waits.sampling_s,
            unaccounted_s=waits.unaccounted_s,
        )
    return Situation(
        evidence=evidence,
        waits=waits,
        costs=costs_of(evidence, model),
        n_prompt=evidence.n_prompt or 0,
        n_cached=evidence.n_prompt_cached or 0,
        n_output=output,
    )


def _is_advice(remedy: Remedy, total_s: float) -> bool:
    """Saves, or may save, a share of the wait that one notices."""
    saved = remedy.saved_s if remedy.saved_s is not None else remedy.at_most_s
    return total_s > 0 and saved is not None and saved >= LEAST_SHARE * total_s


def _rank(remedy: Remedy) -> tuple[bool, float, str]:
    saved = remedy.saved_s if remedy.saved_s is not None else remedy.at_most_s or 0.0
    return remedy.saved_s is None, -saved, remedy.code
