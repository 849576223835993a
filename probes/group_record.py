"""What one load group has given so far: grows while it is measured, may be read at any moment."""

from __future__ import annotations

import dataclasses
from typing import Any

from probes.messages import BesideDone, Loaded, PassDone
from probes.plan import PlannedGroup
from probes.records import (
    CellResult,
    CellSample,
    CellStatus,
    GroupResult,
    LoadSample,
    Options,
    PassSample,
    Resolved,
    Settings,
)

NOT_REACHED = "budget: the time was used up before this length; give a larger --budget or fewer lengths"


@dataclasses.dataclass(slots=True)
class _Cell:
    samples: list[CellSample] = dataclasses.field(default_factory=list)
    status: CellStatus = "skipped"
    reason: str | None = NOT_REACHED


class GroupRecord:
    """Collects samples, facts and failures of one group into a GroupResult."""

    def __init__(self, group: PlannedGroup, options: Options) -> None:
        self.settings: Settings = group.settings
        self._options = options
        self._cells = {length: _Cell() for length in options.prompt_tokens}
        self._loads: list[LoadSample] = []
        self._result = GroupResult(
            model=group.model,
            settings=group.settings,
            resolved=None,
            status="skipped",
            reason="budget: the time was used up before this model was loaded",
            loads=(),
            cells=(),
            passes=(),
            tokenize=(),
            sampling=(),
            requests=(),
            engine_warnings=(),
            peak_memory_bytes=None,
            device_memory=(),
        )

    # What is known

    @property
    def is_loaded(self) -> bool:
        """Whether a load has succeeded."""
        return self._result.status == "ok"

    @property
    def resolved(self) -> Resolved | None:
        """What the engine resolved at the last load."""
        return self._result.resolved

    @property
    def passes(self) -> tuple[PassSample, ...]:
        """Passes since the last start of the measuring worker."""
        return self._result.passes

    @property
    def longest_load_ns(self) -> int:
        """The longest load so far; 0 before the first."""
        return max((load.total_ns for load in self._loads), default=0)

    @property
    def open_lengths(self) -> tuple[int, ...]:
        """Lengths that have not failed."""
        return tuple(length for length, cell in self._cells.items() if cell.status != "failed")

    @property
    def unmeasured_lengths(self) -> tuple[int, ...]:
        """Lengths that have neither failed nor given a sample."""
        return tuple(length for length in self.open_lengths if not self._cells[length].samples)

    def measured(self) -> tuple[CellResult, ...]:
        """The cells that have samples."""
        return tuple(cell for cell in self.result().cells if cell.samples)

    def result(self) -> GroupResult:
        """All that is known so far."""
        return dataclasses.replace(
            self._result,
            settings=self.settings,
            loads=tuple(self._loads),
            cells=tuple(self._cell_result(length, cell) for length, cell in self._cells.items()),
        )

    def _cell_result(self, length: int, cell: _Cell) -> CellResult:
        return CellResult(
            prompt_tokens=length,
            output_tokens=self._options.output_tokens,
            status="ok" if cell.samples else cell.status,
            reason=None if cell.samples else cell.reason,
            samples=tuple(cell.samples),
        )

    # What comes in

    def take_load(self, load: LoadSample) -> None:
        """One load, of the measuring worker or another."""
        self._loads.append(load)

    def take_measuring_load(self, loaded: Loaded) -> None:
        """The measuring worker is ready."""
        self._change(
            resolved=loaded.resolved,
            status="ok",
            reason=None,
            engine_warnings=tuple(dict.fromkeys(self._result.engine_warnings + loaded.engine_warnings)),
        )

    def take_cell(self, length: int, sample: CellSample) -> bool:
        """One pass over one cell; whether it is the cell's first."""
        cell = self._cells[length]
        cell.samples.append(sample)
        return len(cell.samples) == 1

    def take_pass(self, done: PassDone) -> None:
        """A pass is over."""
        self._change(
            passes=(*self._result.passes, done.sample),
            peak_memory_bytes=done.peak_memory_bytes,
            device_memory=done.device_memory,
        )

    def take_beside(self, done: BesideDone) -> None:
        """What stands beside the phases."""
        self._change(tokenize=done.tokenize, sampling=done.sampling, requests=done.requests)

    def take_request(self, done: BesideDone) -> None:
        """The whole request once more."""
        self._change(requests=(*self._result.requests, *done.requests))

    # What goes wrong

    def fail(self, reason: str) -> None:
        """The load failed: nothing of this group can be measured."""
        self._change(status="failed", reason=reason)
        for length in self.unmeasured_lengths:
            self._fail_cell(length, reason)

    def fail_current_cell(self, reason: str) -> None:
        """A pass failed: the cell it was in is the first without a sample of this pass. A cell that earlier
        passes have measured keeps them, and the failure is told beside."""
        pass_index = len(self._result.passes)
        for length in self.open_lengths:
            samples = self._cells[length].samples
            if samples and samples[-1].pass_index >= pass_index:
                continue
            where = f"while measuring {length:,} prompt tokens"
            if samples:
                self.warn(f"pass {pass_index + 1}, {where}: {reason}")
            else:
                self._fail_cell(length, f"{reason} ({where})")
            return

    def warn(self, text: str) -> None:
        """Something a reader should know beside the engine's own warnings."""
        self._change(engine_warnings=(*self._result.engine_warnings, text))

    def leave_out(self, reason: str) -> None:
        """Give the cells that are still open another reason for being skipped."""
        for length in self.unmeasured_lengths:
            self._cells[length].reason = reason

    def restart(self) -> None:
        """The measuring worker begins again: its passes are counted anew, samples stay."""
        self._change(passes=())

    def forget(self) -> None:
        """Begin again from nothing, keeping only warnings."""
        self._loads.clear()
        self._cells = {length: _Cell() for length in self._options.prompt_tokens}
        self._change(passes=(), status="skipped", resolved=None)

    def _fail_cell(self, length: int, reason: str) -> None:
        cell = self._cells[length]
        cell.status, cell.reason = "failed", reason

    def _change(self, **fields: Any) -> None:
        self._result = dataclasses.replace(self._result, **fields)
