"""Processes of this machine that serve remote devices: what they compute is the measured model's."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from probes.rpc_protocol import split_address


def serving_processes(servers: Sequence[str]) -> frozenset[int]:
    """Process ids that listen at those of the `host:port` that are on loopback. Empty where the system tells
    other users' sockets alone to its administrator, as macOS does, and of another user's server.

    It walks over this machine's sockets: not for use while a worker measures.
    """
    ports = {port for host, port in map(split_address, servers) if _is_loopback(host)}
    if not ports:
        return frozenset()
    import psutil

    try:
        sockets = psutil.net_connections(kind="tcp4")
    except (OSError, psutil.Error):
        return frozenset()
    return frozenset(
        one.pid
        for one in sockets
        if one.pid is not None and one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port in ports
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
