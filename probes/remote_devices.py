"""Devices of other machines: llama.cpp's RPC servers, added to this process."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from probes.engine import EngineError
from probes.ggml_devices import Device, devices
from probes.ggml_library import ggml
from probes.rpc_protocol import INSTALL, REASON, Version, end_when_silent, require_version, rpc_error

START_SERVER = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p
)
"""`ggml_backend_rpc_start_server`: address, cache folder or null, threads, number of devices, devices."""
_ADD_SERVER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
_NO_ADDRESS = b"nowhere"
_VERSION = re.compile(r"RPC server v(\d+)\.(\d+)\.(\d+)")

_connections: dict[str, int] = {}
"""Servers added in this process, each with a backend that keeps one connection to it open."""


def add_servers(servers: Sequence[str]) -> None:
    """Make the devices of these servers (`host:port`) devices of this process; what was added before stays.

    Each server is asked for its version first: the engine would end the process where something is wrong.
    A server works for one client at a time, so it belongs to this process until that ends. Raises EngineError
    (`rpc`).
    """
    new = [server for server in dict.fromkeys(servers) if server not in _connections]
    if not new:
        return
    add = _ADD_SERVER(rpc_function("ggml_backend_rpc_add_server"))
    own = build_version()
    for server in new:
        require_version(server, own)
        _connections[server] = _add(server, add)
        end_when_silent(server)


def devices_of(server: str) -> tuple[Device, ...]:
    """The devices that a server which was added brought."""
    return tuple(
        device
        for device in devices()
        if device.facts.name.startswith("RPC") and device.facts.description == server
    )


def rpc_function(name: str) -> int:
    """The address of a function of the engine's RPC part. Raises EngineError where the build has none."""
    library = ggml()
    registry = library.ggml_backend_reg_by_name(b"RPC")
    address: int | None = registry and library.ggml_backend_reg_get_proc_address(registry, name.encode())
    if not address:
        raise EngineError(
            f"this engine build has no remote devices (RPC); install one that has: {INSTALL}", reason=REASON
        )
    return address


def build_version() -> Version | None:
    """The protocol version of this build, which it tells only when it starts a server: so one is started at
    an address that is none, and nothing ever listens. None where its words can not be caught (Windows)."""
    if sys.platform == "win32":
        return None
    start = START_SERVER(rpc_function("ggml_backend_rpc_start_server"))
    one_device = (ctypes.c_void_p * 1)(next(d.handle for d in devices() if d.facts.kind == "cpu"))
    flush: Any = ctypes.CDLL(None).fflush
    with tempfile.TemporaryFile() as caught:
        usual = os.dup(1)
        flush(None)
        os.dup2(caught.fileno(), 1)
        try:
            start(_NO_ADDRESS, None, 1, 1, ctypes.addressof(one_device))
            flush(None)
        finally:
            os.dup2(usual, 1)
            os.close(usual)
        caught.seek(0)
        found = _VERSION.search(caught.read().decode("utf-8", "replace"))
    return Version(*map(int, found.groups())) if found else None


def _add(server: str, add: Any) -> int:
    library = ggml()
    registry = add(server.encode())
    if not registry:
        raise rpc_error(server, "serves no device")
    library.ggml_backend_register(registry)
    connection: int | None = library.ggml_backend_dev_init(
        library.ggml_backend_reg_dev_get(registry, 0), None
    )
    if not connection:
        raise rpc_error(server, "does not open its device")
    return connection
