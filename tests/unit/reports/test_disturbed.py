"""What counts as a disturbance, and which samples count then."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import sample_runs as sample

from probes.records import CellResult, Run
from reports import measured
from reports.disturbed import counted_samples, disturbing
from reports.notices import notices


def labelled(cell: CellResult, *passes: int, slow: float = 1.0) -> CellResult:
    """The cell with these passes disturbed, and slower by a factor."""
    samples = tuple(
        dataclasses.replace(
            one,
            disturbed=("foreign-cpu",),
            head_ns=round(slow * one.head_ns),
            tail_ns=round(slow * one.tail_ns),
        )
        if one.pass_index in passes
        else one
        for one in cell.samples
    )
    return dataclasses.replace(cell, samples=samples)


def codes(run: Run) -> list[str]:
    return [notice.code for notice in notices(run)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ()),
        ({"foreign_cpus": 0.11}, ("foreign-cpu",)),
        ({"foreign_cpus": 0.10}, ()),
        ({"steal_fraction": 0.02}, ("steal",)),
        ({"throttled_fraction": 0.5}, ("throttled",)),
        ({"swap_in_bytes": 2**20}, ("swap-in",)),
        ({"foreign_cpus": 1.0, "steal_fraction": 0.2}, ("foreign-cpu", "steal")),
        (
            {"foreign_cpus": None, "steal_fraction": None, "throttled_fraction": None, "swap_in_bytes": None},
            (),
        ),
    ],
)
def test_thresholds_are_those_of_the_notices(changes: dict[str, Any], expected: tuple[str, ...]) -> None:
    intervals = (sample.quiet(0, **changes),)
    assert disturbing(intervals) == expected
    assert tuple(codes(sample.run(disturbances=intervals))) == expected


def test_intervals_are_weighed_by_their_length() -> None:
    # 0.5 CPUs for 1 s and none for 9 s are 0.05 on average.
    long = sample.quiet(1, foreign_cpus=0.0, duration_ns=9 * 10**9)
    assert disturbing((sample.quiet(0, foreign_cpus=0.5), long)) == ()
    assert disturbing(()) == ()


def test_disturbed_passes_do_not_count_where_three_quiet_ones_do() -> None:
    clean = sample.cell(512, passes=6)
    cell = labelled(clean, 1, 3, 5, slow=2.0)
    assert [one.pass_index for one in counted_samples(cell)] == [0, 2, 4]
    found, quiet = measured.prefill(cell), measured.prefill(clean)
    assert found is not None
    assert quiet is not None
    assert found.summary.n == 3
    assert found.summary.max <= quiet.summary.max
    assert len(measured.decode_samples(cell)) == 3
    assert len(measured.inter_token_s(cell)) == 3 * sample.OUTPUT_TOKENS
    assert "disturbed-left-out" in codes(sample.run(sample.group(cells=[cell])))


def test_all_count_where_fewer_are_quiet() -> None:
    cell = labelled(sample.cell(512, passes=6), 0, 1, 2, 3)
    assert len(measured.prefill_samples(cell)) == 6
    found = notices(sample.run(sample.group(cells=[cell])))
    (notice,) = [one for one in found if one.code == "disturbed"]
    assert notice.text.startswith("At 512 tokens 4 of 6 passes ran while the machine was busy")
    assert "(other programs)" in notice.text
    assert notice.prompt_tokens == (512,)
