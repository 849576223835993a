"""The greeting of RPC servers: whatever is at the other end, one clear line comes of it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probes.engine import EngineError
from probes.rpc_protocol import Version, ask_version, end_when_silent, require_version, split_address

GREETING_BYTES = 1 + 8 + 24
OWN = Version(7, 1, 0)

Serve = Callable[[bytes | None], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server that reads the greeting, gives this answer and hangs up; None: it reads and says nothing."""
    listeners: list[socket.socket] = []
    clients: list[socket.socket] = []

    def begin(answer: bytes | None) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def greet() -> None:
            client, _ = listener.accept()
            clients.append(client)
            client.recv(GREETING_BYTES, socket.MSG_WAITALL)
            if answer is not None:
                client.sendall(answer)
                client.close()

        threading.Thread(target=greet, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield begin
    for one in (*clients, *listeners):
        one.close()


def greeting(major: int, minor: int, patch: int, size: int = 28) -> bytes:
    return struct.pack("<QBBB", size, major, minor, patch) + bytes(size - 3)


def test_the_version_is_told(serve: Serve) -> None:
    assert ask_version(serve(greeting(7, 0, 3))) == Version(7, 0, 3)


@pytest.mark.parametrize(
    ("server", "is_taken"), [((7, 0, 9), True), ((7, 1, 0), True), ((7, 2, 0), False), ((6, 0, 0), False)]
)
def test_servers_of_the_same_major_version_are_taken_up_to_the_own_minor(
    serve: Serve, server: tuple[int, int, int], is_taken: bool
) -> None:
    address = serve(greeting(*server))
    if is_taken:
        require_version(address, OWN)
        return
    with pytest.raises(
        EngineError, match=rf"{'.'.join(map(str, server))}, this engine build 7.1.0"
    ) as caught:
        require_version(address, OWN)
    assert caught.value.reason == "rpc"


def test_a_version_that_the_build_does_not_tell_is_not_compared(serve: Serve) -> None:
    require_version(serve(greeting(99, 0, 0)), None)


@pytest.mark.parametrize(
    "answer", [b"", b"\x03\0\0", b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack("<Q", 2) + b"\7\0"]
)
def test_whoever_answers_otherwise_speaks_another_protocol(serve: Serve, answer: bytes) -> None:
    with pytest.raises(EngineError, match="another protocol version, or is none"):
        ask_version(serve(answer))


def test_silence_ends_in_time(serve: Serve) -> None:
    with pytest.raises(EngineError, match=r"does not answer within 0\.2 s: it serves one client at a time"):
        ask_version(serve(None), timeout_s=0.2)


def test_a_closed_port_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(EngineError, match="refuses the connection: start `llmphase rpc-server` there"):
        ask_version(address)


def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(EngineError, match="can not be found"):
        ask_version("no-such-host.invalid:50052")


@pytest.mark.parametrize("address", ["[::1]:50052", "host", "host:", ":50052", "host:0", "host:70000", "h:²"])
def test_addresses_that_the_engine_does_not_take(address: str) -> None:
    with pytest.raises(EngineError, match="IPv4"):
        split_address(address)


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="this system does not list open connections")
def test_connections_to_the_server_alone_end_when_its_machine_falls_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        address = server.getsockname()
        with (
            socket.create_connection(address) as to_it,
            socket.create_connection(other.getsockname()) as beside,
        ):
            end_when_silent(f"127.0.0.1:{address[1]}")
            for connection, is_watched in ((to_it, True), (beside, False)):
                watched = connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert bool(watched) is is_watched
