"""What a group has given so far, through crashes, restarts and a later session."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import sample_runs as sample

from probes.group_record import GroupRecord
from probes.messages import Loaded, PassDone, ProtocolError
from probes.plan import PlannedGroup
from probes.records import CellSample, GroupResult, PassSample

LENGTHS = (0, 100, 200)
OPTIONS = sample.options(prompt_tokens=LENGTHS, output_tokens=2)


def record(earlier: GroupResult | None = None) -> GroupRecord:
    group = PlannedGroup(model=sample.model(), settings=sample.settings())
    return GroupRecord(group, OPTIONS, earlier)


def loaded(to: GroupRecord) -> None:
    to.take_measuring_load(
        Loaded(
            open_ns=1,
            tensors_ns=1,
            context_ns=1,
            first_touch_ns=1,
            started_ns=1,
            disk_read_bytes=None,
            resolved=sample.resolved(),
            engine_warnings=(),
            peak_memory_bytes=None,
        )
    )


def one(pass_index: int = 0, **changes: Any) -> CellSample:
    made = CellSample(pass_index=pass_index, started_ns=1, head_ns=0, tail_ns=1, decode_ns=(1, 1))
    return dataclasses.replace(made, **changes)


def ended(pass_index: int = 0) -> PassDone:
    return PassDone(
        sample=PassSample(pass_index=pass_index, started_ns=1, wall_ns=1, engine_ns=1),
        not_reached=(),
        peak_memory_bytes=None,
        device_memory=(),
    )


def statuses(of: GroupRecord) -> list[str]:
    return [cell.status for cell in of.result().cells]


def test_a_failure_belongs_to_the_cell_that_the_pass_had_come_to() -> None:
    group = record()
    loaded(group)
    group.begin_pass(LENGTHS)
    assert group.take_cell(0, one())
    group.fail_current_cell("crash: first")
    assert statuses(group) == ["ok", "failed", "skipped"]
    # Another process begins with pass 0 again, on what is left; it fails in the cell measured before.
    group.begin_pass((0, 200))
    group.fail_current_cell("crash: second")
    assert statuses(group) == ["ok", "failed", "skipped"]
    assert group.unmeasured_lengths == (200,)
    assert group.result().warnings == ("a later pass, while measuring 0 prompt tokens: crash: second",)


def test_a_failure_after_the_last_cell_costs_none() -> None:
    group = record()
    loaded(group)
    group.begin_pass((0,))
    group.take_cell(0, one())
    group.fail_current_cell("crash: late")
    assert group.result().warnings == ("crash: late",)


@pytest.mark.parametrize(
    ("length", "sample_of_it"),
    [(300, one()), (0, one()), (100, one(decode_ns=())), (100, one(decode_ns=(1,)))],
)
def test_a_sample_that_was_not_asked_for_is_refused(length: int, sample_of_it: CellSample) -> None:
    group = record()
    with pytest.raises(ProtocolError):
        group.take_cell(length, sample_of_it)
    group.begin_pass(LENGTHS)
    group.take_cell(0, one())
    with pytest.raises(ProtocolError):
        group.take_cell(length, sample_of_it)


def test_labels_go_to_the_samples_of_their_pass_alone() -> None:
    group = record()
    loaded(group)
    for number in range(2):
        assert group.begin_pass((0, 100)) == number
        group.take_cell(0, one(number))
        group.take_cell(100, one(number))
        group.take_pass(ended(number))
    group.label(1, ("steal",))
    for cell in group.measured():
        assert [found.disturbed for found in cell.samples] == [(), ("steal",)]


def test_what_is_given_up_is_not_tried_again_and_says_why() -> None:
    group = record()
    loaded(group)
    group.give_up("crash: three times")
    assert group.unmeasured_lengths == ()
    assert [cell.reason for cell in group.result().cells] == ["crash: three times"] * 3
    assert statuses(group) == ["skipped"] * 3


def test_a_later_session_keeps_what_there_is_and_opens_the_rest() -> None:
    first = record()
    loaded(first)
    first.begin_pass(LENGTHS)
    first.take_cell(0, one())
    first.fail_current_cell("crash: once")
    first.warn("told")
    later = record(first.result())
    assert later.unmeasured_lengths == (100, 200)
    assert later.is_loaded
    assert later.result().warnings == ("told",)
    assert later.result().cells[0] == first.result().cells[0]
    assert not later.has_beside


def test_a_failed_load_of_a_later_session_leaves_what_is_measured() -> None:
    first = record()
    first.fail("load: broken")
    assert first.result().status == "failed"
    later = record(first.result())
    assert later.result().status == "skipped"
    assert later.unmeasured_lengths == LENGTHS
