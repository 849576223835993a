"""`llmphase doctor`: what the installed engine and this machine can do, and what to change."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from probes.errors import EXIT_GATE, LlmphaseError
from profiler_cli.streams import show_line

if TYPE_CHECKING:
    from probes.records import DeviceFacts, EngineFacts, MachineFacts
    from reports.machine_advice import Advice

SCHEMA_VERSION = 1


class DoctorFormat(str, enum.Enum):
    """How the findings are written."""

    TERMINAL = "terminal"
    JSON = "json"


def doctor(
    form: Annotated[DoctorFormat, typer.Option("--format", help="terminal or json.")] = DoctorFormat.TERMINAL,
) -> None:
    """Check what the installed engine and this machine can do.

    Ends with exit code 1 when something needs fixing.
    """
    from probes.inquiries import read_engine_facts
    from probes.machine import read_machine_facts
    from reports.machine_advice import advise

    machine = read_machine_facts()
    engine, problem = None, None
    try:
        engine = read_engine_facts()
    except LlmphaseError as error:
        problem = str(error)
    found = advise(machine, engine, problem)
    write = _write_json if form is DoctorFormat.JSON else _write_text
    write(machine, engine, found)
    if any(advice.severity == "problem" for advice in found):
        raise typer.Exit(EXIT_GATE)


def _write_json(machine: MachineFacts, engine: EngineFacts | None, found: tuple[Advice, ...]) -> None:
    import json

    from probes.codec import encode

    document = {
        "schema_version": SCHEMA_VERSION,
        "machine": encode(machine),
        "engine": encode(engine),
        "advice": encode(found),
    }
    show_line(json.dumps(document, indent=2))


def _write_text(machine: MachineFacts, engine: EngineFacts | None, found: tuple[Advice, ...]) -> None:
    from profiler_cli.tables import aligned, shown

    show_line("Machine")
    show_line(aligned([(f"  {name}", shown(value)) for name, value in _machine_rows(machine)]))
    if engine is not None:
        show_line("\nEngine")
        show_line(aligned([(f"  {name}", shown(value)) for name, value in _engine_rows(engine)]))
    show_line("")
    for advice in found:
        show_line(shown(f"{advice.severity} {advice.code}: {advice.text}", limit=600))
        if advice.command is not None:
            show_line(f"  {advice.command}")
    if not any(advice.severity == "problem" for advice in found):
        show_line("Nothing needs fixing.")


def _machine_rows(machine: MachineFacts) -> list[tuple[str, str]]:
    from reports.units import size

    unknown = {name: f"unknown ({reason})" for name, reason in machine.unknown.items()}
    available, total = machine.memory_available_bytes, machine.memory_bytes
    rows = [
        ("system", machine.os),
        ("python", machine.python),
        ("cpu", machine.cpu_name or unknown.get("cpu_name", "unknown")),
        ("usable cores", f"{machine.usable_cpus} ({machine.usable_cpus_reason})"),
        ("memory", f"{size(available)} available of {size(total)}"),
        ("swap in use", size(machine.swap_used_bytes)),
        ("gpus", ", ".join(machine.gpu_names) or unknown.get("gpu_names", "none")),
    ]
    if machine.memory_limit_bytes is not None:
        rows.insert(5, ("memory limit", size(machine.memory_limit_bytes)))
    return rows


def _engine_rows(engine: EngineFacts) -> list[tuple[str, str]]:
    abilities = {
        "mmap": engine.supports_mmap,
        "mlock": engine.supports_mlock,
        "remote devices (RPC)": engine.supports_rpc,
    }
    return [
        ("version", engine.version if engine.commit is None else f"{engine.version} ({engine.commit})"),
        *((f"device {device.name}", _device(device)) for device in engine.devices),
        ("offload", _offload(engine)),
        *((name, "yes" if able else "no") for name, able in abilities.items()),
        ("features", _features(engine.system_info)),
    ]


def _offload(engine: EngineFacts) -> str:
    """Where layers can go. The engine's own flag alone would mislead: it is set by remote devices too."""
    names = [device.name for device in engine.devices if device.kind in ("gpu", "igpu")]
    if names:
        return f"layers can be placed on {', '.join(names)}"
    return "to remote devices only" if engine.supports_rpc else "none: the CPU does all"


def _device(device: DeviceFacts) -> str:
    from reports.units import size

    memory = f"{size(device.memory_free_bytes)} free of {size(device.memory_total_bytes)}"
    return f"{device.description} ({device.kind}), {memory}"


def _features(system_info: str) -> str:
    """The engine's `CPU : AVX2 = 1 | FMA = 1 | ` without the signs."""
    return ", ".join(part.strip().removesuffix(" = 1") for part in system_info.split("|") if part.strip())
