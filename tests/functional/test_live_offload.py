"""Is it the offload: live verdicts on the demo model with a remote device on loopback.

With one thread here and two there, layers on the device are faster; the other way round they are slower. Both
sides share this machine's cores, and take turns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from program import Command, free_address

from probes.rpc_server import RpcServer

pytestmark = [pytest.mark.engine, pytest.mark.alone]


@contextmanager
def serving(threads: int) -> Iterator[str]:
    address = free_address()
    with RpcServer(address, threads=threads, cache=None):
        yield address


def diagnosed(llmphase: Command, server: str, *arguments: str) -> dict[str, Any]:
    outcome = llmphase(
        "diagnose",
        "demo",
        *("--rpc", server, "--no-repack", "-p", "64", "-n", "48", "--budget", "30s", "--format", "json"),
        *arguments,
        timeout=300,
    )
    assert outcome.returncode == 0, outcome.stderr
    document: dict[str, Any] = json.loads(outcome.stdout)
    return document


def remedy(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in document["remedies"] if one["code"] == "gpu-layers")
    return found


def test_half_of_the_layers_on_the_slower_side_is_offload_bound(llmphase: Command) -> None:
    with serving(threads=2) as server:
        found = diagnosed(llmphase, server, "-t", "1", "-ngl", "6", "--verify", "1")
    assert found["verdict"] == "offload-bound" or "offload-bound" in found["contributing"]
    # 24 or 25 of 30 layers are computed here, by one thread of two.
    assert found["evidence"]["host_layers_share"] > 0.5
    placed = remedy(found)
    assert "all" in placed["how"]["llmphase"]
    assert placed["saved_s"] > 0
    assert placed["measured_saved_s"] is not None


def test_layers_on_a_device_that_is_slower_are_advised_off(llmphase: Command) -> None:
    with serving(threads=1) as server:
        found = diagnosed(llmphase, server, "-t", "2", "-ngl", "all")
    assert found["verdict"] == "offload-bound" or "offload-bound" in found["contributing"]
    assert "--gpu-layers 0" in remedy(found)["how"]["llmphase"]
