"""Which phase takes most of the wait: reading the prompt, writing the answer, or both alike."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome, Verdict
from reports.units import count, duration, percent, token_rate
from reports.waits import Waits, waits_of

BALANCED = 0.1
"""Lead of the longest part over the next, as a share of the wait, below which relieving either saves alike.
It is also about what two runs of the same request differ by."""
_CLASSES: dict[str, Verdict] = {
    "load": "load-bound",
    "prefill": "prompt-bound",
    "decode": "generation-bound",
}
_WORDS = {
    "load": "loading",
    "tokenize": "tokenizing",
    "prefill": "reading the prompt",
    "decode": "writing the answer",
    "sampling": "choosing tokens",
    "unaccounted": "what no phase explains",
}
_MOST_RATIO = 100.0
"""Prefill over decode rate that no device exceeds with one request by much: GPUs give 20 to 60."""
_RATE_ALONE = 0.35
_MOST_CONFIDENT = 0.92
_UNSEEN_PLACEMENT = 0.85
"""Factor where a GPU is there and nothing tells whether it does the work."""


def judge(evidence: Evidence) -> Outcome:
    """The longest part against the next one; with one phase missing, what its absence leaves room for."""
    waits = waits_of(evidence)
    names = (
        "n_prompt",
        "n_prompt_cached",
        "n_output",
        "prefill_s",
        "decode_s",
        "load_s",
        "sampling_s",
        "total_s",
    )
    inputs = evidence.known(*names, "prefill_tok_s", "decode_tok_s")
    if waits.prefill_s is not None and waits.decode_s is not None:
        return _both(evidence, waits, inputs)
    if waits.decode_s is not None:
        return _answer_only(evidence, waits.decode_s, inputs)
    if waits.prefill_s is not None:
        return _prompt_only(evidence, waits.prefill_s, inputs)
    if evidence.decode_tok_s:
        return Finding(
            verdict="generation-bound",
            confidence=_RATE_ALONE,
            reason=f"only the rate of the answer is known, {token_rate(evidence.decode_tok_s)}",
            inputs=inputs,
        )
    return Abstained(missing=evidence.missing("prefill_s", "decode_s"))


def _both(evidence: Evidence, waits: Waits, inputs: dict[str, object]) -> Outcome:
    if waits.total_s <= 0:
        return Cleared(reason="nothing was waited for", inputs=inputs)
    ranked = sorted(waits.parts.items(), key=lambda part: part[1], reverse=True)
    (first, longest), (second, next_longest) = ranked[:2]
    lead = (longest - next_longest) / waits.total_s
    verdict: Verdict = "balanced" if lead < BALANCED else _CLASSES.get(first, "unknown")
    share = percent(longest / waits.total_s)
    reason = f"{_WORDS[first]} takes {duration(longest)} of {duration(waits.total_s)} ({share})"
    if verdict == "prompt-bound" and _is_repeated(evidence):
        reason += ", and the same prompt again takes as long: nothing of it is cached"
    if verdict == "balanced":
        reason += f", {_WORDS[second]} {duration(next_longest)}"
    return Finding(
        verdict=verdict,
        confidence=_confidence(evidence, lead),
        reason=reason,
        inputs=inputs,
        margin=lead,
    )


def _confidence(evidence: Evidence, lead: float) -> float:
    """From a coin's toss at equal parts up, in proportion to the lead."""
    trust = 0.75 if lead < BALANCED else min(_MOST_CONFIDENT, 0.5 + 0.5 * lead)
    is_unseen = evidence.has_gpu and not evidence.fully_on_gpu
    return trust * _UNSEEN_PLACEMENT if is_unseen else trust


def _answer_only(evidence: Evidence, decode_s: float, inputs: dict[str, object]) -> Finding:
    """Decode alone: what else there was is at most the rest of the total."""
    tokens = f" for {count(evidence.n_output)} tokens" if evidence.n_output else ""
    if evidence.total_s:
        share = min(1.0, decode_s / evidence.total_s)
        lead = 2 * share - 1
        confidence = _confidence(evidence, lead) if lead > 0 else _RATE_ALONE
        text = f"writing the answer takes {duration(decode_s)}{tokens}, {percent(share)} of the wait"
        return Finding(
            verdict="generation-bound",
            confidence=confidence,
            reason=text,
            inputs=inputs,
            margin=max(lead, 0.0),
        )
    return Finding(
        verdict="generation-bound",
        confidence=0.55,
        reason=f"writing the answer takes {duration(decode_s)}{tokens}, the prompt's time is not known",
        inputs=inputs,
    )


def _prompt_only(evidence: Evidence, prefill_s: float, inputs: dict[str, object]) -> Finding:
    """Prefill alone: the answer's tokens cost at most so many times a prompt's."""
    token_s, output = evidence.prefill_token_s, evidence.n_output
    confidence, text = 0.5, "the answer's time is not known"
    if token_s is not None and output is not None:
        most_s = output * token_s * _MOST_RATIO
        text = f"{count(output)} tokens of answer take {duration(most_s)} at most"
        confidence = 0.75 if prefill_s > most_s else 0.4
    if evidence.repeat_prefill_s is not None and evidence.repeat_prefill_s < prefill_s / 2:
        inputs = inputs | evidence.known("repeat_prefill_s")
        text += f"; the same prompt again takes {duration(evidence.repeat_prefill_s)}"
    return Finding(
        verdict="prompt-bound",
        confidence=confidence,
        reason=f"reading the prompt takes {duration(prefill_s)}; {text}",
        inputs=inputs,
    )


def _is_repeated(evidence: Evidence) -> bool:
    """The same prompt a second time cost much of what the first did."""
    first, again = evidence.prefill_s, evidence.repeat_prefill_s
    return first is not None and again is not None and again > first / 2
