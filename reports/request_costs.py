"""What a request of any shape would cost: from the phase model where there is one, else from one rate a
phase."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from reports.evidence import Evidence
from reports.phases import Estimate, PhaseModel

RUN_TO_RUN = 0.05
"""Half-width granted to a figure from a single rate: what two runs of the same request differ by."""


class Costs(Protocol):
    """Prefill and decode at any length; None where the facts do not carry an answer."""

    def prefill(self, prompt_tokens: int, cached_tokens: int = 0) -> Estimate | None:
        """Evaluating a prompt of which the first `cached_tokens` are in the cache already."""

    def decode(self, prompt_tokens: int, output_tokens: int) -> Estimate | None:
        """All decode steps of an answer after that prompt."""

    def attention(self, prompt_tokens: int, output_tokens: int) -> float | None:
        """Seconds of both phases that grow with depth."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelCosts:
    """From the fits of a measured group."""

    model: PhaseModel

    def prefill(self, prompt_tokens: int, cached_tokens: int = 0) -> Estimate | None:
        """prefill(n) - prefill(c) + a: the same tokens at the same depths, and the fixed cost once.

        A token by itself is evaluated as a decode step is, so that the fixed cost is at most one step: the
        fit, which extrapolates to it, may take noise for more.
        """
        fit = self.model.prefill
        if fit is None:
            return None
        whole = fit.predict(prompt_tokens)
        if not cached_tokens or prompt_tokens <= 0:
            return whole
        step = self.model.decode_s_per_token(prompt_tokens)
        fixed = fit.coefficients[0] if step is None else min(fit.coefficients[0], step.value_s)
        value = max(fit.value(prompt_tokens) - fit.value(cached_tokens), 0.0) + fixed
        return whole.times(value / whole.value_s) if whole.value_s > 0 else whole

    def decode(self, prompt_tokens: int, output_tokens: int) -> Estimate | None:
        """See Costs."""
        return self.model.decode_s(prompt_tokens, output_tokens)

    def attention(self, prompt_tokens: int, output_tokens: int) -> float | None:
        """The quadratic term of prefill and the sloped one of decode."""
        prefill, decode = self.model.prefill, self.model.decode
        if prefill is None or decode is None:
            return None
        steps = max(output_tokens - 1, 0)
        depth = prompt_tokens + max(steps - 1, 0) / 2
        return prefill.coefficients[2] * prompt_tokens**2 + decode.coefficients[1] * depth * steps


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RateCosts:
    """From one rate a phase, as other tools print them. What lengths do to the rates is unknown, so intervals
    reach to what it can be at most."""

    evidence: Evidence

    def prefill(self, prompt_tokens: int, cached_tokens: int = 0) -> Estimate | None:
        """In proportion to the evaluated tokens. At best attention is all of the cost, which then falls with
        the square; at worst one reading of the weights comes on top, which is one decode step."""
        token_s, evaluated = self.evidence.prefill_token_s, self.evidence.n_evaluated
        tokens = max(prompt_tokens - cached_tokens, 0)
        if token_s is None:
            return None
        value = token_s * tokens
        shrink = min(1.0, tokens / evaluated) if evaluated else 1.0
        fixed = (self.evidence.decode_step_s or 0.0) if shrink < 1 else 0.0
        low, high = value * shrink * (1 - RUN_TO_RUN), value * (1 + RUN_TO_RUN) + fixed
        return Estimate(value_s=value, low_s=low, high_s=high)

    def decode(self, prompt_tokens: int, output_tokens: int) -> Estimate | None:
        """The same step at any depth."""
        del prompt_tokens
        step = self.evidence.decode_step_s
        if step is None:
            return None
        value = step * max(output_tokens - 1, 0)
        return Estimate(value_s=value, low_s=value * (1 - RUN_TO_RUN), high_s=value * (1 + RUN_TO_RUN))

    def attention(self, prompt_tokens: int, output_tokens: int) -> float | None:
        """One rate does not tell."""
        del prompt_tokens, output_tokens
        return None


def costs_of(evidence: Evidence, model: PhaseModel | None) -> Costs:
    """The phase model's costs where it has both fits, else those of single rates."""
    if model is not None and model.prefill is not None and model.decode is not None:
        return ModelCosts(model=model)
    return RateCosts(evidence=evidence)
