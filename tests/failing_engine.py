"""A scripted engine of which one call fails: LLMPHASE_FAIL=save=state makes `save` fail with that code."""

from __future__ import annotations

import os
from typing import NoReturn

import fakes

from probes.engine import EngineError


def create() -> tuple[fakes.ScriptedEngine, fakes.FakeClock]:
    engine, clock = fakes.scripted()
    method, _, reason = os.environ["LLMPHASE_FAIL"].partition("=")

    def fail(*_: object, **__: object) -> NoReturn:
        raise EngineError("it will not (scripted)", reason=reason)

    setattr(engine, method, fail)
    return engine, clock
