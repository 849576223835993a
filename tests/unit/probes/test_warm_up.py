"""How often a fresh load evaluates before it counts as warm."""

from __future__ import annotations

import pytest
import sample_runs as sample
from fakes import FakeClock, Script, ScriptedEngine

from probes.messages import Load
from probes.worker import Worker

MS = 1_000_000


@pytest.mark.parametrize(
    ("decode_ms", "depth_ms", "calls"),
    [
        (5, 0, 2),  # settled at once
        (10, 10, 8),  # longer each time, and short
        (10, 300, 4),  # 10 + 310 + 610 + 910 ms: that is enough
        (900, 300, 2),  # never fewer than two
    ],
)
def test_until_two_calls_agree_or_enough_time_has_gone(decode_ms: int, depth_ms: int, calls: int) -> None:
    clock = FakeClock()
    script = Script(decode_ns=decode_ms * MS, depth_ns=depth_ms * MS)
    engine = ScriptedEngine(script, clock.advance)
    Worker(engine, clock, lambda _event: None).carry_out(
        Load(
            model=sample.model(),
            settings=sample.settings(),
            tokens="random",
            seed=0,
            max_tokens=64,
            warm_up=True,
        )
    )
    steps = [call for call in engine.calls if call[0] == "run"]
    assert len(steps) == 1 + calls  # the first touch, then these
