"""This machine's devices, served to others by the engine's own RPC server in a child process.

The server never returns and can not be asked to stop: ending its process is the only way. The child ends when
its standard input closes, so it never outlives the parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from probes.codec import decode, encode
from probes.engine import EngineError
from probes.errors import LlmphaseError, UnmeasurableError
from probes.records import DeviceFacts
from probes.rpc_protocol import REASON, Version, ask_version, split_address
from probes.worker_process import ENGINE_ENVIRONMENT, child_command

_START_S = 60.0
"""Drivers of devices may take long to begin."""
_POLL_S = 0.05
_END_S = 5.0
_ANY_ADDRESS = "0.0.0.0"


class RpcServer:
    """A running server. Use as a context manager: leaving it ends the child."""

    def __init__(self, address: str, *, threads: int, cache: Path | None) -> None:
        """Serve at `host:port`, an IPv4 address; `threads` count for a CPU device, `cache` is a folder in
        which large tensors are kept. Raises EngineError (`rpc`)."""
        _require_free(address)
        request = {"address": address, "threads": threads, "cache": None if cache is None else str(cache)}
        self.address = address
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        self._process = subprocess.Popen(
            child_command("probes.rpc_server", json.dumps(request)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | ENGINE_ENVIRONMENT,
        )
        try:
            self.devices = self._read_devices()
            self.version = self._wait_until_it_answers()
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> RpcServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def wait(self) -> NoReturn:
        """Serve on, until an exception (an interruption) comes. Raises EngineError when the server ends."""
        assert self._process.stdout is not None
        for _line in self._process.stdout:  # it reports each client; unread, its words would block it
            pass
        raise self._ended()

    def end(self) -> None:
        """End the server and with it the connections of its clients."""
        self._process.kill()
        self._process.wait(_END_S)
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def _read_devices(self) -> tuple[DeviceFacts, ...]:
        """The child's first line: what it serves, or why it can not."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        told = json.loads(line)
        if "problem" in told:
            raise EngineError(told["problem"], reason=told["reason"])
        return tuple(decode(DeviceFacts, device) for device in told["devices"])

    def _wait_until_it_answers(self) -> Version:
        host, port = split_address(self.address)
        asked = f"{'127.0.0.1' if host == _ANY_ADDRESS else host}:{port}"
        end_s = time.monotonic() + _START_S
        while True:
            if self._process.poll() is not None:
                raise self._ended()
            try:
                return ask_version(asked)
            except EngineError as error:
                if time.monotonic() > end_s:
                    raise UnmeasurableError(f"the server does not begin: {error}", reason=REASON) from error
            time.sleep(_POLL_S)

    def _ended(self) -> EngineError:
        code = self._process.wait(_END_S)
        self._errors.seek(0)
        words = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        last = words[-1][:300] if words else "it gave no reason"
        return EngineError(f"the server on {self.address} ended (code {code}): {last}", reason=REASON)


def _require_free(address: str) -> None:
    """A server that can not have its address only ends, and another one there would answer in its place."""
    host, port = split_address(address)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        if sys.platform == "win32":
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
            trial.listen(1)
        except OSError as error:
            raise UnmeasurableError(
                f"{address} can not be served: {error.strerror or error}. Choose another address with --bind,"
                " or end what uses it",
                reason="address",
            ) from error


# The child


def main(arguments: Sequence[str] = ()) -> None:
    """Entry of the child process: `arguments` is one JSON object."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interruption means
    threading.Thread(target=_end_with_parent, daemon=True).start()
    request = json.loads(arguments[0])
    try:
        start, handles = _prepare()
    except LlmphaseError as error:
        _tell({"problem": str(error), "reason": error.reason})
        os._exit(1)
    cache = request["cache"]
    start(
        request["address"].encode(),
        None if cache is None else os.fsencode(cache),
        request["threads"],
        len(handles),
        ctypes.addressof(handles),
    )
    os._exit(1)  # it returns only where it could not begin


def _prepare() -> tuple[Any, ctypes.Array[ctypes.c_void_p]]:
    """The engine's function and the devices to serve: those beside the CPU, else the CPU."""
    from probes.ggml_devices import devices
    from probes.remote_devices import START_SERVER, rpc_function

    start = START_SERVER(rpc_function("ggml_backend_rpc_start_server"))
    every = devices()
    chosen = [d for d in every if d.facts.kind not in ("cpu", "accel")] or [
        d for d in every if d.facts.kind == "cpu"
    ]
    _tell({"devices": [encode(device.facts) for device in chosen]})
    return start, (ctypes.c_void_p * len(chosen))(*(device.handle for device in chosen))


def _tell(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)
