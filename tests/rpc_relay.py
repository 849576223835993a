"""A slow network in miniature: a TCP relay that delays what passes, limits its rate, and counts it."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator

_CHUNK_BYTES = 16 * 1024


class Relay:
    """Passes connections on to `target` (`host:port`). Use as a context manager."""

    def __init__(self, target: str, *, one_way_s: float = 0.0, bytes_s: float | None = None) -> None:
        """`one_way_s` delays each direction, `bytes_s` limits each one by itself."""
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self.one_way_s = one_way_s
        self.bytes_s = bytes_s
        self.sent_bytes = self.returned_bytes = 0
        """Passed towards the target, and back."""
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        """Break all connections and take no more, as when a machine goes away."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                target = socket.create_connection(self._target)
            except OSError:
                return
            for connection in (client, target):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.append(connection)
            self._pass_on(client, target, towards=True)
            self._pass_on(target, client, towards=False)

    def _pass_on(self, source: socket.socket, sink: socket.socket, *, towards: bool) -> None:
        waiting: queue.Queue[tuple[float, bytes]] = queue.Queue()

        def read() -> None:
            for data in _chunks(source):
                waiting.put((time.monotonic() + self.one_way_s, data))
            waiting.put((time.monotonic() + self.one_way_s, b""))

        def write() -> None:
            free_s = 0.0
            while True:
                due_s, data = waiting.get()
                free_s = max(due_s, free_s) + (len(data) / self.bytes_s if self.bytes_s else 0.0)
                time.sleep(max(0.0, free_s - time.monotonic()))
                if towards:
                    self.sent_bytes += len(data)
                else:
                    self.returned_bytes += len(data)
                try:
                    if not data:
                        sink.shutdown(socket.SHUT_WR)
                        return
                    sink.sendall(data)
                except OSError:
                    return

        for job in (read, write):
            threading.Thread(target=job, daemon=True).start()


def _chunks(source: socket.socket) -> Iterator[bytes]:
    while True:
        try:
            data = source.recv(_CHUNK_BYTES)
        except OSError:
            return
        if not data:
            return
        yield data
