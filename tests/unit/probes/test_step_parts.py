"""From the engine's questions to the time of host layers, device layers and output layer."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from fakes import FakeClock, ObservedNode, Script, ScriptedEngine
from sample_runs import settings

from probes.engine import EngineError
from probes.part_timing import PartTimer
from probes.records import StepParts
from probes.step_parts import Marks, marks, split_parts

US = 1000
SHORT = 1 * US
"""From one question to the next."""


def nodes(*described: tuple[str, bool | None, int]) -> list[ObservedNode]:
    return [ObservedNode(name, on_host, took_us * US) for name, on_host, took_us in described]


def waited_for(nodes: list[ObservedNode], index: int, took_us: int, computed_us: int) -> list[ObservedNode]:
    changed = dataclasses.replace(nodes[index], took_ns=took_us * US, computed_ns=computed_us * US)
    return [*nodes[:index], changed, *nodes[index + 1 :]]


HOST_END, FIRST_END, END = 4, 5, 8
PLAIN = waited_for(
    nodes(
        ("embd", True, 1),
        ("Kcur-0", True, 1),
        ("cache_k_l0 (view)", None, 1),
        ("l_out-0", True, 1),
        ("ffn_out-1", True, 1),
        ("l_out-1", False, 1),
        ("Kcur-2", False, 1),
        ("Kcur-2 (view)", None, 1),
        ("l_out-2", False, 1),
        ("result_output", False, 3000),
    ),
    HOST_END,
    5000,
    4600,
)
WATCHED = [
    *waited_for(waited_for(PLAIN, FIRST_END, 1200, 1100), END, 1300, 1250)[:-1],
    dataclasses.replace(PLAIN[9], took_ns=1000 * US),
]
MARKS = Marks(host_end=HOST_END, first_end=FIRST_END, last_end=END)


def parts(watched: list[ObservedNode] = WATCHED, marks: Marks = MARKS) -> StepParts | None:
    return split_parts(watched, marks, whole_ns=(7700 * US,), tokens=1, position_tokens=64)


def test_computing_here_moving_and_computing_there_are_told_apart() -> None:
    # Of layer 1 one node is here and one there: no more than half of it is here.
    assert parts() == StepParts(
        tokens=1,
        position_tokens=64,
        host_ns=4600 * US,
        host_layers=1,
        crossing_ns=400 * US,
        device_ns=2500 * US,
        device_layers=2,
        first_device_layer_ns=1200 * US,
        layers_behind_first=1,
        output_ns=1000 * US,
        watched_ns=8500 * US,
        whole_ns=(7700 * US,),
    )


def test_without_waiting_at_the_border_moving_counts_as_the_hosts() -> None:
    found = parts([dataclasses.replace(node, computed_ns=None) for node in WATCHED])
    assert found is not None
    assert (found.host_ns, found.crossing_ns) == (5000 * US, 0)


def test_marks_of_a_split_graph() -> None:
    assert marks(PLAIN) == MARKS


@pytest.mark.parametrize(
    "graph",
    [
        [],
        nodes(("a", True, 1), ("b", False, 1), ("result_output", False, 1)),  # names no layers
        [dataclasses.replace(node, on_host=True) for node in PLAIN],  # all here
        [dataclasses.replace(node, on_host=False) for node in PLAIN],  # all there
        PLAIN[: END + 1],  # nothing behind the layers
        [*PLAIN[:-1], dataclasses.replace(PLAIN[-1], on_host=True)],  # the output is here
        nodes(("l_out-0", False, 1), ("l_out-1", True, 1), ("result_output", False, 1)),  # back to the host
    ],
)
def test_what_does_not_go_from_here_to_there_has_no_marks(graph: list[ObservedNode]) -> None:
    assert marks(graph) is None


def test_a_layer_is_where_most_of_its_nodes_are() -> None:
    more_here = [*WATCHED[:4], ObservedNode("attn_out-1", True, SHORT), *WATCHED[4:]]
    found = parts(more_here, Marks(host_end=HOST_END + 1, first_end=FIRST_END + 1, last_end=END + 1))
    assert found is not None
    assert (found.host_layers, found.device_layers) == (2, 1)


@pytest.mark.parametrize(
    "watched",
    [
        [dataclasses.replace(node, on_host=False) for node in WATCHED],  # nothing here
        [*WATCHED[:-1], dataclasses.replace(WATCHED[-1], on_host=True)],  # the output is here
        WATCHED[: END + 1],  # no output layer
    ],
)
def test_what_is_no_plain_split_has_no_parts(watched: list[ObservedNode]) -> None:
    assert parts(watched) is None


# --- the timer -----------------------------------------------------------------------------------


def timer(room: int = 1000, deadline_ns: int = 10**15, **script: Any) -> tuple[ScriptedEngine, PartTimer]:
    clock = FakeClock()
    engine = ScriptedEngine(Script(gpu_layers=3, **script), clock.advance)
    engine.set_tokens(range(room))
    return engine, PartTimer(engine, settings(n_ubatch=128), clock.now_ns, deadline_ns)


def test_steps_come_behind_the_first_micro_batch_and_it_is_timed_itself() -> None:
    engine, asked = timer(depth_ns=0, decode_ns=5_000_000, crossing_ns=400_000, watching_ns=50_000)
    found = asked.measure(400, 1000)
    steps, prompts = [one for one in found if one.tokens == 1], [one for one in found if one.tokens > 1]
    # 192 rounds of four steps take 3.9 seconds, and eight times two prompts of 128 ms take 2.0.
    assert len(steps) == 192
    assert [one.tokens for one in prompts] == [128] * 8
    # Of 5 ms, moving takes 0.4; of the rest two layers here take 2 of 2.3 parts, two there 0.2 and 0.1 more
    # when they are watched.
    assert {(one.host_ns, one.host_layers, one.crossing_ns) for one in steps} == {(4_000_000, 2, 400_000)}
    assert {(one.device_ns, one.device_layers) for one in steps} == {(500_000, 2)}
    assert {one.output_ns for one in steps} == {200_000}
    assert {(one.first_device_layer_ns, one.layers_behind_first) for one in steps} == {(250_000, 1)}
    assert {(one.watched_ns, one.whole_ns) for one in steps} == {(5_100_000, (5_000_000,) * 2)}
    assert [one.position_tokens for one in steps] == list(range(129, 321))
    assert prompts[0].whole_ns == (128_000_000,)
    assert prompts[0].host_ns == pytest.approx((128_000_000 - 400_000) * 2 / 2.3, abs=1)
    # 128 tokens, one step to settle, and one for each of 192 rounds have to find room twice.
    assert engine.calls[0] == ("open_observed_context", 321)


def test_slow_ones_are_no_more_than_it_takes() -> None:
    _, asked = timer(decode_ns=300_000_000, prefill_ns=10_000_000)
    found = asked.measure(400, 1000)
    assert [one.tokens for one in found] == [1] * 5 + [128] * 2


def test_no_more_steps_than_there_is_room_for() -> None:
    _, asked = timer(room=136)
    assert len([one for one in asked.measure(400, 136) if one.tokens == 1]) == 7
    _, asked = timer(room=130)
    assert {one.tokens for one in asked.measure(400, 130)} == {128}


def test_when_the_time_is_over_it_ends() -> None:
    engine, asked = timer(deadline_ns=0)
    assert asked.measure(400, 1000) == ()
    # The prompt in each context, and a step to settle the graph.
    assert len([call for call in engine.calls if call[0] == "run"]) == 3


def test_a_failure_is_told() -> None:
    _, asked = timer(fail_at_position=0)
    with pytest.raises(EngineError):
        asked.measure(400, 1000)


def test_a_record_goes_through_json() -> None:
    found = parts()
    assert found is not None
    assert json.loads(json.dumps(dataclasses.asdict(found)))["host_layers"] == 1
