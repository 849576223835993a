"""Tries remedies on the spot: the same request with one thing changed, predicted beside measured."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from probes.errors import LlmphaseError
from probes.plan import Plan
from probes.records import GroupResult, MachineFacts, Run, Workload
from profiler_cli.console import note
from profiler_cli.quantizing import Quantizing, quantized
from profiler_cli.running import check_memory, run_session
from reports import stats
from reports.text import clean

if TYPE_CHECKING:
    from reports.advice import Verified
    from reports.remedies import Remedy

_TRIAL_BUDGET_SHARE = 0.5
"""Of the diagnosis's own budget, for each trial."""
_SHORT_WALK_TOKENS = 64
_ROUNDS = 6
"""Loads of each, while the saving is not known well enough."""
_REQUESTS = 4
"""In each of them, by turns."""
_TURN_NS = 250 * 10**6
"""What disturbs a machine for a second meets both."""
_REQUESTS_APART = 2
"""In each of them, where both can not be loaded at once: what drifts between loads meets one side alone."""
_WANTED = 0.1
"""Half of the interval of the saving, as a share of it."""
_LEAST = 0.01
"""The same as a share of the wait: a saving below that is none."""


def verify_remedies(
    run: Run, plan: Plan, remedies: Sequence[Remedy], most: int, machine: MachineFacts, *, quiet: bool
) -> tuple[Verified, ...]:
    """Measure the best `most` remedies that can be tried here, against the request as it was measured: with
    the settings that the run ended with, which a crash may have changed."""
    group = dataclasses.replace(
        plan.groups[0],
        settings=run.groups[0].settings,
        further_loads=_waits_for_a_load(plan),
        times_parts=False,
    )
    plan = dataclasses.replace(plan, groups=(group,))
    tried = [remedy for remedy in remedies if remedy.try_with is not None][:most]
    return tuple(_verify(run, plan, remedy, machine, quiet=quiet) for remedy in tried)


def _waits_for_a_load(plan: Plan) -> bool:
    workload = plan.groups[0].workload
    return workload is not None and workload.start != "loaded"


def _verify(run: Run, plan: Plan, remedy: Remedy, machine: MachineFacts, *, quiet: bool) -> Verified:
    """Measure the request with the change, by turns with the request as it is."""
    note(f"Trying: {clean(remedy.title)}", quiet=quiet)
    now = _waits_s(run.groups[0], plan.groups[0].workload)
    problem: str | None = None
    then: list[float] = []
    try:
        trial_plan = _trial(plan, remedy, quiet=quiet)
        both = dataclasses.replace(trial_plan, groups=(trial_plan.groups[0], plan.groups[0]))
        then, again, problem = _in_turns(both, machine, quiet=quiet)
        now = again or now
    except LlmphaseError as error:
        problem = str(error)
    return _verified(remedy.code, now, then, problem)


def _in_turns(
    both: Plan, machine: MachineFacts, *, quiet: bool
) -> tuple[list[float], list[float], str | None]:
    """Waits of the changed request and of the present one, and why there are none of the changed one. Where
    both can be loaded they take turns within each request, else load by load. They are loaded anew until the
    saving is known: where a process's memory comes to lie is a part of its speed.

    Raises LlmphaseError, KeyboardInterrupt.
    """
    _, together = check_memory(both, machine, force=True, one_process=True)
    options = dataclasses.replace(both.options, budget_ns=2 * both.options.budget_ns)  # each its own time
    both = dataclasses.replace(
        both,
        options=options,
        groups=tuple(
            dataclasses.replace(group, requests=_REQUESTS, turn_ns=_TURN_NS)
            if together
            else dataclasses.replace(group, requests=_REQUESTS_APART)
            for group in both.groups
        ),
    )
    changed, base = both.groups
    then: list[float] = []
    now: list[float] = []
    began_s = time.monotonic()
    for _ in range(_ROUNDS):
        trial = run_session(both, machine, _keep_nothing, quiet=quiet, together=together)
        if not trial.finished:
            raise KeyboardInterrupt
        waits = _waits_s(trial.groups[0], changed.workload)
        if not waits:
            return then, now, trial.groups[0].reason or "the whole request did not fit into the time"
        then += waits
        now += _waits_s(trial.groups[1], base.workload)
        side_by_side = list(zip(now, then, strict=False))
        is_known = stats.is_difference_precise(side_by_side, _WANTED, _LEAST)
        if is_known or time.monotonic() - began_s > options.budget_ns / 1e9:
            break
    return then, now, None


def _verified(code: str, now: Sequence[float], then: Sequence[float], problem: str | None) -> Verified:
    from reports.advice import Verified

    ranged = len(then) > 1
    return Verified(
        code=code,
        base_wait_s=statistics.median(now) if now else None,
        measured_wait_s=statistics.median(then) if then else None,
        low_s=min(then) if ranged else None,
        high_s=max(then) if ranged else None,
        problem=problem,
    )


def _keep_nothing(_run: Run) -> None:
    """A trial is told in the report and saved nowhere."""


def _trial(plan: Plan, remedy: Remedy, *, quiet: bool) -> Plan:
    """The plan with the remedy's change. The walk is as short as one can be: the request itself is what
    counts."""
    group = plan.groups[0]
    assert remedy.try_with is not None
    assert group.workload is not None
    settings, workload = remedy.try_with.apply(group.settings, group.workload)
    same_prompt = workload.prompt_tokens == group.workload.prompt_tokens
    options = dataclasses.replace(
        plan.options,
        prompt_tokens=(min(_SHORT_WALK_TOKENS, workload.prompt_tokens),),
        repetitions=1,
        budget_ns=round(_TRIAL_BUDGET_SHARE * plan.options.budget_ns),
        cold=workload.start == "cold",
    )
    model = group.model
    if remedy.try_with.quantization is not None:
        wish = Quantizing(types=(remedy.try_with.quantization,), requantize=True)
        (model,) = quantized([model], wish, settings.threads, quiet=quiet)
    changed = dataclasses.replace(
        group,
        model=model,
        settings=settings,
        workload=workload,
        prompt=group.prompt if same_prompt else None,
    )
    return dataclasses.replace(plan, groups=(changed,), options=options)


def _waits_s(group: GroupResult, workload: Workload | None) -> list[float]:
    """The whole request each time it was run, its load included where the wait begins with one; empty where
    the answer was cut short: half an answer is no saving."""
    if not group.requests or workload is None or group.requests[-1].output_tokens < workload.output_tokens:
        return []
    load_ns = 0
    if workload.start != "loaded":
        loads = [load.total_ns for load in group.loads if load.cache_state == workload.start]
        if not loads:
            return []
        load_ns = round(statistics.median(loads))
    return [(request.wall_ns + load_ns) / 1e9 for request in group.requests]
