"""Remedies beside what trying them showed: ranked, put in words, and said so where one failed to deliver."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from reports import units
from reports.parts import Column, Fact, Facts, Table
from reports.remedies import LEAST_SHARE, Remedy, Tool
from reports.rules.base import Verdict
from reports.sections import ABSENT
from reports.text import clean

DELIVERED_SHARE = 0.5
"""Of the predicted saving, what a trial must show at least."""
_NAMED = 2
"""Remedies in the headline."""
_EXPLAINED = 3
"""Remedies whose ways are listed."""
_LOPSIDED = 2.0
"""An interval whose halves differ by more than this factor is written as a range."""
_TOOLS: dict[Tool, str] = {
    "llmphase": "here",
    "llama.cpp": "llama.cpp",
    "ollama": "Ollama",
    "lm-studio": "LM Studio",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A remedy that was tried: the whole wait before and after."""

    code: str
    """Of the remedy."""
    measured_wait_s: float | None
    """None where it could not be tried."""
    low_s: float | None
    """The shortest and the longest of several trials; None for a single one."""
    high_s: float | None
    base_wait_s: float | None
    """The wait without the change, measured the same way."""
    problem: str | None
    """Why it could not be tried."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A remedy and, where it was tried, what that showed."""

    remedy: Remedy
    verified: Verified | None

    @property
    def measured_saved_s(self) -> float | None:
        """Seconds saved in the trial, negative where the wait grew; None where it was not measured."""
        trial = self.verified
        if trial is None or trial.measured_wait_s is None or trial.base_wait_s is None:
            return None
        return trial.base_wait_s - trial.measured_wait_s

    @property
    def saved_s(self) -> float | None:
        """The best that is known: measured, else predicted."""
        measured = self.measured_saved_s
        return self.remedy.saved_s if measured is None else measured

    @property
    def is_delivered(self) -> bool | None:
        """Whether the trial saved at least half of what was predicted, or, without a prediction, enough to
        notice. None where it was not measured."""
        measured = self.measured_saved_s
        if measured is None or self.verified is None:
            return None
        if self.remedy.saved_s is not None:
            return measured >= DELIVERED_SHARE * self.remedy.saved_s
        return measured >= LEAST_SHARE * (self.verified.base_wait_s or 0.0)


def advise(remedies: Sequence[Remedy], verified: Sequence[Verified]) -> tuple[Advice, ...]:
    """Each remedy with its trial: by seconds saved, what has no figure last as it was ranked."""
    trials = {trial.code: trial for trial in verified}
    found = [Advice(remedy=remedy, verified=trials.get(remedy.code)) for remedy in remedies]
    return tuple(sorted(found, key=_rank))


def _rank(advice: Advice) -> tuple[bool, float]:
    saved = advice.saved_s
    return saved is None, 0.0 if saved is None else -saved


PLACING = ("gpu-layers", "fit-memory")
"""Changes of where the layers lie."""


# --- in words ------------------------------------------------------------------------------------


def savings_sentence(advice: Sequence[Advice], total_s: float, verdict: Verdict = "unknown") -> str:
    """What saves most, as the second sentence of the answer; empty where no wait is known."""
    if total_s <= 0:
        return ""
    first = _placing(advice, verdict)
    if first is not None:
        rest = savings_sentence([one for one in advice if one is not first], total_s)
        return f"First {_named(first)}. {rest}"
    worth = [one for one in advice if (one.saved_s or 0.0) >= LEAST_SHARE * total_s]
    promising = _promising(advice)
    parts = []
    if worth:
        parts.append(f"What saves most: {'; then '.join(_named(one) for one in worth[:_NAMED])}.")
    if promising:
        most = units.duration(promising.remedy.at_most_s)
        parts.append(f"To be tried: {clean(promising.remedy.title)} (at most {most}).")
    return " ".join(parts) or f"No change is known to save {units.percent(LEAST_SHARE)} of the wait."


def _placing(advice: Sequence[Advice], verdict: Verdict) -> Advice | None:
    """Where the verdict is the offload, layers come first whatever else would save, unless that failed: other
    changes work on a wait that is not what the machine can do."""
    if verdict != "offload-bound":
        return None
    placing = (one for one in advice if one.remedy.code in PLACING)
    return next((one for one in placing if one.is_delivered is not False), None)


def _promising(advice: Sequence[Advice]) -> Advice | None:
    """The change without a figure that could save most, where that is more than any figure promises."""
    best = max((one.saved_s for one in advice if one.saved_s is not None), default=0.0)
    untold = [one for one in advice if one.saved_s is None and (one.remedy.at_most_s or 0.0) > best]
    return max(untold, key=lambda one: one.remedy.at_most_s or 0.0, default=None)


def _named(advice: Advice) -> str:
    if advice.saved_s is None:
        most = units.duration(advice.remedy.at_most_s)
        return f"{clean(advice.remedy.title)} (at most {most}: only a trial tells)"
    measured = " measured" if advice.measured_saved_s is not None else ""
    return f"{clean(advice.remedy.title)} ({units.duration(advice.saved_s)}{measured})"


def remedies_table(advice: Sequence[Advice], *, assumed_tokens: int | None) -> Table | None:
    """Predicted and, where any was tried, measured savings; None without remedies. `assumed_tokens` is the
    length that the answer was taken to have, where its own is not known."""
    if not advice:
        return None
    is_tried = any(one.verified for one in advice)
    columns = [
        Column(title="change", numeric=False),
        Column(title="wait then"),
        Column(title="saves"),
        *([Column(title="measured")] if is_tried else []),
        Column(title="code", numeric=False, wide=True),
    ]
    rows = [
        (
            clean(one.remedy.title),
            _predicted(one.remedy),
            _saves(one.remedy),
            *([_measured(one)] if is_tried else []),
            one.remedy.code,
        )
        for one in advice
    ]
    return Table(
        title="What would shorten the wait",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(_notes(advice, assumed_tokens)),
    )


def _predicted(remedy: Remedy) -> str:
    """The wait after the change, with its interval where that says anything."""
    value, low, high = remedy.predicted_wait_s, remedy.low_s, remedy.high_s
    if value is None:
        return "to be tried"
    if low is None or high is None:
        return units.duration(value)
    halves = (value - low, high - value)
    if max(halves) > _LOPSIDED * min(halves):
        return units.duration_range(value, low, high)
    return units.duration_interval(value, low, high)


def _saves(remedy: Remedy) -> str:
    if remedy.saved_s is not None:
        return f"{units.duration(remedy.saved_s)} ({units.percent(remedy.saved_share)})"
    return f"at most {units.duration(remedy.at_most_s)}"


def _measured(advice: Advice) -> str:
    """What the trial saved, also as a share of its own wait before: machines drift from the run to a trial.
    With a mark where it did not deliver; the notes have its words."""
    if advice.verified is None:
        return ABSENT
    saved = advice.measured_saved_s
    if saved is None:
        return "failed"
    figure = units.duration(abs(saved))
    if advice.verified.base_wait_s:
        figure += f" ({units.percent(abs(saved) / advice.verified.base_wait_s)})"
    if saved < 0:
        figure += " slower"
    return figure if advice.is_delivered else f"{figure} !"


def _notes(advice: Sequence[Advice], assumed_tokens: int | None) -> Iterator[str]:
    if assumed_tokens is not None:
        yield f"For an answer of {units.count(assumed_tokens)} tokens, since its length is not known."
    if any(one.remedy.predicted_wait_s is not None for one in advice):
        yield (
            "Predicted from this run, with the interval of the fit or the range that is plausible; each "
            "change by itself: savings do not add up."
        )
    for one in advice:
        if one.verified is not None:
            yield f"Tried: {clean(one.remedy.title)}: {_outcome(one, one.verified)}."


def _outcome(advice: Advice, trial: Verified) -> str:
    if advice.measured_saved_s is None:
        problem = clean(trial.problem or "the wait before or after was not measured", limit=200)
        return f"could not be measured, {problem.rstrip('.')}"
    after = units.duration(trial.measured_wait_s)
    if trial.measured_wait_s is not None and trial.low_s is not None and trial.high_s is not None:
        after = units.duration_range(trial.measured_wait_s, trial.low_s, trial.high_s)
    has_figure = advice.remedy.predicted_wait_s is not None
    predicted = f"{_predicted(advice.remedy)} predicted, " if has_figure else ""
    verdict = "" if advice.is_delivered else "; it did not deliver"
    return f"{after} measured, {predicted}{units.duration(trial.base_wait_s)} before{verdict}"


def ways(advice: Sequence[Advice], verdict: Verdict = "unknown") -> tuple[Facts, ...]:
    """How to apply the first few that did not fail, tool by tool, with their price and what they rest on; in
    the order of the answer."""
    first = _placing(advice, verdict)
    able = [one for one in advice if one.is_delivered is not False]
    able.sort(key=lambda one: one is not first)
    promising = _promising(able)
    shown = able[:_EXPLAINED]
    if promising and promising not in shown:
        shown = [*shown[:-1], promising]
    return tuple(
        Facts(title=f"How to {clean(one.remedy.title)}", facts=tuple(_ways(one.remedy))) for one in shown
    )


def _ways(remedy: Remedy) -> Iterator[Fact]:
    if len(set(remedy.how.values())) == 1:
        yield Fact(name="everywhere", value=clean(next(iter(remedy.how.values()))))
    else:
        for tool, text in remedy.how.items():
            yield Fact(name=_TOOLS[tool], value=clean(text))
    yield Fact(name="costs", value=clean(remedy.cost))
    yield Fact(name="rests on", value=clean(remedy.basis))
