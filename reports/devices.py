"""What computes here: the engine's devices with their rates, the drivers' GPUs, and ways to other machines.

Pure: rows for machines to read, and the same in words for a page.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from probes.records import (
    DeviceCeiling,
    DeviceFacts,
    EngineFacts,
    GpuFacts,
    GpuState,
    LinkFacts,
    MachineFacts,
)
from reports import units
from reports.local_gpus import pair_gpus
from reports.machine_advice import Advice, gpu_advice
from reports.parts import Column, Fact, Facts, Table
from reports.text import clean

_GHZ = 1e9
_FIGURES = {
    "memory_bytes_s": "bandwidth",
    "compute_flops_s": "matmul",
    "transfer_bytes_s": "from host",
    "operation_s": "operation",
}
"""Fields of a ceiling as the table's columns are called."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """A device of the engine, or a GPU that it can not use; None: not known."""

    device: str | None
    """The engine's name; None: this engine build can not use it."""
    description: str
    kind: str | None
    """cpu, gpu, igpu, accel ..."""
    memory_total_bytes: int | None
    memory_free_bytes: int | None
    memory_bytes_s: float | None
    """Weights read per second by large matrix-vector products, the fastest format."""
    compute_flops_s: float | None
    """Of large matrix-matrix products, the fastest format."""
    transfer_bytes_s: float | None
    """From the host."""
    operation_s: float | None
    """Cost of a graph operation that moves next to nothing."""
    threads: int | None
    """Of a CPU, while its rates were measured."""
    driver: str | None
    pci_id: str | None
    link_generation: int | None
    link_generation_max: int | None
    link_width: int | None
    link_width_max: int | None
    utilization: float | None
    clock_hz: float | None
    clock_max_hz: float | None
    throttle_reasons: str | None
    """Joined by spaces; empty: none."""
    memory_used_bytes: int | None
    """As the driver counts it."""
    shared_memory_bytes: int | None
    temperature_c: float | None
    temperature_limit_c: float | None
    power_w: float | None
    power_limit_w: float | None
    foreign_processes: int | None
    unknown: str
    """Why figures are missing or in doubt, `field: reason`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DevicesReport:
    """Everything that `llmphase devices` says."""

    engine: str
    """Version and commit, or why there is none."""
    rows: tuple[DeviceRow, ...]
    links: tuple[LinkFacts, ...]
    advice: tuple[Advice, ...]
    table: Table
    drivers: tuple[Facts, ...]
    """One list for each GPU that a driver reports."""
    links_table: Table | None
    doubts: tuple[str, ...]
    """Sentences on what could not be found out."""


def build_devices_report(
    machine: MachineFacts,
    engine: EngineFacts | None,
    *,
    ceilings: Sequence[DeviceCeiling] | None,
    links: Sequence[LinkFacts] = (),
    engine_problem: str | None = None,
) -> DevicesReport:
    """The report. `ceilings` None: they were not to be measured; `engine` None: it could not be loaded, for
    `engine_problem`."""
    devices = engine.devices if engine is not None else ()
    pairs = pair_gpus(devices, machine.gpus)
    states = {state.index: state for state in machine.gpu_states}
    rates = {ceiling.device: ceiling for ceiling in ceilings or ()}
    rows = [_row(device, rates.get(device.name), pairs.get(device.name), states) for device in devices]
    used = {gpu.index for gpu in pairs.values()}
    rows += [_row(None, None, gpu, states) for gpu in machine.gpus if gpu.index not in used]
    names = {gpu.index: name for name, gpu in pairs.items()}
    return DevicesReport(
        engine=_engine(engine, engine_problem),
        rows=tuple(rows),
        links=tuple(links),
        advice=gpu_advice(machine, engine, engine_problem),
        table=_table(rows, is_measured=ceilings is not None),
        drivers=tuple(_driver(gpu, states.get(gpu.index), names.get(gpu.index)) for gpu in machine.gpus),
        links_table=_links(links),
        doubts=tuple(_doubts(machine, rates, links)),
    )


def _engine(engine: EngineFacts | None, problem: str | None) -> str:
    if engine is None:
        return f"the engine can not be loaded: {clean(problem or 'no reason was given')}"
    return f"{clean(engine.version)} ({clean(engine.commit or 'commit unknown')})"


# --- rows ----------------------------------------------------------------------------------------


def _row(
    device: DeviceFacts | None,
    ceiling: DeviceCeiling | None,
    gpu: GpuFacts | None,
    states: Mapping[int, GpuState],
) -> DeviceRow:
    state = states.get(gpu.index) if gpu is not None else None
    described = (device.description if device else "") or (gpu.name if gpu else "")
    reasons = state.throttle_reasons if state else None
    return DeviceRow(
        device=clean(device.name, limit=80) if device else None,
        description=clean(described, limit=120),
        kind=device.kind if device else None,
        memory_total_bytes=device.memory_total_bytes if device else gpu.memory_total_bytes if gpu else None,
        memory_free_bytes=device.memory_free_bytes if device else None,
        memory_bytes_s=ceiling.memory_bytes_s if ceiling else None,
        compute_flops_s=ceiling.compute_flops_s if ceiling else None,
        transfer_bytes_s=ceiling.transfer_bytes_s if ceiling else None,
        operation_s=ceiling.operation_s if ceiling else None,
        threads=ceiling.threads if ceiling else None,
        driver=clean(gpu.driver, limit=60) if gpu and gpu.driver else None,
        pci_id=gpu.pci_id if gpu else device.pci_id if device else None,
        link_generation=gpu.link_generation if gpu else None,
        link_generation_max=gpu.link_generation_max if gpu else None,
        link_width=gpu.link_width if gpu else None,
        link_width_max=gpu.link_width_max if gpu else None,
        utilization=state.utilization if state else None,
        clock_hz=state.clock_hz if state else None,
        clock_max_hz=state.clock_max_hz if state else None,
        throttle_reasons=None if reasons is None else " ".join(reasons),
        memory_used_bytes=state.memory_used_bytes if state else None,
        shared_memory_bytes=state.shared_memory_bytes if state else None,
        temperature_c=state.temperature_c if state else None,
        temperature_limit_c=gpu.temperature_limit_c if gpu else None,
        power_w=state.power_w if state else None,
        power_limit_w=gpu.power_limit_w if gpu else None,
        foreign_processes=state.foreign_processes if state else None,
        unknown="; ".join(f"{name}: {clean(why)}" for name, why in ceiling.unknown.items())
        if ceiling
        else "",
    )


# --- in words ------------------------------------------------------------------------------------


def _table(rows: Sequence[DeviceRow], *, is_measured: bool) -> Table:
    columns = (
        Column(title="device", numeric=False),
        Column(title="free"),
        Column(title="memory", wide=True),
        Column(title="bandwidth"),
        Column(title="matmul"),
        Column(title="from host"),
        Column(title="operation", wide=True),
    )
    notes = () if is_measured else ("Rates were not to be measured (--no-measure).",)
    return Table(
        title="Devices", columns=columns, rows=tuple(_cells(row, is_measured) for row in rows), notes=notes
    )


def _cells(row: DeviceRow, is_measured: bool) -> tuple[str, ...]:
    name = f"{row.device} {row.description}" if row.device else f"{row.description} (not usable)"
    missing = units.UNKNOWN if is_measured and row.device else "-"
    host = row.kind == "cpu"
    return (
        name,
        _or(row.memory_free_bytes, units.size, "-" if row.device is None else units.UNKNOWN),
        units.size(row.memory_total_bytes),
        _or(row.memory_bytes_s, lambda rate: f"{units.size(rate)}/s", missing),
        _or(row.compute_flops_s, units.flop_rate, missing),
        _or(row.transfer_bytes_s, lambda rate: f"{units.size(rate)}/s", "-" if host else missing),
        _or(row.operation_s, units.duration, missing),
    )


def _or(value: float | None, write: Callable[[float], str], missing: str) -> str:
    return missing if value is None else write(value)


def _driver(gpu: GpuFacts, state: GpuState | None, device: str | None) -> Facts:
    facts = [
        Fact(name="driver", value=clean(gpu.driver) if gpu.driver else units.UNKNOWN),
        Fact(name="engine device", value=clean(device) if device else "none: this engine can not use it"),
        Fact(name="PCIe link", value=_link(gpu)),
    ]
    if state is not None:
        facts += _state_facts(gpu, state)
    return Facts(title=clean(gpu.name, limit=60), facts=tuple(facts))


def _link(gpu: GpuFacts) -> str:
    """`generation 1 of 4 (it rises under load), 8 of 16 lanes`."""
    if gpu.link_generation is None and gpu.link_width is None:
        return units.unknown("the driver does not tell")
    parts = []
    if gpu.link_generation is not None:
        rises = gpu.link_generation_max is not None and gpu.link_generation < gpu.link_generation_max
        parts.append(
            f"generation {_of(gpu.link_generation, gpu.link_generation_max)}"
            f"{' (it rises under load)' if rises else ''}"
        )
    if gpu.link_width is not None:
        parts.append(f"{_of(gpu.link_width, gpu.link_width_max)} lanes")
    return ", ".join(parts)


def _of(now: int, most: int | None) -> str:
    return f"{now} of {most}" if most is not None else str(now)


def _state_facts(gpu: GpuFacts, state: GpuState) -> Iterator[Fact]:
    clock, highest = state.clock_hz, state.clock_max_hz
    if clock is not None:
        of = f" of {highest / _GHZ:.2f}" if highest else ""
        yield Fact(name="clock", value=f"{clock / _GHZ:.2f}{of} GHz")
    if state.throttle_reasons is not None:
        yield Fact(name="held down by", value=", ".join(state.throttle_reasons) or "nothing")
    if state.utilization is not None:
        yield Fact(name="busy", value=units.percent(state.utilization))
    if state.memory_used_bytes is not None:
        total = units.size(state.memory_total_bytes)
        yield Fact(name="memory in use", value=f"{units.size(state.memory_used_bytes)} of {total}")
    if state.shared_memory_bytes is not None:
        yield Fact(name="system memory in use", value=units.size(state.shared_memory_bytes))
    if state.temperature_c is not None:
        yield Fact(name="temperature", value=_figure(state.temperature_c, gpu.temperature_limit_c, "°C"))
    if state.power_w is not None:
        yield Fact(name="power", value=_figure(state.power_w, gpu.power_limit_w, "W"))
    count = state.foreign_processes
    yield Fact(
        name="other processes",
        value=units.unknown("the driver does not tell") if count is None else str(count),
    )


def _figure(now: float, limit: float | None, unit: str) -> str:
    return f"{now:.0f} {unit}" if limit is None else f"{now:.0f} of {limit:.0f} {unit}"


def _links(links: Sequence[LinkFacts]) -> Table | None:
    if not links:
        return None
    return Table(
        title="Ways to other machines",
        columns=(
            Column(title="server", numeric=False),
            Column(title="round trip"),
            Column(title="to it"),
            Column(title="from it"),
        ),
        rows=tuple(
            (
                clean(link.server, limit=80),
                units.duration(link.round_trip_s),
                _or(link.to_bytes_s, lambda rate: f"{units.size(rate)}/s", units.UNKNOWN),
                _or(link.from_bytes_s, lambda rate: f"{units.size(rate)}/s", units.UNKNOWN),
            )
            for link in links
        ),
    )


def _doubts(
    machine: MachineFacts, ceilings: Mapping[str, DeviceCeiling], links: Sequence[LinkFacts]
) -> Iterator[str]:
    for name, ceiling in ceilings.items():
        reasons = "; ".join(f"{_FIGURES.get(field, field)}: {why}" for field, why in ceiling.unknown.items())
        if reasons:
            yield clean(f"{name}: not known in all formats, or in doubt: {reasons}", limit=600)
    for link in links:
        for field, reason in link.unknown.items():
            yield f"{clean(link.server, limit=80)}: {field}: {clean(reason)}"
    if "gpu_names" in machine.unknown and not machine.gpus:
        yield f"No GPU's driver was read: {clean(machine.unknown['gpu_names'])}."
