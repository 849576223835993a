"""Single questions to a worker of its own: the engine's facts, a prompt's tokens, the devices' ceilings."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import TypeVar

from probes.ceiling_cache import CeilingCache, CeilingKey, is_worth_keeping
from probes.errors import LlmphaseError, UnmeasurableError
from probes.ggml_types import QUANTIZATIONS, TYPE_NUMBERS
from probes.matrix_shapes import matrix_shapes
from probes.messages import (
    AskFacts,
    CeilingsMeasured,
    Command,
    Facts,
    Failed,
    LinkMeasured,
    MeasureCeilings,
    MeasureLink,
    Prepare,
    Prepared,
    Quantize,
    Quantized,
    QuantizeProgress,
    Reserve,
    Reserved,
)
from probes.records import (
    DeviceCeiling,
    EngineFacts,
    GroupResult,
    LinkFacts,
    MachineFacts,
    MatrixShape,
    ModelFacts,
    Placement,
    Settings,
    WeightMatrices,
)
from probes.worker_process import WorkerProcess

E = TypeVar("E")

_ANSWER_TIMEOUT_S = 60.0
_BUDGET_S = 4.5
"""To measure one device: with the start of its process, under five seconds."""
_USUAL_FORMATS = ("Q4_K", "Q8_0", "F16")
"""What most models come in."""
_REPACKED = "CPU_REPACK"
"""Where the engine lays weights out for vector instructions, which it was built for: those of tile units,
which a machine may announce and not have, are used where the run used them."""
_USUAL_BATCH_TOKENS = 512
"""The engine's micro-batch where none is chosen."""


def read_engine_facts(servers: tuple[str, ...] = ()) -> EngineFacts:
    """The engine as installed, with the devices of remote `servers`, asked of a worker process: loading it
    may crash. Raises LlmphaseError."""
    return _ask(AskFacts(servers=servers), Facts, "the engine did not answer").engine


def measure_links(servers: Sequence[str]) -> tuple[LinkFacts, ...]:
    """The way to each RPC server, each measured in a worker process of its own. A server that can not be used
    has its reason in `unknown`."""
    return tuple(_measure_link(server) for server in dict.fromkeys(servers))


def _measure_link(server: str) -> LinkFacts:
    try:
        return _ask(MeasureLink(server=server), LinkMeasured, f"the way to {server} was not measured").link
    except LlmphaseError as error:
        return LinkFacts(
            server=server,
            round_trip_s=None,
            to_bytes_s=None,
            from_bytes_s=None,
            unknown={"server": f"{error.reason}: {error}"},
        )


def reserve(path: str, settings: Settings) -> tuple[Placement, ...]:
    """What a load would reserve for computing on each buffer, by the engine's own planning. Raises
    LlmphaseError."""
    command = Reserve(path=path, settings=settings)
    return _ask(command, Reserved, "the engine did not plan the load").placements


def prepare_prompt(path: str, prompt: str, *, system: str | None, chat: bool, prefix: str | None) -> Prepared:
    """Count a prompt's tokens in a worker process, with the vocabulary alone. Raises LlmphaseError."""
    command = Prepare(path=path, prompt=prompt, system=system, chat=chat, prefix=prefix)
    return _ask(command, Prepared, "the engine did not count the prompt's tokens")


def ceilings_budget_s(servers: tuple[str, ...]) -> float:
    """What measuring ceilings may take: seconds for the machine itself, and more for each server, to which
    weights have to get first."""
    return min(_BUDGET_S * (1 + 2 * len(servers)), _ANSWER_TIMEOUT_S / 2)


def weight_matrices(model: ModelFacts, quantizations: Sequence[str]) -> tuple[WeightMatrices, ...]:
    """The matrices of a model as it is, then as each of these quantizations (keys of QUANTIZATIONS) would
    make them, by the engine's own rules: which format a tensor gets depends on its name and its shape. One
    that the engine can not make is left out. Raises LlmphaseError."""
    own = WeightMatrices(quantization=None, shapes=matrix_shapes(model))
    if not quantizations:
        return (own,)
    with WorkerProcess() as worker:
        planned = [(name, _planned_types(worker, model, name)) for name in quantizations]
    return own, *(
        WeightMatrices(quantization=name, shapes=matrix_shapes(model, types))
        for name, types in planned
        if types is not None and set(types.values()) <= set(TYPE_NUMBERS)
    )


def _planned_types(worker: WorkerProcess, model: ModelFacts, quantization: str) -> dict[str, str] | None:
    """The format of each tensor that would change its own; None where the engine can not make it."""
    command = Quantize(
        source=model.path,
        target="",
        file_type=QUANTIZATIONS[quantization],
        threads=1,
        requantize=True,
        trial=True,
    )
    try:
        return _answer(worker, command, Quantized, "the engine did not plan the quantization").types
    except LlmphaseError:
        return None  # of this architecture it makes none: the remedy then knows the bytes alone


def measure_ceilings_of(
    group: GroupResult,
    matrices: Sequence[WeightMatrices],
    machine: MachineFacts,
    engine: EngineFacts,
) -> tuple[DeviceCeiling, ...]:
    """What the devices could do at most for a measured group, whose own matrices come first, from the cache
    or measured now. Raises LlmphaseError.
    """
    resolved = group.resolved
    if resolved is None:
        raise UnmeasurableError("the model was not loaded", reason="no-cell")
    buffers = tuple(place.buffer for place in resolved.placements if place.model_bytes)
    # More threads than cores wait for each other: what the cores could do is measured with as many.
    others = {resolved.threads_batch, max(resolved.threads, machine.usable_cpus)}
    command = MeasureCeilings(
        shapes=matrices[0].shapes,
        other_shapes=_not_in(matrices[0].shapes, matrices[1:]),
        other_threads=tuple(sorted(others - {resolved.threads})),
        threads=resolved.threads,
        batch_tokens=resolved.n_ubatch,
        weight_buffers=buffers,
        other_buffers=(*buffers, _REPACKED) if group.settings.repack else buffers,
        memory_bytes=machine.memory_available_bytes,
        servers=group.settings.rpc_servers,
        budget_s=min(
            ceilings_budget_s(group.settings.rpc_servers) * len(others | {resolved.threads}),
            _ANSWER_TIMEOUT_S / 2,
        ),
    )
    return _ceilings(command, machine, engine)


def _not_in(own: Sequence[MatrixShape], others: Sequence[WeightMatrices]) -> tuple[MatrixShape, ...]:
    """Shapes and formats of the others that the first has not, each once, in order."""
    found = {(one.rows, one.columns, one.weight_type): one for one in own}
    for other in others:
        for one in other.shapes:
            found.setdefault((one.rows, one.columns, one.weight_type), one)
    return tuple(found.values())[len(own) :]


def measure_device_rates(
    machine: MachineFacts, engine: EngineFacts, threads: int, servers: tuple[str, ...] = ()
) -> tuple[DeviceCeiling, ...]:
    """What the devices could do at most with weights of the usual formats, whatever the model; from the cache
    or measured now. Raises LlmphaseError."""
    command = MeasureCeilings(
        shapes=(),
        threads=threads,
        batch_tokens=_USUAL_BATCH_TOKENS,
        weight_buffers=(),
        memory_bytes=machine.memory_available_bytes,
        servers=servers,
        formats=_USUAL_FORMATS,
        budget_s=min(_BUDGET_S * max(1, len(engine.devices)), _ANSWER_TIMEOUT_S / 2),
    )
    return _ceilings(command, machine, engine)


def _ceilings(
    command: MeasureCeilings, machine: MachineFacts, engine: EngineFacts
) -> tuple[DeviceCeiling, ...]:
    key = CeilingKey(
        cpu_name=machine.cpu_name,
        usable_cpus=machine.usable_cpus,
        devices=tuple(f"{device.name} {device.description}" for device in engine.devices),
        engine_version=engine.version,
        engine_commit=engine.commit,
        asked=dataclasses.replace(command, memory_bytes=None, budget_s=0.0),
    )
    cache = CeilingCache()
    # Of another machine only the address is known: next time another one may answer there.
    kept = None if command.servers else cache.load(key)
    if kept is not None:
        return kept
    measured = _ask(command, CeilingsMeasured, "the ceilings were not measured").ceilings
    if is_worth_keeping(measured) and not command.servers:
        # What can not be kept is measured again next time: no reason to lose it now.
        with contextlib.suppress(UnmeasurableError):
            cache.save(key, measured)
    return measured


def _ask(command: Command, kind: type[E], problem: str) -> E:
    """One question to a worker of its own. Raises LlmphaseError."""
    with WorkerProcess() as worker:
        return _answer(worker, command, kind, problem)


def _answer(worker: WorkerProcess, command: Command, kind: type[E], problem: str) -> E:
    """A worker's answer to one question. Raises LlmphaseError."""
    worker.send(command)
    event = worker.receive(_ANSWER_TIMEOUT_S)
    while isinstance(event, QuantizeProgress):
        event = worker.receive(_ANSWER_TIMEOUT_S)
    if isinstance(event, kind):
        return event
    if isinstance(event, Failed):
        raise UnmeasurableError(event.message, reason=event.reason)
    raise UnmeasurableError(f"{problem} within {_ANSWER_TIMEOUT_S:.0f} s", reason="no-answer")
