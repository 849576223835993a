"""Choosing the next token on the host takes as long as computing it."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.units import duration, percent
from reports.waits import waits_of

_SHARE = 0.4
_DEAR_TOKEN_S = 3e-3
"""A draw by the usual chain takes 0.05 to 1 ms; sorting a vocabulary of 256 k entries, penalties over a long
history or a grammar take several."""

_WHOLE_VOCABULARY_S = 13e-3
"""Measured for the usual chain with top-k off over 256 k entries."""
_ADVICE = "shorten the sampler chain: turn top-k on, drop penalties and grammars that are not needed"


def judge(evidence: Evidence) -> Outcome:
    """Sampling's share of the wait; where decode is unknown, its cost for each token."""
    waits = waits_of(evidence)
    inputs = evidence.known("sampling_s", "n_output", "decode_s", "sampler_top_k", "decode_tok_s")
    if waits.sampling_s is None:
        return _untimed(evidence, inputs)
    share = waits.share("sampling") or 0.0
    tokens = evidence.n_output
    per_token = waits.sampling_s / tokens if tokens else None
    if waits.decode_s is None and (per_token is None or per_token < _DEAR_TOKEN_S):
        return Cleared(reason=f"sampling takes {duration(waits.sampling_s)}", inputs=inputs)
    if share < _SHARE:
        return Cleared(reason=f"sampling is {percent(share)} of the wait", inputs=inputs)
    each = f", {duration(per_token)} a token" if per_token is not None else ""
    chain = " (top-k is off: the whole vocabulary is sorted)" if evidence.sampler_top_k == 0 else ""
    return Finding(
        verdict="unknown",
        confidence=0.8,
        reason=f"choosing tokens takes {duration(waits.sampling_s)}{each}{chain}",
        inputs=inputs,
        margin=share / _SHARE - 1,
        advice=_ADVICE,
    )


def _untimed(evidence: Evidence, inputs: dict[str, object]) -> Outcome:
    """Without a timer: top-k is off, and a token takes so little that sorting a vocabulary shows."""
    step = evidence.decode_step_s
    if evidence.sampler_top_k != 0 or step is None:
        return Abstained(missing=("sampling_s",))
    if step > _WHOLE_VOCABULARY_S / _SHARE:
        return Cleared(reason="a token takes too long for its sampling to be a large part", inputs=inputs)
    return Finding(
        verdict="unknown",
        confidence=0.5,
        reason=f"top-k is off, so the whole vocabulary is sorted for each token of {duration(step)}",
        inputs=inputs,
        advice=_ADVICE,
    )
