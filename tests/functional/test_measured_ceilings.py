"""Ceilings measured with the real engine's kernels, each in a process of its own as in the program."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from llama_cpp.llama_cpp import llama_supports_rpc
from program import free_address

from probes.codec import decode
from probes.ggml_devices import devices
from probes.kernels import Backend, row_bytes, weight_bytes
from probes.records import DeviceCeiling
from probes.rpc_server import RpcServer

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
MEASURE = """
import json, sys
from probes.ceilings import measure_ceilings
from probes.codec import encode
from probes.records import MatrixShape
asked = json.loads(sys.argv[1])
if "server" in asked:
    from probes.remote_devices import add_servers
    add_servers([asked.pop("server")])
shapes = [MatrixShape(**shape) for shape in asked.pop("shapes")]
print(json.dumps([encode(ceiling) for ceiling in measure_ceilings(shapes, **asked)]))
"""


def shape(weight_type: str, side: int = 256) -> dict[str, Any]:
    return {"rows": side, "columns": side, "weight_type": weight_type, "per_token": 8, "in_model": 8}


def measured(*weight_types: str, **options: Any) -> list[DeviceCeiling]:
    asked = {"shapes": [shape(name) for name in weight_types], "threads": 1, "memory_bytes": 2**28} | options
    outcome = subprocess.run(
        [sys.executable, "-c", MEASURE, json.dumps(asked)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    return [decode(DeviceCeiling, value) for value in json.loads(outcome.stdout)]


def test_the_cpu_is_measured_in_the_formats_of_the_model() -> None:
    (cpu,) = measured("Q4_K", "F16", budget_s=3.0, device_names=["CPU"])
    assert cpu.threads == 1
    assert cpu.transfer_bytes_s is None
    for figure in (cpu.memory_bytes_s, cpu.compute_flops_s, cpu.operation_s):
        assert figure is not None
        assert 0 < figure < math.inf
    assert {(one.weight_type, one.batch > 1) for one in cpu.rates} == {
        (name, many) for name in ("Q4_K", "F16") for many in (False, True)
    }
    # No operation costs a millisecond, none less than a tenth of a cycle.
    assert 1e-11 < cpu.operation_s < 1e-3


def test_a_format_of_no_use_leaves_its_reason() -> None:
    (cpu,) = measured("I32", "F16", budget_s=1.0, device_names=["CPU"])
    assert "I32" in cpu.unknown["compute_flops_s"]
    assert cpu.memory_bytes_s is not None


@pytest.mark.skipif(not llama_supports_rpc(), reason="this engine build has no remote devices")
def test_a_remote_device_is_waited_for() -> None:
    """It answers when it has the work: without waiting for results it would seem thousands of times as fast
    as the very processor that it is."""
    (cpu,) = measured("F16", budget_s=1.0, device_names=["CPU"])
    with RpcServer(free_address(), threads=1, cache=None) as server:
        (remote,) = measured("F16", budget_s=6.0, device_names=["RPC0"], server=server.address)
    assert remote.threads is None
    assert remote.transfer_bytes_s is not None
    assert remote.memory_bytes_s is not None
    assert cpu.memory_bytes_s is not None
    assert remote.memory_bytes_s < 50 * cpu.memory_bytes_s


@pytest.mark.parametrize("weight_type", ["F32", "F16", "BF16", "Q8_0", "Q4_1", "Q6_K", "IQ4_XS", "IQ1_S"])
def test_weights_fill_the_matrix_whatever_the_format(weight_type: str) -> None:
    content = weight_bytes(300, 512, weight_type)
    assert len(content) == 300 * row_bytes(512, weight_type)
    assert content[: row_bytes(512, weight_type)].count(0) < row_bytes(512, weight_type) // 4


def test_weights_are_ordinary_numbers() -> None:
    halves = struct.unpack(f"<{300 * 512}e", weight_bytes(300, 512, "F16"))
    assert all(math.isfinite(value) for value in halves)
    assert 0.9 < sum(value * value for value in halves) / len(halves) < 1.1


def test_the_graph_of_small_operations_computes_as_many_nodes_as_models_do() -> None:
    cpu = next(device for device in devices() if device.facts.kind == "cpu")
    with Backend(cpu, 1) as backend, backend.operations() as graph:
        graph.run()
        assert graph.nodes == 12 * 32
