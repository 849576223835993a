"""The first words of the engine's RPC protocol, spoken over a plain socket.

The engine ends its process when a server refuses, does not answer, or speaks another version; a socket of
our own can ask the same and tell which it was. Standard library only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import stat
import struct
from pathlib import Path

from probes.engine import EngineError

REASON = "rpc"
TIMEOUT_S = 3.0
INSTALL = "CMAKE_ARGS=-DGGML_RPC=ON pip install --force-reinstall --no-cache-dir llama-cpp-python"
"""Builds the engine with remote devices."""

_HELLO = struct.pack("<BQ24x", 14, 24)
"""The greeting (RPC_CMD_HELLO), its size, and no abilities beyond plain TCP."""
_LONGEST_ANSWER = 256
_OPEN_FILES = Path("/dev/fd")
_KEEP_ALIVE = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPALIVE": 10,  # macOS's name for it
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 4,
    "TCP_USER_TIMEOUT": 30_000,
}
"""Ask after 10 s of silence, then each 5 s; give up after 4 questions, or 30 s with data on the way."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""`struct linger`: on, for no time."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Version:
    """Of the protocol. A client takes servers of its own major version and of its minor one at the most."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    def takes(self, server: Version) -> bool:
        """Whether a client of this version works with that server."""
        return server.major == self.major and server.minor <= self.minor


def rpc_error(server: str, problem: str) -> EngineError:
    """What is wrong with a server, in one line."""
    return EngineError(f"the RPC server {server} {problem}", reason=REASON)


def split_address(server: str) -> tuple[str, int]:
    """Host and port of `host:port`. Raises EngineError for what the engine would not understand."""
    host, _, port = server.rpartition(":")
    if not host or ":" in host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise rpc_error(
            server, "is no HOST:PORT that the engine understands: it takes a name or an IPv4 address"
        )
    return host, int(port)


def ask_version(server: str, timeout_s: float = TIMEOUT_S) -> Version:
    """The version that the server at `host:port` speaks; `timeout_s` counts for connecting and for answering.

    Raises EngineError (`rpc`): refused, unreachable, no answer, or not this protocol.
    """
    host, port = split_address(server)
    with _connected(server, host, port, timeout_s) as connection:
        try:
            connection.sendall(_HELLO)
            answer = _answer(connection)
        except TimeoutError as error:
            # A busy server finds this connection later. Reset, it is dropped there; closed in the usual way,
            # the answer to somebody who has gone could end the server.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            raise rpc_error(
                server,
                f"does not answer within {timeout_s:g} s: it serves one client at a time, so end the other"
                " one; if there is none, start the server again",
            ) from error
        except OSError as error:
            raise rpc_error(server, f"broke the connection ({error.strerror or error})") from error
    if len(answer) < 3:
        raise rpc_error(
            server, "speaks another protocol version, or is none: start `llmphase rpc-server` there"
        )
    return Version(*answer[:3])


def require_version(server: str, own: Version | None) -> None:
    """Raises EngineError where this engine build could not use the server; `own` is its version, None where
    it does not tell."""
    theirs = ask_version(server)
    if own is not None and not own.takes(theirs):
        raise rpc_error(
            server,
            f"speaks protocol version {theirs}, this engine build {own}: install the same version of"
            " llama-cpp-python on both machines",
        )


def end_when_silent(server: str) -> None:
    """Have the system break this process's connections to a server whose machine goes without a word (power,
    cable): the engine itself would wait for it for ever. Does nothing where connections can not be found
    (Windows)."""
    host, port = split_address(server)
    addresses = {found[4][:2] for found in socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)}
    for descriptor in _descriptors():
        connection = _socket_of(descriptor)
        if connection is None:
            continue
        with connection, contextlib.suppress(OSError):  # one that is not connected has no peer
            if connection.getpeername() in addresses:
                _watch(connection)


def _descriptors() -> list[int]:
    return [int(entry.name) for entry in _OPEN_FILES.iterdir()] if _OPEN_FILES.exists() else []


def _socket_of(descriptor: int) -> socket.socket | None:
    """A second handle of a socket; None for what is none, or has been closed meanwhile."""
    try:
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return socket.socket(fileno=os.dup(descriptor))
    except OSError:
        pass
    return None


def _watch(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        option = getattr(socket, name, None)  # not every system has each
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _connected(server: str, host: str, port: int, timeout_s: float) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise rpc_error(server, f"can not be found: no IPv4 address is known for {host}") from error
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        connection.connect(found[0][4])
    except OSError as error:
        connection.close()
        raise rpc_error(server, _why_unreachable(error, timeout_s)) from error
    return connection


def _why_unreachable(error: OSError, timeout_s: float) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refuses the connection: start `llmphase rpc-server` there, or check host and port"
    if isinstance(error, TimeoutError):
        return f"does not answer within {timeout_s:g} s: check host, port and firewall"
    return f"can not be reached ({error.strerror or error}): check host and port"


def _answer(connection: socket.socket) -> bytes:
    """The answer without its size; what came of it where the server closed the connection early."""
    with contextlib.suppress(ConnectionResetError):  # a server of another version hangs up
        head = _receive(connection, 8)
        if len(head) == 8:
            (size,) = struct.unpack("<Q", head)
            return _receive(connection, size) if size <= _LONGEST_ANSWER else b""
    return b""


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            break
        parts += part
    return parts
