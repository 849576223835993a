"""What `llmphase rpc-server` does: check the address, serve, and say what happens."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from probes.ceiling_cache import CACHE_FOLDER_VARIABLE, cache_folder
from probes.errors import UnmeasurableError, UsageError
from probes.machine import default_threads, read_machine_facts
from probes.plan import MAX_THREADS
from probes.rpc_server import RpcServer
from profiler_cli.console import note
from profiler_cli.options import parse_servers
from profiler_cli.streams import show_line
from reports.text import clean
from reports.units import size

_CACHE_NAME = "rpc"
_LOCALHOST = "localhost"
_WHY = (
    "the protocol knows neither passwords nor encryption, and whoever reaches the port can use, read and"
    " change the memory of the serving process"
)


def serve(bind: str, threads: int | None, *, with_cache: bool, allow_remote: bool, quiet: bool) -> None:
    """Serve until interrupted. Raises LlmphaseError for what can not be begun, or ended by itself."""
    address = checked_address(bind, allow_remote=allow_remote)
    if not ipaddress.ip_address(address.rpartition(":")[0]).is_loopback:
        note(f"Warning: {address} is open to other machines: {_WHY}.")
    count = checked_threads(threads)
    folder = _made_folder() if with_cache else None
    try:
        with RpcServer(address, threads=count, cache=folder) as server:
            _say_what(server, folder, quiet=quiet)
            server.wait()
    except KeyboardInterrupt:
        note("Ended.", quiet=quiet)


def checked_address(text: str, *, allow_remote: bool) -> str:
    """The address as the engine takes it. Raises UsageError: no IPv4 address, or one beyond this machine that
    nobody has allowed."""
    try:
        (address,) = parse_servers(text)
        host, _, port = address.rpartition(":")
        ip = ipaddress.IPv4Address("127.0.0.1" if host == _LOCALHOST else host)
    except (UsageError, ValueError) as error:
        raise UsageError(
            f"--bind: {text[:40]!r} is no IPv4 address with a port; give one such as 127.0.0.1:50052",
            reason="bind",
        ) from error
    if not (ip.is_loopback or allow_remote):
        raise UsageError(
            f"--bind: {ip} opens this machine to others: {_WHY}. In a network where you trust every machine,"
            " add --allow-remote; else listen on 127.0.0.1 and go through an SSH tunnel",
            reason="allow-remote",
        )
    return f"{ip}:{int(port)}"


def checked_threads(given: int | None) -> int:
    """The number given, else that of the usable cores. Raises UsageError."""
    if given is None:
        return default_threads(read_machine_facts())
    if not 1 <= given <= MAX_THREADS:
        raise UsageError(f"--threads: {given} is not between 1 and {MAX_THREADS}", reason="threads")
    return given


def _made_folder() -> Path:
    folder = cache_folder(_CACHE_NAME)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnmeasurableError(
            f"{folder} can not be made: {error.strerror or error}. {CACHE_FOLDER_VARIABLE} names another"
            " place",
            reason="cache",
        ) from error
    return folder


def _say_what(server: RpcServer, folder: Path | None, *, quiet: bool) -> None:
    devices = ", ".join(
        f"{clean(device.name)} ({clean(device.description)}, {size(device.memory_total_bytes)})"
        for device in server.devices
    )
    show_line(f"Serving {devices} on {server.address}, protocol {server.version}.")
    note(
        f"Use it with --rpc {server.address}; Ctrl-C ends it. It works for one client at a time.", quiet=quiet
    )
    if folder is not None:
        note(f"Tensors are kept in {folder}; delete it whenever you like.", quiet=quiet)
