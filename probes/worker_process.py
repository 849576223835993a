"""The parent's end of one worker: start, send, receive, end."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
from typing import IO

from probes.cgroups import groups, memory_limit_bytes, oom_kills
from probes.errors import UnmeasurableError
from probes.messages import MAX_LINE_BYTES, Command, Event, ProtocolError, Quit, event_from_line, to_line

_BOOTSTRAP = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; import importlib, json; "
    "sys.path[:] = json.loads(sys.argv[1]); importlib.import_module(sys.argv[2]).main(sys.argv[3:])"
)
"""The child sees exactly the parent's import path, and never modules of the folder it is started in."""

ENGINE_ENVIRONMENT = {"GGML_NO_BACKTRACE": "1"}
"""Without it an abort of the engine starts a debugger, whose output hides the reason."""

_LAST_WORDS_BYTES = 4096
_SOURCE_FOLDER = re.compile(r"^\S*[/\\](?=[^/\\\s]+:\d+:)")
"""In front of an abort's place in the engine's source: of the machine that built it, no help to anybody."""
_REMOTE_WORDS = "Remote RPC server crashed"
_REMOTE_HINT = " (a remote device stopped answering: look after its `llmphase rpc-server`)"
_END_S = 5.0


class WorkerCrash(UnmeasurableError):
    """The worker ended without being asked to."""

    def __init__(self, message: str, *, signal_name: str | None) -> None:
        super().__init__(message, reason="crash")
        self.signal_name = signal_name


class WorkerProcess:
    """One child process running `probes.worker`. Use as a context manager: leaving it ends the child.

    Raises UnmeasurableError (`no-process`) where the system gives none.
    """

    def __init__(self) -> None:
        try:
            self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
            self._process = subprocess.Popen(
                child_command("probes.worker"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=os.environ | ENGINE_ENVIRONMENT,
            )
        except OSError as error:
            raise UnmeasurableError(
                f"the measuring process can not be started: {error.strerror or error}; look for full memory,"
                " a full temporary folder, or a limit on processes",
                reason="no-process",
            ) from error
        self._oom_kills = oom_kills(groups("memory"))
        self._events: queue.Queue[Event | ProtocolError | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the child has not ended yet."""
        return self._process.poll() is None

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def send(self, command: Command) -> None:
        """Give a command. Raises WorkerCrash when the child has gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(to_line(command))
            self._process.stdin.flush()
        except OSError as error:
            raise self._crash() from error

    def receive(self, timeout_s: float) -> Event | None:
        """The next event, or None when none came in time. Raises WorkerCrash or ProtocolError."""
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if event is None:
            raise self._crash()
        if isinstance(event, ProtocolError):
            raise event
        return event

    def end(self) -> None:
        """Ask the child to end, then make it end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(to_line(Quit()))
            self._process.stdin.close()
        except OSError:
            pass  # it has gone already, which is what is wanted
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(_END_S)
        if not self._reader.is_alive():
            self._process.stdout.close()
        self._errors.close()

    def kill(self) -> None:
        """End the child at once. One that the system itself holds, in a driver or at a dead network drive,
        ends when it lets go: nobody waits for that."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while line := self._process.stdout.readline(MAX_LINE_BYTES + 1):
                self._events.put(event_from_line(line))
        except ProtocolError as error:
            self._events.put(error)
        finally:
            self._events.put(None)

    def _crash(self) -> WorkerCrash:
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._process.returncode or -signal.SIGKILL
        name = _signal_name(-code) if code < 0 else None
        how = f"was ended by {name}" if name else f"ended with code {code}"
        words = self._last_words()
        hint = _REMOTE_HINT if _REMOTE_WORDS in words else self._hint(name)
        return WorkerCrash(
            f"the measuring process {how}{hint}" + (f"; its last words: {words}" if words else ""),
            signal_name=name,
        )

    def _hint(self, signal_name: str | None) -> str:
        if signal_name == "SIGKILL":
            folders = groups("memory")
            kills = oom_kills(folders)
            if self._oom_kills is not None and kills is not None and kills > self._oom_kills:
                limit = memory_limit_bytes(folders)
                allowed = "" if limit is None else f"; its control group may use {limit / 2**30:.2f} GiB"
                return f" (the system killed it for lack of memory{allowed})"
            return " (killed from outside: most often the system ran out of memory)"
        if signal_name in ("SIGSEGV", "SIGILL", "SIGBUS", "SIGABRT", "SIGFPE"):
            return " (the engine crashed)"
        return ""

    def _last_words(self) -> str:
        if self._errors.closed:
            return ""
        size = self._errors.seek(0, 2)
        self._errors.seek(max(0, size - _LAST_WORDS_BYTES))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return _SOURCE_FOLDER.sub("", lines[-1])[:300] if lines else ""


def child_command(module: str, *arguments: str) -> list[str]:
    """The command that runs `main(arguments)` of one of our modules in a process of its own."""
    path = json.dumps([entry for entry in sys.path if entry])
    return [sys.executable, "-c", _BOOTSTRAP, path, module, *arguments]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
