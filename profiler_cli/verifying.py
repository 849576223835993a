"""Tries remedies on the spot: the same request with one thing changed, predicted beside measured."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from probes.errors import LlmphaseError
from probes.plan import Plan
from probes.records import MachineFacts, Run, Workload
from profiler_cli.console import note
from profiler_cli.running import run_session
from reports.text import clean

if TYPE_CHECKING:
    from reports.diagnosis_report import Verified
    from reports.remedies import Remedy

_TRIAL_BUDGET_SHARE = 0.5
"""Of the diagnosis's own budget, for each trial."""


def verify_remedies(
    run: Run, plan: Plan, remedies: Sequence[Remedy], most: int, machine: MachineFacts, *, quiet: bool
) -> tuple[Verified, ...]:
    """Measure the best `most` remedies that can be tried here, against the request as it was measured."""
    tried = [remedy for remedy in remedies if remedy.try_with is not None][:most]
    return tuple(_verify(run, plan, remedy, machine, quiet=quiet) for remedy in tried)


def _verify(run: Run, plan: Plan, remedy: Remedy, machine: MachineFacts, *, quiet: bool) -> Verified:
    from reports.diagnosis_report import Verified

    note(f"Trying: {clean(remedy.title)}", quiet=quiet)
    base_s = _wait_s(run, plan.groups[0].workload)
    problem: str | None = None
    wait_s: float | None = None
    try:
        changed = _changed(plan, remedy)
        trial = run_session(changed, machine, _keep_nothing, quiet=quiet)
        if not trial.finished:
            raise KeyboardInterrupt
        wait_s = _wait_s(trial, changed.groups[0].workload)
        if wait_s is None:
            problem = trial.groups[0].reason or "the whole request did not fit into the time"
    except LlmphaseError as error:
        problem = str(error)
    return Verified(
        code=remedy.code,
        base_wait_s=base_s,
        measured_wait_s=wait_s,
        low_s=None,
        high_s=None,
        problem=problem,
    )


def _keep_nothing(_run: Run) -> None:
    """A trial is told in the report and saved nowhere."""


def _changed(plan: Plan, remedy: Remedy) -> Plan:
    """The plan with the remedy's change: its request, and only as much of the walk as that needs."""
    from probes.plan import workload_lengths

    group = plan.groups[0]
    assert remedy.try_with is not None
    assert group.workload is not None
    settings, workload = remedy.try_with.apply(group.settings, group.workload)
    same_prompt = workload.prompt_tokens == group.workload.prompt_tokens
    options = dataclasses.replace(
        plan.options,
        prompt_tokens=workload_lengths(workload),
        repetitions=1,
        budget_ns=round(_TRIAL_BUDGET_SHARE * plan.options.budget_ns),
        cold=workload.start == "cold",
    )
    changed = dataclasses.replace(
        group, settings=settings, workload=workload, prompt=group.prompt if same_prompt else None
    )
    return dataclasses.replace(plan, groups=(changed,), options=options)


def _wait_s(run: Run, workload: Workload | None) -> float | None:
    """The whole request as measured, its load included where the wait begins with one; None where the answer
    was cut short: half an answer is no saving."""
    group = run.groups[0]
    if not group.requests or workload is None or group.requests[-1].output_tokens < workload.output_tokens:
        return None
    wait_ns = group.requests[-1].wall_ns
    if workload.start != "loaded":
        loads = [load.total_ns for load in group.loads if load.cache_state == workload.start]
        if not loads:
            return None
        wait_ns += round(statistics.median(loads))
    return wait_ns / 1e9
