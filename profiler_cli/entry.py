"""Where the program begins: little is imported before interruptions are caught."""

from __future__ import annotations

import io
import os
import signal
import sys
from types import FrameType

from probes.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_UNMEASURED, EXIT_USAGE, LlmphaseError
from profiler_cli.streams import OutputClosedError, discard_output, say


def main() -> None:
    """Run the program and end with its exit code; every error is one line on standard error."""
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        _make_output_forgiving()
        code = _run()
    except KeyboardInterrupt:
        say("llmphase: interrupted")
        code = EXIT_INTERRUPTED
    sys.exit(code)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """A cancelled CI job sends SIGTERM: what was measured is saved then too."""
    raise KeyboardInterrupt


def _make_output_forgiving() -> None:
    """Libraries print, too: what an encoding lacks becomes `?`, and a width that is no number is no width."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    columns = os.environ.get("COLUMNS")
    if columns is not None and not (columns.isascii() and columns.isdigit()):
        del os.environ["COLUMNS"]


def _run() -> int:
    try:
        from profiler_cli.app import run

        return run(sys.argv[1:])
    except OutputClosedError:
        return EXIT_DONE
    except LlmphaseError as error:
        say(f"llmphase: {error}")
        return error.exit_code
    except BrokenPipeError:
        discard_output()
        return EXIT_DONE
    except OSError as error:
        discard_output()
        where = "" if error.filename is None else f": {str(error.filename)[:200]}"
        say(f"llmphase: the system refused ({error.strerror or error}){where}; check the name and its rights")
        return EXIT_USAGE if where else EXIT_UNMEASURED
