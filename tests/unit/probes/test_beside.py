"""A request that lets others have their turn takes as long as one that does not."""

from __future__ import annotations

import pytest
from fakes import FakeClock, Script, ScriptedEngine

from probes.beside import Beside
from probes.records import RequestSample

MS = 1_000_000


def request(turn_ns: int | None, pause_ns: int) -> tuple[list[RequestSample | None], ScriptedEngine]:
    """16 prompt tokens and nine more, steps of 5 ms; each pause takes `pause_ns`."""
    clock = FakeClock()
    engine = ScriptedEngine(Script(decode_ns=5 * MS, depth_ns=0, sample_ns=0), clock.advance)
    engine.set_tokens(range(64))
    found: list[RequestSample | None] = []
    for sample in Beside(engine, clock, range(64), None, 512).request(16, 0, 9, turn_ns):
        found.append(sample)
        clock.advance(pause_ns)
    return found, engine


@pytest.mark.parametrize(
    ("turn_ns", "turns"),
    [
        (None, 0),
        # tokenizing takes 2 ms, the prompt 16, the eight steps 40
        (100 * MS, 0),
        (20 * MS, 2),
        (1, 8),
    ],
)
def test_turns_are_no_part_of_its_time(turn_ns: int | None, turns: int) -> None:
    plain, _ = request(None, 0)
    found, engine = request(turn_ns, 1000 * MS)
    assert found[:-1] == [None] * turns
    assert found[-1] == plain[-1]
    steps = [call for call in engine.calls if call[0] == "run" and call[2] == 1]
    assert [start for _, start, _, _ in steps] == list(range(16, 24))
