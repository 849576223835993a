"""Whether two model files hold the same model, by what their headers say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from probes.records import ModelFacts
from reports.text import clean

_SAME_PARAMS = 0.01
"""Share by which the number of weights may differ within one model: small tensors come and go with
converters."""
_MARKS: tuple[tuple[str, Callable[[ModelFacts], Any]], ...] = (
    ("architecture", lambda model: clean(model.architecture, limit=30)),
    ("layers", lambda model: model.n_layers),
    ("embedding width", lambda model: model.n_embd),
    ("vocabulary", lambda model: model.n_vocab),
    ("experts", lambda model: model.n_experts),
)
"""What all quantizations of a model share, by name."""


def _untied_params(model: ModelFacts) -> int:
    """Weights with the output layer counted of its own, whether the file has it twice or not."""
    shared = (model.n_vocab or 0) * (model.n_embd or 0) if model.tied_output else 0
    return model.n_params + shared


def differences(one: ModelFacts, other: ModelFacts) -> list[str]:
    """In words, by what the other is another model; empty where it is the same."""
    found = [f"{name} {of(other)} instead of {of(one)}" for name, of in _MARKS if of(one) != of(other)]
    ours, theirs = _untied_params(one), _untied_params(other)
    if not found and abs(ours - theirs) > _SAME_PARAMS * ours:
        found.append(f"{theirs:,} weights instead of {ours:,}, the output layer counted")
    return found


def is_same_model(one: ModelFacts, other: ModelFacts) -> bool:
    """Whether two files can be quantizations of one model."""
    return not differences(one, other)
