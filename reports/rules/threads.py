"""More threads than cores: all of them meet after each operation, so the one without a core holds up the
rest."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.rules.physics import host_rate_bytes_s, host_share
from reports.units import percent, size

_SMT_CPUS = 8
"""Logical CPUs from which on two of them usually share a core; small boards have one core each."""
_SMT_SHARE = 0.25
"""With all logical CPUs in use, a share of the memory's bandwidth that the slowdown by shared cores alone
does not explain: decode then loses up to a half, the rest is waiting."""
_SAVED = 0.5
"""Twice as fast without: the least that public reports of too many threads name (up to 85 times)."""
_ENOUGH = 0.5
"""Decode that reaches this share of the memory's known bandwidth has no thread problem worth a verdict."""


def judge(evidence: Evidence) -> Outcome:
    """Threads against usable cores, else against logical CPUs; cleared where decode is fast all the same."""
    threads = max(evidence.threads or 0, evidence.threads_batch or 0)
    names = (
        "threads",
        "threads_batch",
        "usable_cpus",
        "logical_cpus",
        "memory_bandwidth_bytes_s",
        "decode_tok_s",
    )
    inputs = evidence.known(*names)
    usable = evidence.usable_cpus
    if not threads or (usable is None and evidence.logical_cpus is None):
        return Abstained(missing=evidence.missing("threads", "usable_cpus", "logical_cpus"))
    if evidence.host_works is False:
        return Cleared(reason="the device does the work, threads hardly matter", inputs=inputs)
    share = host_share(evidence)
    if share is not None and share >= _ENOUGH and evidence.memory_bandwidth_bytes_s:
        return Cleared(reason=f"decode reaches {percent(share)} of the memory's bandwidth", inputs=inputs)
    limit = usable if usable is not None else float(evidence.logical_cpus or threads)
    if threads > limit:
        return Finding(
            verdict="contended",
            confidence=0.85 if evidence.host_works else 0.65,
            reason=f"{threads} threads share {limit:g} usable {'core' if limit == 1 else 'cores'}",
            inputs=inputs,
            saves_share=_SAVED,
            margin=threads / limit - 1,
        )
    if usable is None and _shares_cores(evidence, threads, share):
        return Finding(
            verdict="contended",
            confidence=0.72,
            reason=f"{threads} threads use every logical CPU, two to a core, and the part of the model in"
            f" system memory is read at only {size(host_rate_bytes_s(evidence))}/s",
            inputs=inputs,
            saves_share=_SAVED,
        )
    return Cleared(reason=f"{threads} threads, {limit:g} CPUs", inputs=inputs)


def _shares_cores(evidence: Evidence, threads: int, share: float | None) -> bool:
    """All logical CPUs of a machine with two to a core, and far slower than system memory allows."""
    logical = evidence.logical_cpus or 0
    return logical >= _SMT_CPUS and threads >= logical and share is not None and share < _SMT_SHARE
