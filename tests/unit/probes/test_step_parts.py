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
from probes.step_parts import first_device_layer_end, last_layer_end, split_parts

US = 1000
SHORT = 1 * US
"""From one question to the next."""


def nodes(*described: tuple[str, bool | None, int]) -> list[ObservedNode]:
    return [ObservedNode(name, on_host, took_us * US) for name, on_host, took_us in described]


PLAIN = nodes(
    ("embd", True, 1),
    ("Kcur-0", True, 1),
    ("cache_k_l0 (view)", None, 1),
    ("l_out-0", True, 1),
    ("ffn_out-1", True, 5000),
    ("l_out-1", False, 1),
    ("Kcur-2", False, 1),
    ("Kcur-2 (view)", None, 1),
    ("l_out-2", False, 1),
    ("result_output", False, 3000),
)
END = 8
WAITING = [
    *PLAIN[:END],
    dataclasses.replace(PLAIN[END], took_ns=2500 * US),
    dataclasses.replace(PLAIN[9], took_ns=1000 * US),
]


def parts(plain: list[ObservedNode] = PLAIN, waiting: list[ObservedNode] = WAITING) -> StepParts | None:
    return split_parts(plain, waiting, END, tokens=1, position_tokens=64)


def test_the_output_layer_is_taken_off_the_devices_time() -> None:
    # Of layer 1 one node is here and one there: no more than half of it is here.
    assert parts() == StepParts(
        tokens=1,
        position_tokens=64,
        host_ns=5000 * US,
        host_layers=1,
        device_ns=2000 * US,
        device_layers=2,
        output_ns=1000 * US,
    )


def test_the_first_layer_there_tells_what_getting_there_costs() -> None:
    assert first_device_layer_end(PLAIN) == 5
    assert first_device_layer_end([dataclasses.replace(node, on_host=True) for node in PLAIN]) is None
    entering = [*PLAIN[:5], dataclasses.replace(PLAIN[5], took_ns=1200 * US)]
    found = split_parts(PLAIN, WAITING, END, entering=entering, tokens=1, position_tokens=64)
    assert found is not None
    assert found.first_device_layer_ns == 1200 * US
    assert found.device_ns == 2000 * US


def test_a_layer_is_where_most_of_its_nodes_are() -> None:
    more_here = [*PLAIN[:4], ObservedNode("attn_out-1", True, SHORT), *PLAIN[4:]]
    found = split_parts(more_here, [PLAIN[0], *WAITING], END + 1, tokens=1, position_tokens=0)
    assert found is not None
    assert (found.host_layers, found.device_layers) == (2, 1)


@pytest.mark.parametrize(
    ("plain", "waiting"),
    [
        ([dataclasses.replace(node, on_host=False) for node in PLAIN], WAITING),  # nothing here
        (PLAIN, [dataclasses.replace(node, on_host=True) for node in WAITING]),  # the output is here
        (PLAIN, WAITING[: END + 1]),  # no output layer
        (PLAIN, [*WAITING[:-1], dataclasses.replace(WAITING[-1], took_ns=4000 * US)]),  # more than there is
        ([], []),
    ],
)
def test_what_is_no_plain_split_has_no_parts(plain: list[ObservedNode], waiting: list[ObservedNode]) -> None:
    assert parts(plain, waiting) is None


def test_the_last_layer_ends_where_the_engine_says() -> None:
    assert last_layer_end(PLAIN) == END
    assert last_layer_end(PLAIN[: END + 1]) is None  # nothing comes behind it
    assert last_layer_end(nodes(("a", True, 1), ("result_output", True, 1))) is None


# --- the timer -----------------------------------------------------------------------------------


def timer(room: int = 1000, deadline_ns: int = 10**15, **script: Any) -> tuple[ScriptedEngine, PartTimer]:
    clock = FakeClock()
    engine = ScriptedEngine(Script(gpu_layers=3, **script), clock.advance)
    engine.set_tokens(range(room))
    return engine, PartTimer(engine, settings(n_ubatch=128), clock.now_ns, deadline_ns)


def test_steps_come_behind_the_first_micro_batch_and_it_is_timed_itself() -> None:
    engine, asked = timer(depth_ns=0, decode_ns=4_600_000)
    found = asked.measure(400, 1000)
    steps, prompts = [one for one in found if one.tokens == 1], [one for one in found if one.tokens > 1]
    # 97 steps of 4.6 ms take less than two seconds, 13 prompts of 128 ms do, too.
    assert len(steps) == 32
    assert [one.tokens for one in prompts] == [128] * 6
    # Of 4.6 ms, two layers here take 2 of 2.3 parts, two there 0.2 and the output 0.1.
    assert {(one.host_ns, one.host_layers) for one in steps} == {(4_000_000, 2)}
    assert {(one.device_ns, one.device_layers, one.output_ns) for one in steps} == {(400_000, 2, 200_000)}
    assert steps[0].position_tokens == 131
    assert {one.first_device_layer_ns for one in steps} == {200_000}
    assert {one.first_device_layer_ns for one in prompts} == {None}
    assert prompts[0].host_ns == pytest.approx(128 * 1_000_000 * 2 / 2.3, abs=1)
    assert engine.calls[0][0] == "open_observed_context"


def test_slow_ones_are_no_more_than_it_takes() -> None:
    _, asked = timer(decode_ns=300_000_000, prefill_ns=10_000_000)
    found = asked.measure(400, 1000)
    assert [one.tokens for one in found] == [1] * 8 + [128] * 2


def test_no_more_steps_than_there_is_room_for() -> None:
    _, asked = timer(room=136)
    assert len([one for one in asked.measure(400, 136) if one.tokens == 1]) == 2
    _, asked = timer(room=128)
    assert {one.tokens for one in asked.measure(400, 128)} == {128}


def test_when_the_time_is_over_it_ends() -> None:
    engine, asked = timer(deadline_ns=0)
    assert asked.measure(400, 1000) == ()
    assert len([call for call in engine.calls if call[0] == "run"]) == 3


def test_a_failure_is_told() -> None:
    _, asked = timer(fail_at_position=0)
    with pytest.raises(EngineError):
        asked.measure(400, 1000)


def test_a_record_goes_through_json() -> None:
    found = parts()
    assert found is not None
    assert json.loads(json.dumps(dataclasses.asdict(found)))["host_layers"] == 1
