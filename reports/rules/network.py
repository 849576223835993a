"""What the network to devices on other machines costs, in words for the rules and the verdict."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.links import NETWORK_SHARE
from reports.units import duration, percent


def weighs(evidence: Evidence) -> bool:
    """Whether it takes so much of a generated token that it is to be named as a cause."""
    return evidence.network_share is not None and evidence.network_share >= NETWORK_SHARE


def cost_clause(evidence: Evidence) -> str:
    """What it takes, where it is known: `the network takes at least 61 ms of each token (61 %)`."""
    return (
        f"the network takes at least {duration(evidence.network_step_s or 0.0)} of each token"
        f" ({percent(evidence.network_share or 0.0)})"
    )
