"""Exact phase models, so that tests can do the sums by hand."""

from __future__ import annotations

from reports.phases import Fit, PhaseModel


def fit(*coefficients: float) -> Fit:
    """A polynomial that is known without error, measured up to 2,048 tokens."""
    n = len(coefficients)
    return Fit(
        coefficients=coefficients,
        covariance=((0.0,) * n,) * n,
        sigma=0.0,
        degrees=10,
        largest_tokens=2048.0,
    )


SIMPLE = PhaseModel(prefill=fit(0, 0.01, 0), prefill_reason=None, decode=fit(0.1, 0), decode_reason=None)
"""10 ms a prompt token, 100 ms an answer's."""
