"""Where `llmphase rpc-server` may listen."""

from __future__ import annotations

import pytest

from probes.errors import UsageError
from profiler_cli.serving import checked_address, checked_threads


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("127.0.0.1:50052", "127.0.0.1:50052"),
        ("127.1.2.3:1", "127.1.2.3:1"),
        ("localhost:50052", "127.0.0.1:50052"),
    ],
)
def test_loopback_needs_no_permission(given: str, taken: str) -> None:
    assert checked_address(given, allow_remote=False) == taken


@pytest.mark.parametrize("given", ["0.0.0.0:50052", "192.168.1.20:50052", "8.8.8.8:1"])
def test_beyond_this_machine_only_when_allowed(given: str) -> None:
    with pytest.raises(UsageError, match=r"neither passwords nor encryption.*--allow-remote") as caught:
        checked_address(given, allow_remote=False)
    assert caught.value.reason == "allow-remote"
    assert checked_address(given, allow_remote=True) == given


@pytest.mark.parametrize(
    "given",
    ["", "50052", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999", "[::1]:50052", "myhost:50052", "a:1,b:2"],
)
def test_what_is_no_address_is_wrong_use(given: str) -> None:
    with pytest.raises(UsageError, match="no IPv4 address with a port"):
        checked_address(given, allow_remote=True)


@pytest.mark.parametrize("given", [0, -1, 513])
def test_thread_counts_have_limits(given: int) -> None:
    with pytest.raises(UsageError, match="--threads"):
        checked_threads(given)
