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
    steps = evaluations(Script(decode_ns=decode_ms * MS, depth_ns=depth_ms * MS))
    assert len(steps) == 1 + calls  # the first touch, then these


@pytest.mark.parametrize(("prefill_ms", "calls"), [(1, 2), (20, 1)])
def test_a_device_reads_a_micro_batch_once_where_that_takes_long(prefill_ms: int, calls: int) -> None:
    script = Script(backend="CUDA0", prefill_ns=prefill_ms * MS, depth_ns=0, chunk_tokens=2048)
    assert evaluations(script)[3:] == [64] * calls  # behind the first touch and two steps


def evaluations(script: Script) -> list[int]:
    """Tokens of each evaluation of a load, of a micro-batch of 64."""
    clock = FakeClock()
    engine = ScriptedEngine(script, clock.advance)
    Worker(engine, clock, lambda _event: None).carry_out(
        Load(
            model=sample.model(),
            settings=sample.settings(n_ubatch=64),
            tokens="random",
            seed=0,
            max_tokens=512,
            warm_up=True,
        )
    )
    return [call[2] for call in engine.calls if call[0] == "run"]
