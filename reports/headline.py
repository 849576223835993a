"""The answer in a few plain sentences: what one waits for, how fast each phase runs, and why the two rates
differ."""

from __future__ import annotations

import dataclasses

from probes.records import CellResult, GroupResult
from reports import measured, units
from reports.phases import Estimate, PhaseModel
from reports.text import clean

OUTPUT_TOKENS = 256
"""The answer's length in the headline; the prompt's is the longest one measured."""
_NAMED = 3
"""Settings that a sentence lists; of more, the next best and the worst."""
REST_SHARE = 0.01
"""Tokenizing and sampling get a figure of their own from this share of the wait on."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One request's wait by phase, in seconds, the load not included."""

    prompt_tokens: int
    output_tokens: int
    prefill_s: float
    decode_s: float
    rest_s: float
    """Tokenizing once and sampling each token, as far as they were measured."""
    low_s: float | None
    """95 % interval of the total; None where a phase has none."""
    high_s: float | None

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.prefill_s + self.decode_s + self.rest_s


def wait_at(
    group: GroupResult, model: PhaseModel, cell: CellResult, output_tokens: int = OUTPUT_TOKENS
) -> Wait | None:
    """The wait for the prompt of a measured cell and an answer of `output_tokens`; None where decode is
    unknown.

    Prefill is as measured. Decode comes from the fit over depths; with a single depth, from the rate measured
    there.
    """
    answer, is_bounded = _decode_s(model, cell, output_tokens)
    if answer is None:
        return None
    prompt = measured.prefill(cell)
    read = prompt.summary.median if prompt else 0.0
    bounded = is_bounded
    total = answer
    if prompt:
        low, high = prompt.summary.ci_low, prompt.summary.ci_high
        bounded = bounded and low is not None and high is not None
        total = Estimate(
            value_s=read, low_s=read if low is None else low, high_s=read if high is None else high
        ).plus(answer)
    rest = _rest_s(group, cell.prompt_tokens, output_tokens)
    return Wait(
        prompt_tokens=cell.prompt_tokens,
        output_tokens=output_tokens,
        prefill_s=read,
        decode_s=answer.value_s,
        rest_s=rest,
        low_s=total.low_s + rest if bounded else None,
        high_s=total.high_s + rest if bounded else None,
    )


def _decode_s(model: PhaseModel, cell: CellResult, output_tokens: int) -> tuple[Estimate | None, bool]:
    """All decode steps, and whether their interval is known."""
    fitted = model.decode_s(cell.prompt_tokens, output_tokens)
    if fitted:
        return fitted, True
    found = measured.decode(cell)
    if not found:
        return None, False
    step = found.summary
    known = step.ci_low is not None and step.ci_high is not None
    low = step.median if step.ci_low is None else step.ci_low
    high = step.median if step.ci_high is None else step.ci_high
    steps = max(output_tokens - 1, 0)
    return Estimate(value_s=step.median, low_s=low, high_s=high).times(steps), known


def _rest_s(group: GroupResult, prompt_tokens: int, output_tokens: int) -> float:
    tokenized = measured.tokenize(group, prompt_tokens)
    drawn = measured.sampling(group, "default")
    return (tokenized.median if tokenized else 0.0) + (drawn.median * output_tokens if drawn else 0.0)


def longest_cell(group: GroupResult) -> CellResult | None:
    """The measured cell with the longest prompt."""
    cells = measured.measured_cells(group)
    return cells[-1] if cells else None


def sentences(group: GroupResult, model: PhaseModel) -> tuple[str, ...]:
    """The headline of one group."""
    cell = longest_cell(group)
    if cell is None:
        return (_nothing(group),)
    wait = wait_at(group, model, cell)
    first = wait_sentence(wait) if wait else _reading_sentence(cell)
    parts = [first, *_rate_sentences(group, cell)]
    parts += crossover_sentence(model, cell.prompt_tokens) + _load_sentence(group)
    return tuple(parts)


def _nothing(group: GroupResult) -> str:
    reasons = [cell.reason for cell in group.cells if cell.reason]
    reason = group.reason or (reasons[0] if reasons else "no pass was completed")
    return f"Nothing could be measured: {clean(reason)}."


def _reading_sentence(cell: CellResult) -> str:
    """For a run without decode steps."""
    read = measured.prefill(cell)
    if read is None:
        return "Neither reading nor writing was timed: ask for a prompt or for output tokens."
    time = units.duration_interval(read.summary.median, read.summary.ci_low, read.summary.ci_high)
    return f"Reading {units.count(cell.prompt_tokens)} prompt tokens takes {time}; writing was not measured."


def wait_sentence(wait: Wait) -> str:
    """What one waits for, by phase."""
    total = units.duration_interval(wait.total_s, wait.low_s, wait.high_s)
    if wait.prompt_tokens == 0:
        return f"{wait.output_tokens} tokens from an empty cache take {total} to write."
    reading = f"{units.duration(wait.prefill_s)} ({_share(wait.prefill_s, wait)}) reading the prompt"
    writing = f"{units.duration(wait.decode_s)} ({_share(wait.decode_s, wait)}) writing the answer"
    rest = ", the rest tokenizing and sampling" if wait.rest_s > 0 else ""
    if wait.rest_s >= REST_SHARE * wait.total_s > 0:
        rest = f", {units.duration(wait.rest_s)} ({_share(wait.rest_s, wait)}) tokenizing and sampling"
    return (
        f"At {units.count(wait.prompt_tokens)} prompt and {units.count(wait.output_tokens)} output tokens "
        f"you wait {total}: {reading}, {writing}{rest}."
    )


def _share(seconds: float, wait: Wait) -> str:
    return units.percent(seconds / wait.total_s) if wait.total_s > 0 else units.UNKNOWN


def _rate_sentences(group: GroupResult, cell: CellResult) -> list[str]:
    """The two rates apart, and why they are not to be compared."""
    read, write = measured.prefill(cell), measured.decode(cell)
    weights = units.size(group.model.bytes_per_token)
    writing = f"{units.token_rate(1 / write.summary.median)}" if write and write.summary.median > 0 else None
    if not read or read.summary.median <= 0:
        return [f"That is {writing}; each token reads {weights} of weights."] if writing else []
    reading = units.token_rate(cell.prompt_tokens / read.summary.median)
    if writing is None:
        return [f"The prompt is read at {reading}."]
    why = "prompt tokens are evaluated together, the answer's one after another, each reading"
    return [
        f"Reading runs at {reading}, writing at {writing}: {why} {weights} of weights again.",
        "The slower rate is not by itself the longer wait.",
    ]


def crossover_sentence(model: PhaseModel, prompt_tokens: int) -> list[str]:
    """From which answer on writing is the longer wait; nothing where the fits do not say."""
    tokens = model.crossover_tokens(prompt_tokens) if prompt_tokens else None
    if tokens is None or tokens < 2:
        return []
    return [f"With this prompt, writing outweighs reading from about {units.count(tokens)} output tokens on."]


_STATE_WORDS = {
    "warm": "with the file in memory",
    "cold": "from disk",
    "partial": "with the file partly in memory",
    "unknown": "with an unknown share of the file in memory",
}


def _load_sentence(group: GroupResult) -> list[str]:
    usual = measured.usual_load(group)
    if usual is None:
        return []
    state, summary = usual
    text = f"Loading comes first, once: {units.duration(summary.median)} {_STATE_WORDS[state]}"
    cold = measured.load(group, "cold")
    if cold and state != "cold":
        text += f", {units.duration(cold.median)} {_STATE_WORDS['cold']}"
    return [f"{text}."]


def comparison(named: tuple[tuple[str, GroupResult, PhaseModel], ...]) -> tuple[str, ...]:
    """For several groups: which one has the shortest wait, at the longest prompt that all of them
    measured."""
    able = [entry for entry in named if measured.measured_cells(entry[1])]
    if len(able) < 2:
        return ()
    common = set.intersection(*({c.prompt_tokens for c in measured.measured_cells(g)} for _, g, _ in able))
    if not common:
        return ("The models were measured at different prompt lengths, so their waits are not compared.",)
    waits: list[tuple[float, str]] = []
    for name, group, model in able:
        cell = next(c for c in measured.measured_cells(group) if c.prompt_tokens == max(common))
        wait = wait_at(group, model, cell)
        if wait:
            waits.append((wait.total_s, name))
    if len(waits) < 2:
        return ()
    waits.sort()
    best, *behind = waits
    others = ", ".join(f"{name} {units.duration(total)}" for total, name in behind)
    if len(behind) > _NAMED:
        (next_s, following), (last_s, last) = behind[0], behind[-1]
        others = f"{following} {units.duration(next_s)} and at worst {last} {units.duration(last_s)}"
    where = f"At {units.count(max(common))} prompt and {OUTPUT_TOKENS} output tokens"
    return (f"{where} {best[1]} has the shortest wait: {units.duration(best[0])}, against {others}.",)
