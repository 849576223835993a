"""The report of a checkup: machine, engine and checks, in words and as data."""

from __future__ import annotations

import dataclasses

from probes.records import Checkup, DeviceFacts, EngineFacts, MachineFacts
from reports.checkup import Check, check_machine, is_fine
from reports.machine_advice import Advice, advise
from reports.parts import Column, Fact, Facts, Table
from reports.text import clean
from reports.units import size, unknown


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckupReport:
    """Everything that `llmphase doctor` says."""

    machine: MachineFacts
    engine: EngineFacts | None
    facts: Checkup
    advice: tuple[Advice, ...]
    checks: tuple[Check, ...]
    parts: tuple[Facts, ...]
    """Machine and engine in words."""
    table: Table

    @property
    def is_fine(self) -> bool:
        """Whether nothing needs fixing."""
        return is_fine(self.checks)


def build_checkup_report(
    machine: MachineFacts, engine: EngineFacts | None, facts: Checkup, engine_problem: str | None = None
) -> CheckupReport:
    """The report. `engine` None: it could not be loaded, for `engine_problem`."""
    checks = check_machine(machine, engine, facts, engine_problem)
    parts = (_machine(machine), *(() if engine is None else (_engine(engine),)))
    return CheckupReport(
        machine=machine,
        engine=engine,
        facts=facts,
        advice=advise(machine, engine, engine_problem),
        checks=checks,
        parts=parts,
        table=_table(checks),
    )


def _table(checks: tuple[Check, ...]) -> Table:
    titles = ("", "check", "what was found, and what to do")
    return Table(
        title="Checks",
        columns=tuple(Column(title=title, numeric=False) for title in titles),
        rows=tuple((check.status, check.code, _found(check)) for check in checks),
        notes=("Nothing needs fixing.",) if is_fine(checks) else (),
    )


def _found(check: Check) -> str:
    return check.text if check.fix is None else f"{check.text}: {check.fix}"


def _machine(machine: MachineFacts) -> Facts:
    missing = {name: unknown(clean(reason)) for name, reason in machine.unknown.items()}
    memory = f"{size(machine.memory_available_bytes)} available of {size(machine.memory_bytes)}"
    rows = [
        ("system", machine.os),
        ("python", machine.python),
        ("cpu", machine.cpu_name or missing.get("cpu_name", "unknown")),
        ("usable cores", f"{machine.usable_cpus} ({machine.usable_cpus_reason})"),
        ("memory", memory),
        ("gpus", ", ".join(machine.gpu_names) or missing.get("gpu_names", "none")),
    ]
    return Facts(title="Machine", facts=tuple(Fact(name=name, value=clean(value)) for name, value in rows))


def _engine(engine: EngineFacts) -> Facts:
    abilities = {
        "mmap": engine.supports_mmap,
        "mlock": engine.supports_mlock,
        "remote devices": engine.supports_rpc,
    }
    rows = [
        ("version", engine.version if engine.commit is None else f"{engine.version} ({engine.commit})"),
        *((f"device {device.name}", _device(device)) for device in engine.devices),
        ("offload", _offload(engine)),
        *((name, "yes" if able else "no") for name, able in abilities.items()),
        ("features", _features(engine.system_info)),
    ]
    return Facts(
        title="Engine", facts=tuple(Fact(name=clean(name), value=clean(value)) for name, value in rows)
    )


def _offload(engine: EngineFacts) -> str:
    """Where layers can go. The engine's own flag alone would mislead: it is set by remote devices too."""
    names = [device.name for device in engine.devices if device.kind in ("gpu", "igpu")]
    if names:
        return f"layers can be placed on {', '.join(names)}"
    return "to remote devices only" if engine.supports_rpc else "none: the CPU does all"


def _device(device: DeviceFacts) -> str:
    memory = f"{size(device.memory_free_bytes)} free of {size(device.memory_total_bytes)}"
    return f"{device.description} ({device.kind}), {memory}"


def _features(system_info: str) -> str:
    """The engine's `CPU : AVX2 = 1 | FMA = 1 | ` without the signs."""
    return ", ".join(part.strip().removesuffix(" = 1") for part in system_info.split("|") if part.strip())
