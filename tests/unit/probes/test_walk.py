"""The timed loop, against sums done by hand."""

from __future__ import annotations

import gc

import pytest
from fakes import FakeClock, Script, ScriptedEngine

from probes.engine import EngineError
from probes.records import CellSample
from probes.walk import PassOutcome, PassPlan, Step, Walk, time_steps

MS = 1_000_000


def walk(
    lengths: tuple[int, ...],
    *,
    outputs: int = 2,
    chunk: int = 4,
    deadline_ns: int | None = None,
    **script: object,
) -> tuple[PassOutcome, dict[int, CellSample], ScriptedEngine, list[Step]]:
    clock = FakeClock()
    engine = ScriptedEngine(Script(**script), clock.advance)  # type: ignore[arg-type]
    engine.set_tokens(range(max(lengths) + outputs))
    cells: dict[int, CellSample] = {}
    steps: list[Step] = []
    outcome = Walk(engine, clock, steps.append, cells.__setitem__).run_pass(
        PassPlan(
            pass_index=0,
            lengths=lengths,
            output_tokens=outputs,
            chunk_tokens=chunk,
            deadline_ns=None if deadline_ns is None else clock.now_ns() + deadline_ns,
        )
    )
    return outcome, cells, engine, steps


def test_each_length_costs_what_a_fresh_prompt_costs() -> None:
    # A token at position i costs 1 ms + i * 0.1 ms, so n tokens cost n ms + 0.1 ms * n (n - 1) / 2.
    _, cells, _, _ = walk((1, 3, 4, 6, 8, 9), prefill_ns=MS, slope_ns=MS // 10, decode_ns=MS, depth_ns=0)
    for length, cell in cells.items():
        if length == 9:
            # 8 whole chunk tokens: 8 + 2.8 = 10.8 ms; the tail is one token and costs a decode step of 1 ms.
            assert cell.prefill_ns == 11_800_000
        elif length == 1:
            assert cell.prefill_ns == MS
        else:
            assert cell.prefill_ns == length * MS + MS // 10 * length * (length - 1) // 2


def test_decode_is_timed_step_by_step_at_its_depth() -> None:
    # A step costs 5 ms + depth * 1 µs; two steps at depths L and L + 1.
    _, cells, _, _ = walk((0, 4, 6), decode_ns=5 * MS, depth_ns=1000)
    assert cells[0].decode_ns == (5_000_000, 5_001_000)
    assert cells[4].decode_ns == (5_004_000, 5_005_000)
    assert cells[6].decode_ns == (5_006_000, 5_007_000)
    assert cells[0].prefill_ns == 0


def test_a_repeated_prefill_costs_the_same() -> None:
    clock = FakeClock()
    engine = ScriptedEngine(Script(slope_ns=10), clock.advance)
    engine.set_tokens(range(12))
    seen: list[int] = []
    walking = Walk(engine, clock, lambda _step: None, lambda _length, cell: seen.append(cell.prefill_ns))
    for index in range(3):
        walking.run_pass(
            PassPlan(pass_index=index, lengths=(10,), output_tokens=2, chunk_tokens=4, deadline_ns=None)
        )
    # 10 tokens at 1 ms, and 10 ns * (0 + 1 + ... + 9) = 450 ns
    assert seen == [10_000_450] * 3


def test_whole_chunks_run_once_and_tails_are_cut_off() -> None:
    _, _, engine, _ = walk((3, 4, 6), outputs=1)
    runs = [call for call in engine.calls if call[0] in ("run", "restore", "save", "clear")]
    assert runs == [
        ("clear",),
        ("save", 0),
        ("run", 0, 3, True),  # the tail of 3 ...
        ("run", 3, 1, True),
        ("restore", 0),  # ... is cut off
        ("run", 0, 4, True),  # the tail of 4 is a whole chunk: it stays
        ("save", 4),
        ("run", 4, 1, True),
        ("restore", 4),
        ("run", 4, 2, True),  # 6 = chunk + 2
        ("run", 6, 1, True),
    ]


def test_only_the_last_token_of_a_prompt_asks_for_logits() -> None:
    _, _, engine, _ = walk((10,), outputs=1)
    assert [call for call in engine.calls if call[0] == "run"] == [
        ("run", 0, 4, False),
        ("run", 4, 4, False),
        ("run", 8, 2, True),
        ("run", 10, 1, True),
    ]


def test_what_does_not_fit_before_the_deadline_is_named() -> None:
    # 4 tokens take 4 ms, two steps 10 ms: at 14 ms, 4 more tokens would fit into 20 ms, their decode not.
    outcome, cells, engine, _ = walk((4, 8, 12), deadline_ns=20 * MS, depth_ns=0)
    assert list(cells) == [4]
    assert outcome.not_reached == (8, 12)
    assert engine.cached_tokens == 4  # no time went into a length that can not be reached


def test_a_deadline_that_holds_changes_nothing() -> None:
    outcome, cells, _, _ = walk((4, 8), deadline_ns=28 * MS, depth_ns=0)
    assert list(cells) == [4, 8]
    assert outcome.not_reached == ()


def test_wall_is_engine_time_and_our_own() -> None:
    outcome, cells, _, _ = walk((4, 8))
    timed = cells[8].prefill_ns + sum(cells[4].decode_ns) + sum(cells[8].decode_ns)
    assert outcome.sample.engine_ns == timed
    assert outcome.sample.wall_ns == timed  # the fake clock does not run between calls


def test_the_observer_hears_the_rate_of_the_call_before() -> None:
    _, _, _, steps = walk((4, 8), prefill_ns=MS)
    prefills = [step for step in steps if step.phase == "prefill"]
    assert [step.tokens_per_s for step in prefills] == [None, 1000.0]
    assert [step.position_tokens for step in prefills] == [0, 4]


def test_garbage_collection_rests_inside_and_comes_back() -> None:
    states: list[bool] = []
    clock = FakeClock()
    engine = ScriptedEngine(Script(), lambda ns: (states.append(gc.isenabled()), clock.advance(ns))[1])
    engine.set_tokens(range(6))
    walking = Walk(engine, clock, lambda _step: None, lambda _length, _cell: None)
    walking.run_pass(PassPlan(pass_index=0, lengths=(4,), output_tokens=2, chunk_tokens=4, deadline_ns=None))
    assert set(states) == {False}
    assert gc.isenabled()


def test_an_engine_failure_comes_through_with_collection_restored() -> None:
    with pytest.raises(EngineError):
        walk((4, 8), fail_at_position=4)
    assert gc.isenabled()


def test_time_steps_reads_the_clock_just_outside_each_call() -> None:
    clock = FakeClock()
    durations = time_steps(clock.advance, clock.now_ns, [3, 5, 8])
    assert durations == [3, 5, 8]
