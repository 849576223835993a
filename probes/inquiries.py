"""Single questions to a worker of its own: the engine's facts, a prompt's tokens, the devices' ceilings."""

from __future__ import annotations

import contextlib
from typing import TypeVar

from probes.ceiling_cache import CeilingCache, CeilingKey, is_worth_keeping
from probes.errors import UnmeasurableError
from probes.matrix_shapes import matrix_shapes
from probes.messages import (
    AskFacts,
    CeilingsMeasured,
    Command,
    Facts,
    Failed,
    MeasureCeilings,
    Prepare,
    Prepared,
)
from probes.records import DeviceCeiling, EngineFacts, GroupResult, MachineFacts
from probes.worker_process import WorkerProcess

E = TypeVar("E")

_ANSWER_TIMEOUT_S = 60.0


def read_engine_facts() -> EngineFacts:
    """The engine as installed, asked of a worker process: loading it may crash. Raises LlmphaseError."""
    return _ask(AskFacts(), Facts, "the engine did not answer").engine


def prepare_prompt(path: str, prompt: str, *, system: str | None, chat: bool, prefix: str | None) -> Prepared:
    """Count a prompt's tokens in a worker process, with the vocabulary alone. Raises LlmphaseError."""
    command = Prepare(path=path, prompt=prompt, system=system, chat=chat, prefix=prefix)
    return _ask(command, Prepared, "the engine did not count the prompt's tokens")


def measure_ceilings_of(
    group: GroupResult, machine: MachineFacts, engine: EngineFacts
) -> tuple[DeviceCeiling, ...]:
    """What the devices could do at most for a measured group, from the cache or measured now.

    Raises LlmphaseError.
    """
    resolved = group.resolved
    if resolved is None:
        raise UnmeasurableError("the model was not loaded", reason="no-cell")
    shapes = matrix_shapes(group.model)
    buffers = tuple(place.buffer for place in resolved.placements if place.model_bytes)
    key = CeilingKey(
        cpu_name=machine.cpu_name,
        usable_cpus=machine.usable_cpus,
        devices=tuple(f"{device.name} {device.description}" for device in engine.devices),
        engine_version=engine.version,
        engine_commit=engine.commit,
        threads=resolved.threads,
        batch_tokens=resolved.n_ubatch,
        weight_buffers=buffers,
        shapes=shapes,
    )
    cache = CeilingCache()
    kept = cache.load(key)
    if kept is not None:
        return kept
    command = MeasureCeilings(
        shapes=shapes,
        threads=resolved.threads,
        batch_tokens=resolved.n_ubatch,
        weight_buffers=buffers,
        memory_bytes=machine.memory_available_bytes,
    )
    measured = _ask(command, CeilingsMeasured, "the ceilings were not measured").ceilings
    if is_worth_keeping(measured):
        # What can not be kept is measured again next time: no reason to lose it now.
        with contextlib.suppress(UnmeasurableError):
            cache.save(key, measured)
    return measured


def _ask(command: Command, kind: type[E], problem: str) -> E:
    """One question to a worker of its own. Raises LlmphaseError."""
    with WorkerProcess() as worker:
        worker.send(command)
        event = worker.receive(_ANSWER_TIMEOUT_S)
    if isinstance(event, kind):
        return event
    if isinstance(event, Failed):
        raise UnmeasurableError(event.message, reason=event.reason)
    raise UnmeasurableError(f"{problem} within {_ANSWER_TIMEOUT_S:.0f} s", reason="no-answer")
