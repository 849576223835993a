"""What `llmphase devices` does, step by step."""

from __future__ import annotations

import dataclasses

from probes.errors import EXIT_DONE, EXIT_UNMEASURED, LlmphaseError
from probes.gpus import gpu_states, list_gpus
from probes.inquiries import measure_device_rates, measure_links, read_engine_facts
from probes.machine import default_threads, read_machine_facts
from probes.records import DeviceCeiling, EngineFacts, MachineFacts
from profiler_cli.console import note
from profiler_cli.options import FORMATS
from profiler_cli.output import Destination, deliver
from reports.devices import build_devices_report


def list_devices(
    servers: tuple[str, ...],
    *,
    threads: int | None,
    measure: bool,
    form: str | None,
    output: str | None,
    quiet: bool,
) -> int:
    """List and deliver; returns the exit code. What can not be used is in the report with its reason.

    Raises LlmphaseError where the report can not be written.
    """
    from reports.formats import DEVICES_FORMATS

    destination = Destination.choose(form, output, FORMATS)
    machine = read_machine_facts()
    links = measure_links(servers)
    usable = tuple(link.server for link in links if "server" not in link.unknown)
    engine, problem = _engine_facts(usable)
    ceilings: tuple[DeviceCeiling, ...] | None = None
    if measure and engine is not None:
        note("Measuring the devices, about 5 s the first time.", quiet=quiet)
        ceilings, machine = _measure(machine, engine, threads or default_threads(machine), usable, quiet)
    report = build_devices_report(machine, engine, ceilings=ceilings, links=links, engine_problem=problem)
    deliver(
        lambda form, style: DEVICES_FORMATS[form].render(report, style),
        destination,
        show_too=not quiet,
        quiet=quiet,
    )
    return EXIT_DONE if engine is not None and len(usable) == len(links) else EXIT_UNMEASURED


def _engine_facts(servers: tuple[str, ...]) -> tuple[EngineFacts | None, str | None]:
    try:
        return read_engine_facts(servers), None
    except LlmphaseError as error:
        return None, str(error)


def _measure(
    machine: MachineFacts, engine: EngineFacts, threads: int, servers: tuple[str, ...], quiet: bool
) -> tuple[tuple[DeviceCeiling, ...], MachineFacts]:
    """The rates, and the machine with what its GPUs do right after: an idle one lowers clock and link."""
    try:
        ceilings = measure_device_rates(machine, engine, threads, servers)
    except LlmphaseError as error:
        note(f"Warning: the rates could not be measured: {error}", quiet=quiet)
        ceilings = ()
    return ceilings, dataclasses.replace(machine, gpus=list_gpus().gpus, gpu_states=gpu_states())
