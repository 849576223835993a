"""Passes are repeated until the figures are tight and rest on enough undisturbed ones."""

from __future__ import annotations

import dataclasses

import sample_runs as sample

from probes.records import CellResult
from profiler_cli.running import PrecisionPolicy


def labelled(cell: CellResult, *passes: int) -> CellResult:
    """The cell with these passes disturbed."""
    samples = tuple(
        dataclasses.replace(one, disturbed=("steal",) if one.pass_index in passes else ())
        for one in cell.samples
    )
    return dataclasses.replace(cell, samples=samples)


def is_loose(cell: CellResult, repetitions: int | None = None) -> bool:
    return bool(PrecisionPolicy(0.03, repetitions).loose((cell,)))


def test_a_tight_interval_of_quiet_passes_is_enough() -> None:
    assert not is_loose(sample.cell(512, passes=6))


def test_fewer_than_three_passes_are_never_enough() -> None:
    assert is_loose(sample.cell(512, passes=2))


def test_disturbed_passes_are_repeated() -> None:
    assert is_loose(labelled(sample.cell(512, passes=6), 0, 1, 2, 3))


def test_until_enough_quiet_ones_give_a_tight_interval() -> None:
    assert not is_loose(labelled(sample.cell(512, passes=8), 0, 1))


def test_but_not_for_ever() -> None:
    assert not is_loose(labelled(sample.cell(512, passes=9), *range(9)))


def test_a_number_of_passes_that_was_asked_for_is_exact() -> None:
    assert not is_loose(labelled(sample.cell(512, passes=2), 0, 1), repetitions=2)
    assert is_loose(sample.cell(512, passes=2), repetitions=3)
