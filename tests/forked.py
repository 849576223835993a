"""The command in a fork of this process, where all that it imports is there already: ten times as fast as a
new interpreter, and as far apart from the test. Linux and macOS alone.

What it does is what `llmphase` does, from `profiler_cli.entry.main` on; beside its output stand the codes of
all errors that it made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from probes.errors import LlmphaseError
from profiler_cli import app, entry, measuring
from reports import report

_PRELOADED = (measuring, report)
"""Modules that commands import when they need them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one command did."""

    code: int | None
    """None: it did not end in time."""
    output: bytes
    errors: bytes
    reasons: tuple[str, ...]
    """Codes of the errors made on the way, those that cost nothing included."""
    wall_s: float
    memory_bytes: int
    """Peak resident memory of the command and of the processes that it waited for."""

    @property
    def said(self) -> str:
        """Standard error."""
        return self.errors.decode("utf-8", "replace")


class Forks:
    """Runs commands one after the other. `folder` holds their output; `environment` is all that they get."""

    @classmethod
    def in_folder(cls, folder: Path) -> Forks:
        """Home, saved runs and caches are in that folder; commands start there."""
        places = {"HOME": ".", "LLMPHASE_DATA_DIR": "data", "LLMPHASE_CACHE_DIR": "cache"}
        variables = {name: str(folder / place) for name, place in places.items()}
        return cls(folder, {"PATH": os.environ["PATH"], **variables})

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._environment = {"COLUMNS": "80", "PYTHONPATH": str(Path(__file__).parent), **environment}
        typer.main.get_command = functools.cache(typer.main.get_command)
        with contextlib.suppress(LlmphaseError):
            app.run(["profile", str(folder / "absent.gguf")])  # what this imports no fork has to

    def run(
        self,
        arguments: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        limit_bytes: int | None = None,
        longest_s: float = 60.0,
        without: Sequence[str] = (),
        **extra: str,
    ) -> Outcome:
        """Run one command; `limit_bytes` bounds its address space, modules named in `without` are not
        installed for it, `extra` adds to its environment."""
        for name in ("output", "errors", "reasons"):
            (self.folder / name).write_bytes(b"")
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            sys.modules.update(dict.fromkeys(without))  # type: ignore[arg-type]
            self._command([str(one) for one in arguments], cwd, limit_bytes, extra)
        code, usage = _wait(pid, began + longest_s)
        return Outcome(
            code=code,
            output=(self.folder / "output").read_bytes(),
            errors=(self.folder / "errors").read_bytes(),
            reasons=tuple((self.folder / "reasons").read_text().split()),
            wall_s=time.monotonic() - began,
            memory_bytes=usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        )

    def _command(
        self, arguments: list[str], cwd: Path | None, limit_bytes: int | None, extra: dict[str, str]
    ) -> None:
        """The child: never returns."""
        code: object = 1
        try:
            os.setsid()
            self._take_streams()
            self._record_reasons()
            os.chdir(cwd or self.folder)
            os.environ.clear()
            os.environ.update(self._environment | extra)
            sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
            if limit_bytes is not None and sys.platform.startswith("linux"):  # elsewhere it is none
                resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
            sys.argv = ["llmphase", *arguments]
            entry.main()
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
            os._exit(code if isinstance(code, int) else 1)

    def _take_streams(self) -> None:
        """Also where a test's own streams are not those of the process."""
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "output"), (2, "errors")):
            os.dup2(os.open(self.folder / name, os.O_WRONLY | os.O_TRUNC), number)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
            for number, mode, errors in ((0, "r", "strict"), (1, "w", "strict"), (2, "w", "backslashreplace"))
        )

    def _record_reasons(self) -> None:
        file = os.open(self.folder / "reasons", os.O_WRONLY | os.O_APPEND)
        plain = LlmphaseError.__init__

        def recording(self: LlmphaseError, *arguments: Any, **keywords: Any) -> None:
            plain(self, *arguments, **keywords)
            os.write(file, f"{self.reason}\n".encode())

        LlmphaseError.__init__ = recording  # type: ignore[method-assign]


def _wait(pid: int, end: float) -> tuple[int | None, resource.struct_rusage]:
    while time.monotonic() < end:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), usage
        time.sleep(0.002)
    os.killpg(pid, signal.SIGKILL)
    return None, os.wait4(pid, 0)[2]
