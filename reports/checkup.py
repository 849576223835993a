"""Judges a machine before measuring: one check an area, each ok, a note, a warning or unknown, with a fix.

A warning makes `llmphase doctor` end with exit code 1; a note explains a figure that might surprise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal

from probes.records import Checkup, EngineFacts, MachineFacts
from reports import cpu_features, units
from reports.machine_advice import Advice, advise
from reports.text import clean

Status = Literal["ok", "note", "warning", "unknown"]

BUSY_CPUS = 0.3
"""CPUs' worth of time of others from which on they disturb."""
BUSY_GPU = 0.15
NEAR_LIMIT_C = 10.0
"""Below the temperature at which a device slows down: a few minutes of load warm it by more."""
HOT_C = 85.0
"""Where a processor tells no limit: common ones slow down between 90 and 105 °C."""
THROTTLED = 0.05
SMALL_DISK_BYTES = 2**30


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One area of the machine, judged."""

    code: str = ""
    """The area, stable: `governor`, `battery`, ..."""
    status: Status
    text: str
    """What was seen, or why it can not be seen."""
    fix: str | None = None
    """What to do, in words."""
    command: str | None = None
    """A line to run that does it."""
    finding: str | None = None
    """A finer stable code, where the area has several: `memory-short`, ..."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """All that the checks look at."""

    machine: MachineFacts
    engine: EngineFacts | None
    facts: Checkup
    advice: Mapping[str, Advice]


def check_machine(
    machine: MachineFacts, engine: EngineFacts | None, facts: Checkup, engine_problem: str | None = None
) -> tuple[Check, ...]:
    """Every check, in a fixed order. Where the engine could not be loaded, `engine_problem` says why."""
    advice = {item.code: item for item in advise(machine, engine, engine_problem)}
    patient = Patient(machine=machine, engine=engine, facts=facts, advice=advice)
    return tuple(dataclasses.replace(judge(patient), code=code) for code, judge in _AREAS.items())


def is_fine(checks: tuple[Check, ...]) -> bool:
    """Whether nothing needs fixing."""
    return not any(check.status == "warning" for check in checks)


def _ok(text: str) -> Check:
    return Check(status="ok", text=text)


def _unknown(patient: Patient, field: str) -> Check:
    return Check(status="unknown", text=clean(patient.facts.unknown.get(field, "the system does not tell")))


def _advised(patient: Patient, codes: tuple[str, ...], ok: str) -> Check:
    """The first of these findings of `machine_advice`, else all is well."""
    for code in codes:
        if code in patient.advice:
            item = patient.advice[code]
            return Check(
                status="warning" if item.severity == "problem" else "note",
                text=clean(item.text, limit=600),
                command=item.command,
                finding=code,
            )
    return _ok(ok)


# --- engine --------------------------------------------------------------------------------------


def _engine(patient: Patient) -> Check:
    engine = patient.engine
    version = "" if engine is None else f"{clean(engine.version)} is usable"
    return _advised(patient, ("engine-unusable", "no-mmap"), version)


def _gpu_build(patient: Patient) -> Check:
    machine = patient.machine
    if patient.engine is None:
        return Check(status="unknown", text="the engine can not be loaded")
    if machine.gpu_names or any(device.kind in ("gpu", "igpu") for device in patient.engine.devices):
        return _advised(
            patient, ("gpu-unused-build", "gpu-not-visible"), "the engine uses this machine's GPU"
        )
    why = machine.unknown.get("gpu_names")
    return _advised(patient, ("gpu-unused-build",), f"no GPU is seen{f': {clean(why)}' if why else ''}")


def _build_features(patient: Patient) -> Check:
    if patient.engine is None:
        return Check(status="unknown", text="the engine can not be loaded")
    processor, built = patient.facts.cpu_features, patient.engine.system_info
    if processor is None:
        known = _advised(patient, ("cpu-build-basic",), "")
        return known if known.text else _unknown(patient, "cpu_features")
    lacking = cpu_features.lacking(built, processor)
    if lacking:
        return Check(
            status="warning",
            text=f"the engine is built for {', '.join(lacking)}, which this processor lacks: it may crash",
            fix="build the engine on this machine",
            finding="build-too-new",
        )
    essential, others = cpu_features.unused(built, processor)
    if essential or others:
        return Check(
            status="warning" if essential else "note",
            text=f"this processor has {', '.join((*essential, *others))}, which the engine is built without",
            fix="build the engine on this machine",
            command="pip install --force-reinstall --no-cache-dir --no-binary llama-cpp-python"
            " llama-cpp-python",
            finding="build-too-basic",
        )
    return _ok("the engine uses all the instruction sets it knows of this processor")


# --- clocks and power ----------------------------------------------------------------------------


def _governor(patient: Patient) -> Check:
    facts = patient.facts
    if facts.power_plan is not None:
        return _plan(facts.power_plan)
    if facts.governor is None:
        return _unknown(patient, "power_plan" if "power_plan" in facts.unknown else "governor")
    text = clean(facts.governor, limit=60)
    by_itself = any(name in (facts.clock_driver or "") for name in ("intel_pstate", "amd-pstate-epp"))
    saves = facts.energy_preference in ("power", "balance_power")
    if ("powersave" in facts.governor and not by_itself) or saves:
        detail = f", energy preference {clean(facts.energy_preference or '')}" if saves else ""
        return Check(
            status="warning",
            text=f"{text}{detail}: the clock is kept low",
            fix="choose performance while measuring",
            command="sudo cpupower frequency-set -g performance",
        )
    return _ok(text)


def _plan(plan: str) -> Check:
    if plan in ("power saver", "low power"):
        return Check(
            status="warning",
            text=f"the power plan is {plan}: clocks are kept low",
            fix="choose balanced or high performance in the system's power settings",
        )
    return _ok(f"the power plan is {plan}")


def _turbo(patient: Patient) -> Check:
    turbo = patient.facts.turbo
    if turbo is None:
        return _unknown(patient, "turbo")
    if turbo:
        return _ok("clocks above the nominal one are allowed")
    return Check(
        status="note",
        text="clocks above the nominal one are off: figures are steady and lower",
        fix="allow them in the firmware, or in /sys/devices/system/cpu",
    )


def _battery(patient: Patient) -> Check:
    on_battery = patient.facts.on_battery
    if on_battery is None:
        return _unknown(patient, "on_battery")
    if on_battery:
        return Check(status="warning", text="it runs on battery: clocks are held down", fix="plug it in")
    return _ok("on mains power")


def _heat(patient: Patient) -> Check:
    now, limit = patient.facts.temperature_c, patient.facts.temperature_limit_c
    hot_gpu = _hot_gpu(patient.machine)
    if hot_gpu is not None:
        return hot_gpu
    if now is None:
        return _unknown(patient, "temperature_c")
    edge = HOT_C if limit is None else limit - NEAR_LIMIT_C
    text = f"the processor has {now:.0f} °C" + ("" if limit is None else f" of {limit:.0f} °C")
    if now >= edge:
        return Check(
            status="warning",
            text=f"{text}: under load it will slow down",
            fix="let it cool, clean fans and vents, or use fewer threads",
        )
    return _ok(text)


def _hot_gpu(machine: MachineFacts) -> Check | None:
    limits = {gpu.index: gpu for gpu in machine.gpus}
    for state in machine.gpu_states:
        gpu = limits.get(state.index)
        held = [word for word in state.throttle_reasons or () if "thermal" in word or word == "hardware"]
        limit = gpu.temperature_limit_c if gpu else None
        near = None not in (state.temperature_c, limit) and (
            (state.temperature_c or 0.0) >= (limit or 0.0) - NEAR_LIMIT_C
        )
        if held or near:
            name = clean(gpu.name, limit=60) if gpu else "the GPU"
            what = f"is held down ({', '.join(held)})" if held else f"is near its limit of {limit:.0f} °C"
            return Check(status="warning", text=f"{name} {what}", fix="let it cool, clean fans and vents")
    return None


# --- others --------------------------------------------------------------------------------------


def _cpu_users(patient: Patient) -> Check:
    if "neighbours" in patient.facts.unknown:
        return _unknown(patient, "neighbours")
    busy = [one for one in patient.facts.neighbours if one.cpus > 0]
    total = sum(one.cpus for one in busy)
    if total < BUSY_CPUS:
        return _ok(f"other programs use {total:.1f} CPUs")
    names = ", ".join(f"{clean(one.name, limit=30)} {one.cpus:.1f}" for one in busy)
    return Check(
        status="warning",
        text=f"other programs use {total:.1f} CPUs ({names})",
        fix="close them while measuring",
    )


def _gpu_users(patient: Patient) -> Check:
    states = patient.machine.gpu_states
    if not states:
        return Check(
            status="unknown",
            text=clean(patient.machine.unknown.get("gpu_names", "no GPU's driver answers")),
        )
    busy = [state.utilization for state in states if state.utilization is not None]
    others = [state.foreign_processes for state in states if state.foreign_processes is not None]
    if busy and max(busy) >= BUSY_GPU:
        return Check(
            status="warning",
            text=f"a GPU is busy {units.percent(max(busy))} of the time already",
            fix="close what uses it (nvidia-smi, rocm-smi or radeontop names it)",
        )
    if sum(others):
        return Check(
            status="note",
            text=f"{sum(others)} other process{'' if sum(others) == 1 else 'es'} hold memory of a GPU",
            fix="close them where the model needs that memory",
        )
    return (
        _ok("no other work on the GPUs") if busy else Check(status="unknown", text="the driver tells no use")
    )


# --- limits --------------------------------------------------------------------------------------


def _quota(patient: Patient) -> Check:
    quota, stopped = patient.facts.cpu_quota, patient.facts.throttled_fraction
    if quota is None:
        return _ok("no CPU quota")
    text = f"a control group grants {quota:g} CPUs"
    if stopped is not None and stopped > THROTTLED:
        return Check(
            status="warning",
            text=f"{text} and stopped this group in {units.percent(stopped)} of its periods",
            fix="raise the quota, or use as many threads as it has whole CPUs",
        )
    return Check(status="note", text=f"{text}: more threads than that would be stopped")


def _container(patient: Patient) -> Check:
    kind, virtual = patient.facts.container, patient.facts.virtual_machine
    if kind is not None:
        return Check(
            status="note",
            text=f"in a container ({clean(kind, limit=30)}): its limits and the host's other work count",
        )
    if virtual is None:
        return _unknown(patient, "virtual_machine")
    if virtual:
        return Check(status="note", text="in a virtual machine: other guests of its host may take CPU time")
    return _ok("neither container nor virtual machine")


def _cores(patient: Patient) -> Check:
    machine = patient.machine
    ok = f"{machine.usable_cpus} cores are used by default ({clean(machine.usable_cpus_reason)})"
    return _advised(patient, ("cores-limited",), ok)


def _memory(patient: Patient) -> Check:
    machine = patient.machine
    if machine.memory_available_bytes is None:
        return Check(status="unknown", text=clean(machine.unknown.get("memory_available_bytes", "not told")))
    free, total = units.size(machine.memory_available_bytes), units.size(machine.memory_bytes)
    return _advised(patient, ("memory-short", "memory-limited"), f"{free} of {total} are available")


def _swap(patient: Patient) -> Check:
    if patient.machine.swap_used_bytes is None:
        return Check(status="unknown", text=clean(patient.machine.unknown.get("swap_used_bytes", "not told")))
    return _advised(patient, ("swap-in-use",), "none is in use")


def _disk(patient: Patient) -> Check:
    free = patient.facts.disk_free_bytes
    if free is None:
        return _unknown(patient, "disk_free_bytes")
    text = f"{units.size(free)} are free where runs are saved"
    if free < SMALL_DISK_BYTES:
        return Check(status="warning", text=text, fix="free some, or name another folder: LLMPHASE_DATA_DIR")
    return _ok(text)


def _pages(patient: Patient) -> Check:
    huge = patient.facts.huge_pages
    text = f"pages of {units.size(patient.facts.page_bytes)}"
    return _ok(text if huge is None else f"{text}, huge pages: {clean(huge, limit=20)}")


_AREAS: dict[str, Callable[[Patient], Check]] = {
    "engine": _engine,
    "gpu-build": _gpu_build,
    "build-features": _build_features,
    "governor": _governor,
    "turbo": _turbo,
    "battery": _battery,
    "heat": _heat,
    "cpu-users": _cpu_users,
    "gpu-users": _gpu_users,
    "cores": _cores,
    "cpu-quota": _quota,
    "container": _container,
    "memory": _memory,
    "swap": _swap,
    "disk": _disk,
    "page-size": _pages,
}
"""Code of each area and its judge, in the order in which they are said."""
