"""Addresses of RPC servers as people give them."""

from __future__ import annotations

import pytest

from probes.errors import UsageError
from profiler_cli.options import parse_servers


def test_names_and_ipv4_addresses() -> None:
    assert parse_servers("192.168.1.20:50052, bee.local:1,fe80:65535") == (
        "192.168.1.20:50052",
        "bee.local:1",
        "fe80:65535",
    )


@pytest.mark.parametrize(
    "server",
    [
        "[::1]:50052",
        "[fe80::1%eth0]:50052",
        "::1:50052",
        "fe80::1:50052",
        "[::1]",
        "[::ffff:1.2.3.4]:1",
        "::",
    ],
)
def test_ipv6_is_refused_with_what_to_give_instead(server: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_servers(f"127.0.0.1:1,{server}")
    assert caught.value.reason == "rpc"
    assert str(caught.value) == (
        f"--rpc: {server!r} is an IPv6 address, and the engine connects over IPv4 alone; give"
        " the server's IPv4 address or its name, such as 192.168.1.20:50052"
    )


@pytest.mark.parametrize(
    "server", ["", "host", "host:", ":1", "host:0", "host:65536", "http://host:1", "a b:1"]
)
def test_what_is_no_address(server: str) -> None:
    with pytest.raises(UsageError, match="is no HOST:PORT") as caught:
        parse_servers(server)
    assert caught.value.reason == "rpc"
