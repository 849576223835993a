"""From evidence to a verdict: every rule is asked, and the first stage that answers decides.

Shares of the wait alone misname every run whose weights lie in the wrong place, so impossible times come
first, then contention, then residency, the load, what stands beside the phases, and only then the shares and
the ceiling. "Bound by X" means that relieving X saves most: a cause that can save only a little gives way to
one that holds most of the wait.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from reports import units
from reports.evidence import Evidence, Source
from reports.rules import RULES, Abstained, Cleared, Finding, Outcome, Rule, Stage, Verdict, network
from reports.rules.physics import ceiling_share
from reports.rules.shares import BALANCED
from reports.waits import Waits, waits_of

LEAST_SAVED = 0.25
"""Share of prefill and decode that relieving contention must save to be the answer: below it the phase itself
is what one waits for, and the contention contributes."""
MOST_SAVED = 0.5
"""From here on contention is relieved first even where weights are known to lie in the wrong memory."""
DIRECT = 0.8
"""Confidence above which a finding rests on what was observed, not on what follows from rates."""
_MOST_OF_ALL = 0.8
"""Share of a wait known in part above which a load needs no weighing."""
_MOST_CONFIDENT = 0.95
_LIKELY = 0.5
"""Confidence from which on a further finding is named as contributing."""
_NEAR = 0.1
"""Distance from a threshold, as a share of it, within which a verdict is borderline."""
_NEAR_LEAD = 2 * BALANCED
_SECOND_PHASE = 0.25
"""Share of the wait from which on the second phase contributes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A fact that the verdict rests on."""

    name: str
    value: object
    source: Source | None
    """None for what follows from other facts."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One rule, with what it said and why."""

    rule: Rule
    outcome: Outcome
    inputs: tuple[Number, ...]
    """The facts it looked at; empty where it abstained."""

    @property
    def result(self) -> str:
        """`fired`, `cleared` or `abstained`."""
        if isinstance(self.outcome, Finding):
            return "fired"
        return "cleared" if isinstance(self.outcome, Cleared) else "abstained"

    @property
    def text(self) -> str:
        """Why, as a clause."""
        if isinstance(self.outcome, Abstained):
            return f"not known: {', '.join(self.outcome.missing)}"
        return self.outcome.reason


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What one waits for, and how sure that is."""

    verdict: Verdict
    code: str | None
    """Of the rule that decided; None where none did."""
    sentence: str
    """The answer, for a person."""
    confidence: float
    """0 to 1."""
    is_borderline: bool
    margin: float | None
    """Distance from the threshold as a share of it; for a verdict by shares, the lead over the next part as a
    share of the wait."""
    contributing: tuple[Verdict, ...]
    """Further classes that are true too, likeliest first."""
    ceiling_share: float | None
    """Of the memory ceiling, what decode reaches."""
    would_change: str | None
    """What would make another verdict of it."""
    advice: str | None
    """Where to look, where the class does not say."""
    waits: Waits
    numbers: tuple[Number, ...]
    unknown: tuple[str, ...]
    """Facts that some rule could not do without, those asked for most often first."""
    explain: tuple[Explained, ...]
    """Every rule, in order."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Fired:
    rule: Rule
    finding: Finding


def diagnose(evidence: Evidence) -> Diagnosis:
    """The verdict on this evidence. Pure; never raises for missing facts."""
    outcomes = [(rule, rule.judge(evidence)) for rule in RULES]
    fired = [_Fired(rule=rule, finding=o) for rule, o in outcomes if isinstance(o, Finding)]
    waits = waits_of(evidence)
    chosen = _decide(fired, waits, timed_here=evidence.sources.get("decode_s") == "measured")
    share = ceiling_share(evidence)
    finding = chosen.finding if chosen else None
    return Diagnosis(
        verdict=finding.verdict if finding else "unknown",
        code=chosen.rule.code if chosen else None,
        sentence=_sentence(finding, fired, evidence),
        confidence=_confidence(chosen, fired),
        is_borderline=_is_borderline(chosen),
        margin=finding.margin if finding else None,
        contributing=_contributing(chosen, fired, waits),
        ceiling_share=None if share is None else min(share, 1.0),
        would_change=_would_change(finding, evidence, waits),
        advice=_advice(chosen, fired),
        waits=waits,
        numbers=_numbers(finding.inputs if finding else {}, evidence),
        unknown=_unknown(outcome for _, outcome in outcomes),
        explain=tuple(
            Explained(rule=rule, outcome=outcome, inputs=_inputs(outcome, evidence))
            for rule, outcome in outcomes
        ),
    )


# --- which finding decides -----------------------------------------------------------------------


def _decide(fired: Sequence[_Fired], waits: Waits, *, timed_here: bool) -> _Fired | None:
    times = _best(fired, "times")
    if times:
        return times
    cause = _cause(fired)
    load = _best(fired, "load")
    if cause and not _load_outweighs(load, cause, waits):
        return cause
    return load or _best(fired, "beside") or _phase(fired, timed_here=timed_here)


def _best(fired: Sequence[_Fired], stage: Stage) -> _Fired | None:
    """The surest finding of a stage, the earlier rule where two are as sure."""
    return max((f for f in fired if f.rule.stage == stage), key=lambda f: f.finding.confidence, default=None)


def _cause(fired: Sequence[_Fired]) -> _Fired | None:
    """Contention, else residency. Mild contention gives way to weights that surely lie in the wrong
    memory."""
    likely = [f for f in fired if f.finding.confidence >= _LIKELY]
    contention, residency = _best(likely, "contention"), _best(likely, "residency")
    if contention is None or _saved(contention) < LEAST_SAVED:
        return residency
    if residency and residency.finding.confidence > DIRECT and _saved(contention) < MOST_SAVED:
        return residency
    return contention


def _saved(fired: _Fired) -> float:
    """Estimated share of prefill and decode that relief saves; unknown counts as much."""
    share = fired.finding.saves_share
    return MOST_SAVED if share is None else share


def _load_outweighs(load: _Fired | None, cause: _Fired, waits: Waits) -> bool:
    """A load that is longer than all that relieving the cause can save; without both phases' times, one
    beside which nothing else counts."""
    if load is None or waits.load_s is None:
        return False
    if waits.prefill_s is None or waits.decode_s is None:
        return _saved(load) >= _MOST_OF_ALL
    saved = _saved(cause) if cause.rule.stage == "contention" else 1.0
    return waits.load_s > saved * waits.compute_s


def _phase(fired: Sequence[_Fired], *, timed_here: bool) -> _Fired | None:
    """By shares; the ceiling decides where only a rate is known, or where decode is far below it. What was
    timed here is no rumour: decode that takes most of the wait does, and the ceiling says where to look."""
    shares, ceiling = _best(fired, "shares"), _best(fired, "ceiling")
    if shares is None or ceiling is None:
        return shares or ceiling
    if shares.finding.verdict != "generation-bound":
        return shares
    is_weak = shares.finding.confidence < _LIKELY
    return ceiling if (is_weak or ceiling.finding.verdict == "unknown") and not timed_here else shares


# --- how sure, how near --------------------------------------------------------------------------


def _confidence(chosen: _Fired | None, fired: Sequence[_Fired]) -> float:
    """Findings of one class strengthen each other, as if independent (noisy-or). What follows from rates
    alone stays at or below the mark of the observed."""
    if chosen is None:
        return 0.0
    if chosen.finding.verdict == "unknown":
        return chosen.finding.confidence
    alike = [f.finding.confidence for f in fired if f.finding.verdict == chosen.finding.verdict]
    together = 1 - math.prod(1 - confidence for confidence in alike)
    is_direct = max(alike) > DIRECT
    return round(min(together, _MOST_CONFIDENT if is_direct else DIRECT), 2)


def _is_borderline(chosen: _Fired | None) -> bool:
    if chosen is None or chosen.finding.margin is None:
        return False
    return chosen.finding.margin < (_NEAR_LEAD if chosen.rule.stage == "shares" else _NEAR)


def _contributing(chosen: _Fired | None, fired: Sequence[_Fired], waits: Waits) -> tuple[Verdict, ...]:
    verdict = chosen.finding.verdict if chosen else "unknown"
    ranked = sorted(fired, key=lambda f: f.finding.confidence, reverse=True)
    likely = [f.finding.verdict for f in ranked if f.finding.confidence >= _LIKELY]
    phases: tuple[tuple[str, Verdict], ...] = (
        ("prefill", "prompt-bound"),
        ("decode", "generation-bound"),
        ("load", "load-bound"),
    )
    likely += [name for part, name in phases if (waits.share(part) or 0.0) >= _SECOND_PHASE]
    others = [name for name in likely if name not in (verdict, "unknown", "balanced")]
    return tuple(dict.fromkeys(others))


# --- words ---------------------------------------------------------------------------------------


def _sentence(finding: Finding | None, fired: Sequence[_Fired], evidence: Evidence) -> str:
    if finding is None:
        missing = evidence.missing("n_prompt", "prefill_s", "n_output", "decode_s")
        known = f"; missing: {', '.join(missing)}" if missing else ""
        return f"Unknown: the facts do not tell what the wait consists of{known}."
    text = finding.reason
    if finding.verdict == "generation-bound" and "memory" not in text:
        text += "".join(f"; {f.finding.reason}" for f in fired if f.rule.stage == "ceiling")
    elif finding.verdict in ("offload-bound", "contended"):
        if finding.verdict == "offload-bound" and "network" not in text and network.weighs(evidence):
            text += f"; {network.cost_clause(evidence)}"
        text += "".join(f"; {f.finding.reason}" for f in fired if f.rule.stage == "shares" and _is_timed(f))
    return f"{finding.verdict.capitalize()}: {text}."


def _is_timed(fired: _Fired) -> bool:
    return fired.finding.confidence >= _LIKELY


def _advice(chosen: _Fired | None, fired: Sequence[_Fired]) -> str | None:
    """The deciding rule's own, else what the ceiling says beside a phase."""
    if chosen is None or chosen.finding.advice or chosen.rule.stage != "shares":
        return chosen.finding.advice if chosen else None
    return next((f.finding.advice for f in fired if f.rule.stage == "ceiling"), None)


def _would_change(finding: Finding | None, evidence: Evidence, waits: Waits) -> str | None:
    """The answer's length at which both phases weigh the same."""
    step = evidence.decode_step_s
    if finding is None or finding.verdict not in ("prompt-bound", "generation-bound", "balanced"):
        return None
    if not waits.prefill_s or not step:
        return None
    tokens = units.count(round(waits.prefill_s / step) + 1)
    return f"with this prompt, writing outweighs reading from about {tokens} output tokens on"


def _numbers(inputs: Mapping[str, object], evidence: Evidence) -> tuple[Number, ...]:
    return tuple(
        Number(name=name, value=value, source=evidence.sources.get(name)) for name, value in inputs.items()
    )


def _inputs(outcome: Outcome, evidence: Evidence) -> tuple[Number, ...]:
    return () if isinstance(outcome, Abstained) else _numbers(outcome.inputs, evidence)


def _unknown(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    asked: dict[str, int] = {}
    for outcome in outcomes:
        for name in outcome.missing if isinstance(outcome, Abstained) else ():
            asked[name] = asked.get(name, 0) + 1
    return tuple(sorted(asked, key=lambda name: -asked[name]))
