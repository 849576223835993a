"""Who listens at a loopback address, and that its work is not another program's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from probes.disturbance import Sampler
from probes.loopback_servers import serving_processes

_LISTEN_AND_SPIN = """
import socket
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen()
print(server.getsockname()[1], flush=True)
while True: pass
"""


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[str], int]]:
    child = subprocess.Popen([sys.executable, "-c", _LISTEN_AND_SPIN], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    yield child, int(child.stdout.readline())
    child.kill()
    child.wait()
    child.stdout.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3"])
def test_the_process_behind_a_loopback_address(server: tuple[subprocess.Popen[str], int], host: str) -> None:
    child, port = server
    assert serving_processes([f"{host}:{port}"]) == {child.pid}


def test_other_machines_are_not_looked_for_here(server: tuple[subprocess.Popen[str], int]) -> None:
    _, port = server
    assert serving_processes([f"192.0.2.1:{port}", f"server.example:{port}"]) == frozenset()
    assert serving_processes([]) == frozenset()


def test_a_client_of_the_port_is_no_server(server: tuple[subprocess.Popen[str], int]) -> None:
    child, port = server
    with socket.create_connection(("127.0.0.1", port)):
        assert serving_processes([f"127.0.0.1:{port}"]) == {child.pid}


@pytest.mark.parametrize("error", [psutil.AccessDenied(1), PermissionError(13, "denied")])
def test_where_sockets_are_not_told_nobody_is_found(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*, kind: str) -> list[object]:
        assert kind == "tcp4"
        raise error

    monkeypatch.setattr(psutil, "net_connections", refuse)
    assert serving_processes(["127.0.0.1:50052"]) == frozenset()


@pytest.mark.parametrize("use_proc", [None, False])
def test_its_work_is_not_another_programs(
    server: tuple[subprocess.Popen[str], int], use_proc: bool | None
) -> None:
    child, _ = server
    before_s = sum(psutil.Process(child.pid).cpu_times()[:2])
    alone = Sampler(os.getpid(), use_proc=use_proc)
    beside = Sampler(os.getpid(), companions={child.pid}, use_proc=use_proc)
    time.sleep(0.5)
    foreign, left = alone.sample("walk").foreign_cpus, beside.sample("walk").foreign_cpus
    assert foreign is not None
    assert left is not None
    used_s = sum(psutil.Process(child.pid).cpu_times()[:2]) - before_s
    assert used_s > 0
    # Ticks of 10 ms blur each end.
    assert foreign - left == pytest.approx(used_s / 0.5, abs=0.1)


def test_one_that_ends_meanwhile_takes_nothing_off(server: tuple[subprocess.Popen[str], int]) -> None:
    child, _ = server
    sampler = Sampler(os.getpid(), companions={child.pid})
    child.kill()
    child.wait()
    time.sleep(0.1)
    foreign = sampler.sample("walk").foreign_cpus
    assert foreign is not None
    assert foreign >= 0.0
