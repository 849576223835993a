"""What `llmphase doctor --self-test` does, step by step."""

from __future__ import annotations

import sys

from probes.errors import EXIT_DONE, EXIT_GATE, UnmeasurableError
from probes.self_test import ROUNDS, measure_rounds
from profiler_cli.console import note, style_of
from profiler_cli.streams import is_live, show, write_error

_THREADS = 1
"""One thread waits for no other: the measuring is tested, not the machine's load."""


def check_self(form: str) -> int:
    """Measure, judge and say; the exit code. Raises LlmphaseError where it could not be measured."""
    from reports.formats.self_test_forms import FORMS
    from reports.self_test import judge

    note("Measuring small generated models whose work is known; this takes up to a minute.")
    try:
        rounds = measure_rounds(_THREADS, _show_round)
    except OSError as error:
        raise UnmeasurableError(
            f"the small models can not be written: {error.strerror or error}; set TMPDIR to a folder with"
            " 50 MB of room",
            reason="unwritable",
        ) from error
    finally:
        if is_live(sys.stderr):
            write_error("\r\x1b[2K")
    statements = judge(rounds)
    show(FORMS[form](statements, _THREADS, style_of(sys.stdout)))
    return EXIT_DONE if all(one.passed for one in statements) else EXIT_GATE


def _show_round(number: int) -> None:
    if is_live(sys.stderr):
        write_error(f"\r\x1b[2Kround {number + 1} of {ROUNDS}")
