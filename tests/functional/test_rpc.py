"""Devices of other machines: a server on loopback is a real one, and a relay is the network in between."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from llama_cpp.llama_cpp import llama_supports_rpc
from program import PROGRAM, Command, free_address
from rpc_relay import Relay

from probes.engine import EngineError
from probes.inquiries import measure_links, read_engine_facts
from probes.remote_devices import build_version
from probes.rpc_protocol import ask_version
from probes.rpc_server import RpcServer

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not llama_supports_rpc(), reason="this engine build has no remote devices"),
]

PLAIN = ("-t", "1", "--no-repack")
_GREETING = struct.pack("<BQ24x", 14, 24)


@pytest.fixture
def server() -> Iterator[RpcServer]:
    """A server in this process's name, one thread."""
    with RpcServer(free_address(), threads=1, cache=None) as running:
        yield running


@dataclasses.dataclass
class Serving:
    """The command, running."""

    process: subprocess.Popen[str]
    address: str
    first_line: str

    def family(self) -> list[psutil.Process]:
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]


@pytest.fixture
def serve(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    """`serve(*options)` runs `llmphase rpc-server` until it says that it serves."""
    with contextlib.ExitStack() as stack:

        def begin(*options: str) -> Serving:
            address = free_address()
            process = subprocess.Popen(
                [PROGRAM, "rpc-server", "--bind", address, "--threads", "1", *options],
                env=environment,
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            assert process.stdout is not None
            return Serving(process, address, process.stdout.readline())

        yield begin


# Serving


def test_it_says_when_and_what_it_serves_and_listens_on_loopback_alone(
    serve: Callable[..., Serving],
) -> None:
    serving = serve()
    assert serving.first_line.startswith("Serving CPU (")
    assert f"on {serving.address}, protocol {build_version()}." in serving.first_line
    listening = [
        connection.laddr
        for process in serving.family()
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert [f"{ip}:{port}" for ip, port in listening] == [serving.address]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_asked_and_leaves_nothing_behind(serve: Callable[..., Serving], how: int) -> None:
    serving = serve()
    children = serving.family()[1:]
    serving.process.send_signal(how)
    _, errors = serving.process.communicate(timeout=20)
    assert (serving.process.returncode, errors.splitlines()[-1]) == (0, "Ended.")
    assert children
    assert not psutil.wait_procs(children, timeout=10)[1]


def test_it_does_not_outlive_a_killed_command(serve: Callable[..., Serving]) -> None:
    serving = serve()
    children = serving.family()[1:]
    serving.process.kill()
    assert not psutil.wait_procs(children, timeout=10)[1]


def test_an_address_in_use_is_one_clear_line(server: RpcServer, llmphase: Command) -> None:
    outcome = llmphase("rpc-server", "--bind", server.address)
    assert outcome.returncode == 3
    assert outcome.stdout == ""
    (line,) = outcome.stderr.splitlines()
    assert line.startswith(f"llmphase: {server.address} can not be served: ")


def test_beyond_this_machine_is_refused_with_the_reason(llmphase: Command) -> None:
    outcome = llmphase("rpc-server", "--bind", "0.0.0.0:50052")
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert "neither passwords nor encryption" in outcome.stderr
    assert "--allow-remote" in outcome.stderr


def test_its_end_is_told(serve: Callable[..., Serving]) -> None:
    serving = serve("--cache")
    for child in serving.family()[1:]:
        child.kill()
    _, errors = serving.process.communicate(timeout=20)
    assert serving.process.returncode == 3
    assert errors.splitlines()[-1].startswith(f"llmphase: the server on {serving.address} ended")


# Asking first


def test_a_busy_server_is_left_as_it_was(server: RpcServer) -> None:
    """A question that nobody answers in time is found by the server later, and must not end it then."""
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port))) as other:
        other.sendall(_GREETING)
        assert other.recv(64)
        for _ in range(2):
            with pytest.raises(EngineError, match="one client at a time"):
                ask_version(server.address, timeout_s=0.3)
    for _ in range(3):
        assert ask_version(server.address) == server.version


@contextlib.contextmanager
def greeter(answer: bytes) -> Iterator[str]:
    """Something else that listens: it reads the greeting, gives this answer, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client:
                        client.recv(len(_GREETING), socket.MSG_WAITALL)
                        client.sendall(answer)

        threading.Thread(target=greet, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (struct.pack("<Q28B", 28, 99, *[0] * 27), "speaks protocol version 99.0.0, this engine build"),
        (b"", "speaks another protocol version, or is none"),
    ],
)
def test_a_server_of_another_version_is_one_clear_line(
    llmphase: Command, tiny_llama: Path, answer: bytes, words: str
) -> None:
    with greeter(answer) as address:
        outcome = llmphase("profile", tiny_llama, "--rpc", address, "-p", "8", *PLAIN)
    assert (outcome.returncode, outcome.stdout) == (3, "")
    (line,) = outcome.stderr.splitlines()
    assert f"the RPC server {address} {words}" in line


def test_a_server_that_is_not_there_is_one_clear_line(llmphase: Command, tiny_llama: Path) -> None:
    address = free_address()
    outcome = llmphase("profile", tiny_llama, "--rpc", address, "-p", "8", *PLAIN)
    assert (outcome.returncode, outcome.stdout) == (3, "")
    (line,) = outcome.stderr.splitlines()
    assert f"the RPC server {address} refuses the connection: start `llmphase rpc-server` there" in line


# Measuring


def test_the_devices_of_a_server_are_devices(server: RpcServer) -> None:
    before = ask_version(server.address)
    facts = read_engine_facts((server.address, server.address))
    (remote,) = [device for device in facts.devices if device.name.startswith("RPC")]
    assert (remote.description, remote.kind) == (server.address, "gpu")
    assert remote.memory_total_bytes == server.devices[0].memory_total_bytes
    assert ask_version(server.address) == before


@pytest.mark.alone
def test_a_link_is_measured_through_whatever_is_in_between(server: RpcServer) -> None:
    with Relay(server.address, one_way_s=0.004, bytes_s=20e6) as relay:
        (link,) = measure_links([relay.address])
    assert link.unknown == {}
    assert link.round_trip_s is not None
    assert link.round_trip_s >= 0.008
    for rate in (link.to_bytes_s, link.from_bytes_s):
        assert rate is not None
        # The relay lets through 20 MB/s and never more; half of it is far below what one sees.
        assert 10e6 < rate < 21e6


def test_a_server_that_is_not_there_is_a_link_with_a_reason() -> None:
    (link,) = measure_links([free_address()])
    assert link.round_trip_s is None
    assert "refuses the connection" in link.unknown["server"]


def saved_run(data_folder: Path) -> dict[str, Any]:
    run: dict[str, Any] = json.loads(next((data_folder / "runs").glob("*.json")).read_text())
    return run


def remote_bytes(group: dict[str, Any], address: str) -> int:
    places = group["resolved"]["placements"]
    return sum(place["model_bytes"] for place in places if place["buffer"] == f"RPC0[{address}]")


def test_layers_really_go_there_and_the_report_tells_of_the_way(
    server: RpcServer, llmphase: Command, tiny_llama: Path, data_folder: Path
) -> None:
    cells = ("--gpu-layers", "0,1,all", "-p", "0,64", "-n", "4", "-r", "3", "--format", "json")
    outcome = llmphase("profile", tiny_llama, "--rpc", server.address, *cells, *PLAIN)
    assert outcome.returncode == 0, outcome.stderr
    document = json.loads(outcome.stdout)
    assert {row["status"] for row in document["rows"]} == {"ok"}
    assert {"decode", "prefill", "advice", "network"} <= set(document["run"]["remote"])
    assert "each token visits it once" in document["run"]["remote"][server.address]
    run = saved_run(data_folder)
    (link,) = run["links"]
    assert link["server"] == server.address
    assert link["unknown"] == {}
    placed = {
        group["resolved"]["n_gpu_layers"]: remote_bytes(group, server.address) for group in run["groups"]
    }
    # 2 layers and the output layer; the engine leaves the input table on the host
    assert set(placed) >= {0, 1, 3}
    assert placed[0] == 0 < placed[1] < placed[3]


@pytest.mark.alone
def test_a_slow_network_is_named_as_the_cause(server: RpcServer, llmphase: Command, tiny_llama: Path) -> None:
    with Relay(server.address, one_way_s=0.005) as relay:
        cells = ("--gpu-layers", "0,all", "-p", "0", "-n", "4", "-r", "4", "--format", "json")
        outcome = llmphase("profile", tiny_llama, "--rpc", relay.address, *cells, *PLAIN)
    assert outcome.returncode == 0, outcome.stderr
    run = json.loads(outcome.stdout)["run"]
    named = [notice for notice in run["notices"] if notice["code"] == "network"]
    assert named
    assert all(one["text"].startswith("The network takes much of each token's time") for one in named)
    assert run["remote"]["advice"] == "Keep layers off them."
    assert run["remote"]["decode"].startswith("slower with them")


def test_a_server_that_dies_costs_its_cells_and_the_sweep_goes_on(
    server: RpcServer, environment: dict[str, str], tiny_llama: Path, tmp_path: Path, data_folder: Path
) -> None:
    cells = ("--gpu-layers", "0,1,2,all", "-p", "0,8", "-n", "4", "-r", "200", "--format", "json")
    with Relay(server.address, one_way_s=0.002) as relay:
        process = subprocess.Popen(
            [PROGRAM, "profile", tiny_llama, "--rpc", relay.address, *cells, *PLAIN],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        begun = 0
        for line in process.stderr:
            begun += "measuring, pass 1\n" in line
            if begun == 2:  # the first group, without remote layers, is done; the second one is under way
                break
        relay.cut()
        output, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    rows = json.loads(output)["rows"]
    measured = {row["status"] for row in rows if row["n_gpu_layers"] == 0}
    assert measured == {"ok"}
    groups = saved_run(data_folder)["groups"]
    assert len(groups) == 4
    told = [*groups[1]["warnings"], *(cell["reason"] or "" for cell in groups[1]["cells"])]
    assert any("a remote device stopped answering" in text for text in told)
    for group in groups[2:]:
        assert group["status"] == "failed"
        assert group["reason"].startswith("rpc: the RPC server")
        assert {cell["status"] for cell in group["cells"]} == {"failed"}


def test_a_build_without_remote_devices_names_the_line_that_mends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from probes import remote_devices
    from probes.ggml_library import ggml

    monkeypatch.setattr(ggml(), "ggml_backend_reg_by_name", lambda _name: None)
    with pytest.raises(EngineError, match=r"CMAKE_ARGS=-DGGML_RPC=ON pip install") as caught:
        remote_devices.add_servers(["127.0.0.1:50052"])
    assert caught.value.reason == "rpc"
