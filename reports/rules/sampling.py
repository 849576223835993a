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


def judge(evidence: Evidence) -> Outcome:
    """Sampling's share of the wait; where decode is unknown, its cost for each token."""
    waits = waits_of(evidence)
    inputs = evidence.known("sampling_s", "n_output", "decode_s", "sampler_top_k", "decode_tok_s")
    if waits.sampling_s is None:
        return Abstained(missing=("sampling_s",))
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
        advice="shorten the sampler chain: turn top-k on, drop penalties and grammars that are not needed",
    )
