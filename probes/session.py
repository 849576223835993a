"""The parent of a measurement: groups in turn, the budget, the run as it grows.

Nothing here touches the engine: workers do, so that the engine may crash, hang or eat all memory
without taking finished results along.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone

from probes.disturbance import busiest_processes
from probes.group_session import Doing, GroupSession, Policy
from probes.loopback_servers import serving_processes
from probes.plan import Plan
from probes.records import (
    SCHEMA_VERSION,
    DeviceCeiling,
    Disturbance,
    EngineFacts,
    LinkFacts,
    MachineFacts,
    Neighbour,
    Run,
)
from probes.run_files import new_run_id
from probes.shared_worker import SharedWorker
from probes.worker_process import WorkerProcess

_DISTURBING_CPUS = 0.1
"""CPUs' worth of time that others take: from here on it is worth naming them."""


class Session:
    """One measurement. `save` is called with the run as it stands, after each newly measured cell and at
    the end; `show` hears what is being measured; `kept_ns` of the budget is left for what comes after.

    Groups that are measured `together` are loaded at once, in one process where they use remote devices.
    `earlier` is an unfinished run of the same plan: it is continued, and only what it lacks is measured.
    """

    def __init__(
        self,
        plan: Plan,
        machine: MachineFacts,
        policy: Policy,
        save: Callable[[Run], None],
        show: Callable[[Doing], None],
        version: str,
        together: bool = False,
        ceilings: tuple[DeviceCeiling, ...] = (),
        kept_ns: int = 0,
        links: tuple[LinkFacts, ...] = (),
        earlier: Run | None = None,
    ) -> None:
        self._plan = plan
        self._save = save
        self._show = show
        self._together = together
        self._kept_ns = kept_ns
        self._started_ns = time.perf_counter_ns()
        self._disturbances: list[Disturbance] = []
        self._neighbours: tuple[Neighbour, ...] = ()
        self._engine: EngineFacts | None = None
        before = (None,) * len(plan.groups) if earlier is None else earlier.groups
        begin_worker = SharedWorker().seat if together and _has_servers(plan) else WorkerProcess
        self._sessions = [
            GroupSession(group, plan.options, policy, self, measured, begin_worker)
            for group, measured in zip(plan.groups, before, strict=True)
        ]
        self._earlier_ns = 0
        self._earlier_disturbances = 0
        now = datetime.now(timezone.utc)
        self._blank = Run(
            schema_version=SCHEMA_VERSION,
            run_id=new_run_id(now),
            started_at=f"{now:%Y-%m-%dT%H:%M:%SZ}",
            llmphase_version=version,
            finished=False,
            options=plan.options,
            machine=machine,
            engine=None,
            groups=(),
            disturbances=(),
            wall_ns=0,
            warnings=plan.warnings,
            workload=plan.groups[0].workload if plan.groups else None,
            ceilings=ceilings,
            links=links,
        )
        if earlier is not None:
            self._take_over(earlier)

    def _take_over(self, earlier: Run) -> None:
        self._blank = dataclasses.replace(
            earlier, finished=False, options=self._plan.options, warnings=self._plan.warnings
        )
        self._engine = earlier.engine
        self._disturbances = list(earlier.disturbances)
        self._neighbours = earlier.neighbours
        self._earlier_disturbances = len(earlier.disturbances)
        self._earlier_ns = earlier.wall_ns

    def measure(self) -> Run:
        """Measure everything. On KeyboardInterrupt the run comes back with `finished` False, workers
        ended and what was measured saved."""
        try:
            self._measure_groups()
            self._name_neighbours()
        except KeyboardInterrupt:
            return self._abort()
        run = self._run(finished=True)
        self._save(run)
        return run

    def _abort(self) -> Run:
        """End the workers and save. A second interruption waits until that is done: impatience must not cost
        what is being saved."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            for session in self._sessions:
                session.abort()
            run = self._run(finished=False)
            self._save(run)
        finally:
            signal.signal(signal.SIGINT, before)
        return run

    def _measure_groups(self) -> None:
        end_ns = self._started_ns + self._plan.options.budget_ns - self._kept_ns
        todo = [session for session in self._sessions if not session.is_complete]
        batches = [todo] if self._together else [[session] for session in todo]
        for index, batch in enumerate(batches):
            now_ns = time.perf_counter_ns()
            share_ns = (end_ns - now_ns) // (len(batches) - index)
            self._measure_batch(batch, now_ns + share_ns)

    def _measure_batch(self, batch: Sequence[GroupSession], end_ns: int) -> None:
        """Groups of one batch take turns, so that a drift of the machine meets them all alike."""
        for session in batch:
            session.start(end_ns)
        active = list(batch)
        while active:
            active = [session for session in active if session.step(end_ns)]
        for session in batch:
            session.finish(end_ns)

    def _name_neighbours(self) -> None:
        """Name who took CPU meanwhile. Only now: looking at all processes would itself disturb."""
        new = self._disturbances[self._earlier_disturbances :]
        taken = [one.foreign_cpus for one in new if one.foreign_cpus is not None]
        if taken and statistics.median(taken) > _DISTURBING_CPUS:
            servers = {server for group in self._plan.groups for server in group.settings.rpc_servers}
            ours = {os.getpid(), *serving_processes(sorted(servers))}
            self._neighbours = tuple(
                Neighbour(name=name, cpus=cpus) for name, cpus in busiest_processes(ours) or ()
            )

    def _run(self, *, finished: bool) -> Run:
        return dataclasses.replace(
            self._blank,
            finished=finished,
            engine=self._engine,
            groups=tuple(session.result() for session in self._sessions),
            disturbances=tuple(self._disturbances),
            neighbours=self._neighbours,
            wall_ns=self._earlier_ns + time.perf_counter_ns() - self._started_ns,
        )

    # Watch

    def doing(self, doing: Doing) -> None:
        """See Watch."""
        self._show(doing)

    def disturbed(self, disturbance: Disturbance) -> None:
        """See Watch."""
        self._disturbances.append(disturbance)

    def engine(self, facts: EngineFacts) -> None:
        """See Watch."""
        self._engine = facts

    def changed(self) -> None:
        """See Watch."""
        self._save(self._run(finished=False))


def _has_servers(plan: Plan) -> bool:
    return any(group.settings.rpc_servers for group in plan.groups)
