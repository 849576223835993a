"""What `llmphase doctor` does, step by step."""

from __future__ import annotations

import sys

from probes import inquiries, machine
from probes.checkup import read_checkup
from probes.errors import EXIT_DONE, EXIT_GATE, LlmphaseError
from probes.run_files import runs_folder
from profiler_cli.console import style_of
from profiler_cli.streams import show


def check_up(form: str) -> int:
    """Look at the machine and the engine, say what is found; the exit code."""
    from reports.checkup_report import build_checkup_report
    from reports.formats import CHECKUP_FORMATS

    facts = machine.read_machine_facts()
    # Before the engine is asked: what its worker does is no work of others.
    checkup = read_checkup(runs_folder())
    engine, problem = None, None
    try:
        engine = inquiries.read_engine_facts()
    except LlmphaseError as error:
        problem = str(error)
    report = build_checkup_report(facts, engine, checkup, problem)
    show(CHECKUP_FORMATS[form].render(report, style_of(sys.stdout)))
    return EXIT_DONE if report.is_fine else EXIT_GATE
