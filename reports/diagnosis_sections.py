"""A diagnosis in words and tables: how sure it is, the wait, the request, evidence, ceilings and rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from reports import units
from reports.ceilings import CeilingReport, PhaseShare, sentence
from reports.charts import Share
from reports.diagnosis import Diagnosis, Explained, Number
from reports.evidence import Evidence
from reports.fact_text import value_text
from reports.parts import Column, Fact, Facts, Table
from reports.text import clean
from reports.waits import Waits

_SHARES_CODE = "phase-share"
_STARTS = {
    "loaded": ("the model in memory already", "in memory"),
    "warm": ("the load from the page cache included", "warm load"),
    "cold": ("the load from disk included", "cold load"),
}
_MOST_UNKNOWN = 12


def answer(diagnosis: Diagnosis) -> str:
    """The verdict's sentence, which says so when it is borderline."""
    text = diagnosis.sentence
    if diagnosis.is_borderline and diagnosis.verdict != "balanced":
        text = text.replace(":", ", borderline:", 1)
    return text


def standing(diagnosis: Diagnosis, crossover_tokens: int | None) -> tuple[str, ...]:
    """How sure the verdict is, what else is true, what would change it and where to look."""
    return tuple(_standing(diagnosis, crossover_tokens))


def _standing(diagnosis: Diagnosis, crossover_tokens: int | None) -> Iterator[str]:
    if diagnosis.is_borderline and diagnosis.margin is not None:
        margin = units.percent(diagnosis.margin)
        if diagnosis.code == _SHARES_CODE:
            yield f"Borderline: the two longest parts differ by {margin} of the wait."
        else:
            yield f"Borderline: it is {margin} from the threshold of this verdict."
    if diagnosis.contributing:
        yield f"Also true: {', '.join(diagnosis.contributing)}."
    if diagnosis.would_change:
        yield f"{_would_change(diagnosis.would_change, crossover_tokens)}."
    if diagnosis.advice:
        yield f"{_capital(clean(diagnosis.advice))}."
    if diagnosis.confidence > 0:
        yield f"Confidence {units.percent(diagnosis.confidence)}."


def _would_change(text: str, crossover_tokens: int | None) -> str:
    """The crossover where it was computed; the verdict's own words know the present depth's rate alone."""
    if crossover_tokens is None:
        return _capital(text)
    tokens = units.count(crossover_tokens)
    return f"With this prompt, writing outweighs reading from about {tokens} output tokens on"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- the wait and the request --------------------------------------------------------------------


def wait_shares(waits: Waits) -> tuple[Share, ...]:
    """The parts that take time; empty where a phase is not known, for then it would be no whole."""
    if waits.prefill_s is None or waits.decode_s is None:
        return ()
    return tuple(Share(name=name, seconds=seconds) for name, seconds in waits.parts.items() if seconds > 0)


def wait_title(evidence: Evidence, wait_s: float | None, ttft_s: float | None) -> str:
    """Of the bar: the whole wait, and the first token's, each with what it includes."""
    start = _STARTS[evidence.start][0] if evidence.start else "as far as it is known"
    if evidence.start in ("warm", "cold") and evidence.load_s is None:
        start = "the load not measured"
    first = f"; the first token after {units.duration(ttft_s)}" if ttft_s is not None else ""
    return f"The wait: {units.duration(wait_s)}, {start}{first}"


def request_facts(
    evidence: Evidence, *, source: str | None, turns: int, defaulted: Collection[str]
) -> Facts | None:
    """The request's lengths and start; None where none is known. `defaulted` has names of `Workload`
    fields."""
    start = _STARTS[evidence.start][1] if evidence.start else None
    rows = (
        ("prompt_tokens", "prompt", _tokens(evidence.n_prompt)),
        ("source", "from", clean(source, limit=60) if source and source != "tokens" else None),
        ("cached_tokens", "cached", _tokens(evidence.n_prompt_cached)),
        ("output_tokens", "output", _tokens(evidence.n_output)),
        ("start", "start", start),
        ("turns", "turns", units.count(turns) if turns > 1 else None),
    )
    facts = tuple(
        Fact(name=name, value=value, is_default=field in defaulted)
        for field, name, value in rows
        if value is not None
    )
    return Facts(title="The request", facts=facts, is_flowing=True) if facts else None


def _tokens(number: int | None) -> str | None:
    return None if number is None else f"{units.count(number)} tokens"


# --- evidence ------------------------------------------------------------------------------------


def evidence_table(numbers: Sequence[Number]) -> Table | None:
    """The facts that the verdict rests on; None where it rests on none."""
    if not numbers:
        return None
    return Table(
        title="What the verdict rests on",
        columns=(
            Column(title="fact", numeric=False),
            Column(title="value"),
            Column(title="source", numeric=False),
        ),
        rows=tuple(
            (number.name, value_text(number.name, number.value), number.source or "follows from others")
            for number in numbers
        ),
    )


def unknown_sentence(unknown: Sequence[str]) -> str:
    """What was not known; empty where nothing was missing."""
    if not unknown:
        return ""
    more = len(unknown) - _MOST_UNKNOWN
    names = ", ".join(unknown[:_MOST_UNKNOWN]) + (f" and {more} more" if more > 0 else "")
    return f"Not known, so that some rules could not tell: {names}."


# --- ceilings ------------------------------------------------------------------------------------


def nearest(shares: Sequence[PhaseShare], prompt_tokens: int | None) -> PhaseShare | None:
    """The cell nearest to the request's prompt; one whose share is known comes first."""
    known = [one for one in shares if one.share is not None] or list(shares)
    return min(known, key=lambda one: abs(one.prompt_tokens - (prompt_tokens or 0)), default=None)


def ceiling_sentences(
    found: CeilingReport | None, diagnosis: Diagnosis, evidence: Evidence
) -> tuple[str, ...]:
    """What share of its ceiling each phase reached, and what the ceiling would allow."""
    if found is None:
        if diagnosis.ceiling_share is None:
            return ()
        share = units.percent(diagnosis.ceiling_share)
        return (f"Decode reaches {share} of the memory ceiling: bytes read over {_bandwidth(evidence)}.",)
    prompt_tokens = evidence.n_prompt
    shares = [nearest(found.decode, prompt_tokens), nearest(found.prefill, prompt_tokens)]
    said = [_ceiling_sentence(one, prompt_tokens) for one in shares if one is not None]
    return (*said, *(f"Left out of the ceilings: {clean(doubt)}." for doubt in found.unknown))


def _bandwidth(evidence: Evidence) -> str:
    """Whose figure the roof is."""
    if evidence.host_works or evidence.sources.get("gpu_bandwidth_bytes_s") != "data sheet":
        return "the memory's bandwidth"
    return "the bandwidth in the maker's data sheet, which no program reaches in full"


def _ceiling_sentence(share: PhaseShare, prompt_tokens: int | None) -> str:
    if share.prompt_tokens == prompt_tokens:
        return sentence(share)
    if share.prompt_tokens == 0:
        return f"At an empty cache: {sentence(share)}"
    return f"At {units.count(share.prompt_tokens)} prompt tokens: {sentence(share)}"


# --- rules ---------------------------------------------------------------------------------------


def rules_table(explained: Sequence[Explained]) -> Table | None:
    """Every rule, what it said and on which facts; None where that was not asked for."""
    if not explained:
        return None
    return Table(
        title="Every rule, in the order in which they are asked",
        columns=(
            Column(title="rule", numeric=False),
            Column(title="result", numeric=False),
            Column(title="why", numeric=False),
        ),
        rows=tuple((one.rule.code, one.result, _why(one)) for one in explained),
    )


def _why(one: Explained) -> str:
    facts = ", ".join(f"{number.name} {value_text(number.name, number.value)}" for number in one.inputs)
    seen = f" [{facts}]" if facts else ""
    return f"{one.rule.question} {_capital(clean(one.text))}.{seen}"
