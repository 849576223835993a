"""A prompt that is hardly faster per token than the answer, though a GPU is there: the GPU does not do the
work."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.rules.physics import GPU_RATIO, HOST_RATIO, RATIO_TOKENS, ceiling_share
from reports.units import percent

_AT_CEILING = 0.5
_SET_UP = 0.4
"""Below this no processor is so much worse at a prompt than at an answer: a first evaluation paid for
something else."""
_SURE, _GUESS, _SHARED_MEMORY = 0.6, 0.5, 0.45
"""With a known prompt length, without one, and for a GPU that is little wider than its CPU."""


def judge(evidence: Evidence) -> Outcome:
    """Prefill rate over decode rate, for prompts long enough to share each reading of the weights."""
    prefill, decode, evaluated = evidence.prefill_token_s, evidence.decode_step_s, evidence.n_evaluated
    inputs = evidence.known(
        "n_prompt", "n_prompt_cached", "prefill_s", "prefill_tok_s", "decode_tok_s", "gpu_present"
    )
    if evidence.has_gpu is False:
        return Cleared(reason="there is no GPU", inputs=inputs)
    if prefill is None or decode is None or evidence.has_gpu is None:
        names = ("gpu_present", "prefill_tok_s", "decode_tok_s")
        return Abstained(missing=evidence.missing(*names))
    if evidence.speculative:
        return Cleared(reason="speculative decoding moves the ratio", inputs=inputs)
    if evaluated is not None and evaluated < RATIO_TOKENS:
        return Cleared(
            reason=f"{evaluated} evaluated tokens are too few for the ratio to tell", inputs=inputs
        )
    batches = [batch for batch in (evidence.n_batch, evidence.n_ubatch) if batch is not None]
    if batches and min(batches) < RATIO_TOKENS:
        return Cleared(reason=f"{min(batches)} tokens at a time share each reading", inputs=inputs)
    share = ceiling_share(evidence)
    if share is not None and share >= _AT_CEILING:
        return Cleared(reason=f"decode reaches {percent(share)} of the memory ceiling", inputs=inputs)
    ratio = decode / prefill
    if ratio < _SET_UP:
        return Cleared(reason="a prompt token is dearer than computing explains", inputs=inputs)
    if ratio >= HOST_RATIO:
        return Cleared(
            reason=f"a prompt token is {ratio:.0f} times cheaper than a generated one", inputs=inputs
        )
    return Finding(
        verdict="offload-bound",
        confidence=_SHARED_MEMORY if evidence.shares_memory else _GUESS if evaluated is None else _SURE,
        reason=f"a prompt token is only {ratio:.1f} times cheaper than a generated one, where a GPU makes it"
        f" {GPU_RATIO:.0f} times and more",
        inputs=inputs,
        margin=1 - ratio / HOST_RATIO,
    )
