"""What one load group has given so far: grows while it is measured, may be read at any moment."""

from __future__ import annotations

import dataclasses
from typing import Any

from probes.messages import BesideDone, Loaded, PassDone, ProtocolError
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
    StepParts,
)

NOT_REACHED = "budget: the time was used up before this length; give a larger --budget or fewer lengths"
_NOT_LOADED = "budget: the time was used up before this model was loaded"


@dataclasses.dataclass(slots=True)
class _Cell:
    samples: list[CellSample] = dataclasses.field(default_factory=list)
    status: CellStatus = "skipped"
    reason: str | None = NOT_REACHED
    is_open: bool = True
    """Worth another try."""


class GroupRecord:
    """Collects samples, facts and failures of one group into a GroupResult.

    `earlier` is what an earlier session has measured of it: that is kept, and what it left open or failed
    is open again.
    """

    def __init__(self, group: PlannedGroup, options: Options, earlier: GroupResult | None = None) -> None:
        self.settings: Settings = group.settings
        self._options = options
        self._cells = {length: _Cell() for length in options.prompt_tokens}
        self._loads: list[LoadSample] = []
        self._open: list[int] = []
        """Lengths of the running pass that it has not come to yet, in its order."""
        self._of_pass: list[list[tuple[int, int]]] = []
        """Of each pass of this measurement, where its samples are: length, and index among its samples."""
        self._result = GroupResult(
            model=group.model,
            settings=group.settings,
            resolved=None,
            status="skipped",
            reason=_NOT_LOADED,
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
        if earlier is not None:
            self._take_over(earlier)

    def _take_over(self, earlier: GroupResult) -> None:
        self.settings = earlier.settings
        self._loads = list(earlier.loads)
        for cell in earlier.cells:
            if cell.prompt_tokens in self._cells:
                self._cells[cell.prompt_tokens].samples = list(cell.samples)
        is_loaded = earlier.status == "ok"
        self._result = dataclasses.replace(
            earlier, status="ok" if is_loaded else "skipped", reason=None if is_loaded else _NOT_LOADED
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
    def is_split(self) -> bool:
        """Whether layers are on devices, and others are not."""
        resolved = self._result.resolved
        if resolved is None or resolved.n_gpu_layers is None or resolved.layers_total is None:
            return False
        return 0 < resolved.n_gpu_layers < resolved.layers_total

    @property
    def passes(self) -> tuple[PassSample, ...]:
        """All passes that came to their end."""
        return self._result.passes

    @property
    def loads_done(self) -> int:
        """Loads so far, whatever process made them."""
        return len(self._loads)

    @property
    def has_beside(self) -> bool:
        """Whether what stands beside the phases is measured, at all lengths that are."""
        return bool(self._result.sampling) and not any(self.lengths_to_tokenize)

    @property
    def lengths_to_tokenize(self) -> tuple[int, ...]:
        """Measured lengths of which tokenizing is not."""
        known = {sample.prompt_tokens for sample in self._result.tokenize}
        return tuple(cell.prompt_tokens for cell in self.measured() if cell.prompt_tokens not in known)

    @property
    def longest_load_ns(self) -> int:
        """The longest load so far; 0 before the first."""
        return max((load.total_ns for load in self._loads), default=0)

    @property
    def unmeasured_lengths(self) -> tuple[int, ...]:
        """Lengths that have no sample and may still get one."""
        return tuple(length for length, cell in self._cells.items() if cell.is_open and not cell.samples)

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

    def begin_pass(self, lengths: tuple[int, ...]) -> int:
        """A pass begins; its number in this measurement."""
        self._open = list(lengths)
        self._of_pass.append([])
        return len(self._of_pass) - 1

    def take_cell(self, length: int, sample: CellSample) -> bool:
        """One pass over one cell; whether it is the cell's first. Raises ProtocolError for a sample that was
        not asked for."""
        if length not in self._open or len(sample.decode_ns) != self._options.output_tokens:
            raise ProtocolError(f"a sample at {length:,} tokens was not asked for", reason="protocol")
        self._open.remove(length)
        cell = self._cells[length]
        self._of_pass[-1].append((length, len(cell.samples)))
        cell.samples.append(sample)
        return len(cell.samples) == 1

    def label(self, number: int, disturbed: tuple[str, ...]) -> None:
        """Say of all samples of a pass of this measurement what disturbed it."""
        for length, index in self._of_pass[number]:
            samples = self._cells[length].samples
            samples[index] = dataclasses.replace(samples[index], disturbed=disturbed)

    def take_pass(self, done: PassDone) -> None:
        """A pass is over."""
        self._open = []
        self._change(
            passes=(*self._result.passes, done.sample),
            peak_memory_bytes=done.peak_memory_bytes,
            device_memory=done.device_memory,
        )

    def take_beside(self, done: BesideDone) -> None:
        """What stands beside the phases, or more of it."""
        self._change(
            tokenize=(*self._result.tokenize, *done.tokenize),
            sampling=(*self._result.sampling, *done.sampling),
            requests=(*self._result.requests, *done.requests),
        )

    def take_parts(self, parts: tuple[StepParts, ...]) -> None:
        """Where the time of a split model went."""
        self._change(parts=parts)

    # What goes wrong

    def fail(self, reason: str) -> None:
        """A load failed: what is not measured yet can not be."""
        if not self.is_loaded:
            self._change(status="failed", reason=reason)
        for length in self.unmeasured_lengths:
            self._fail_cell(length, reason)

    def fail_current_cell(self, reason: str) -> None:
        """A pass failed in the first length that it still owed. A cell that has samples keeps them, and
        the failure is told beside."""
        if not self._open:
            self.warn(reason)
            return
        length, self._open = self._open[0], []
        where = f"while measuring {length:,} prompt tokens"
        if self._cells[length].samples:
            self.warn(f"a later pass, {where}: {reason}")
        else:
            self._fail_cell(length, f"{reason} ({where})")

    def warn(self, text: str) -> None:
        """Something a reader should know, told once."""
        self._change(warnings=tuple(dict.fromkeys((*self._result.warnings, text))))

    def leave_out(self, reason: str) -> None:
        """Give the cells that are still open another reason for being skipped."""
        for length in self.unmeasured_lengths:
            self._cells[length].reason = reason

    def give_up(self, reason: str) -> None:
        """Leave out the cells that are still open, for good."""
        for length in self.unmeasured_lengths:
            cell = self._cells[length]
            cell.reason, cell.is_open = reason, False

    def forget(self) -> None:
        """Begin again from nothing, keeping only warnings."""
        self._loads.clear()
        self._cells = {length: _Cell() for length in self._options.prompt_tokens}
        self._open = []
        self._of_pass = []
        self._change(passes=(), tokenize=(), sampling=(), requests=(), status="skipped", resolved=None)

    def _fail_cell(self, length: int, reason: str) -> None:
        cell = self._cells[length]
        cell.status, cell.reason, cell.is_open = "failed", reason, False

    def _change(self, **fields: Any) -> None:
        self._result = dataclasses.replace(self._result, **fields)
