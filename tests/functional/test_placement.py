"""Where layers lie: what is planned against what the engine really does, with a remote device on loopback.

A server on this machine is a real device: the engine places layers, makes buffers and cuts its graph for it.
"""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sample_runs as sample
from tiny_models import TINY_MODELS, write_tiny_sliding_window

from probes.gguf_header import read_model_facts
from probes.inquiries import read_engine_facts, reserve
from probes.memory_plan import MemoryPlan, layers_that_fit, plan_memory
from probes.messages import Load, Loaded
from probes.records import DeviceFacts, ModelFacts, Resolved, Settings
from probes.rpc_server import RpcServer
from probes.tensor_overrides import moved_weights
from probes.worker_process import WorkerProcess

pytestmark = pytest.mark.engine

MIB = 2**20
_ANSWER_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with RpcServer(address, threads=1, cache=None):
        yield address


@pytest.fixture(scope="module", params=["llama", "moe"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    path: Path = tmp_path_factory.mktemp("tiny") / f"{request.param}.gguf"
    return read_model_facts(TINY_MODELS[request.param](path))


def settings(server: str, layers: int | None) -> Settings:
    return sample.settings(
        n_gpu_layers=layers,
        n_ctx=512,
        n_batch=512,
        n_ubatch=128,
        threads=1,
        threads_batch=1,
        repack=False,
        load_mode="none",
        rpc_servers=(server,),
    )


def resolved_by_the_engine(model: ModelFacts, asked: Settings) -> Resolved:
    with WorkerProcess() as worker:
        worker.send(Load(model=model, settings=asked, tokens="text", seed=0, max_tokens=64, warm_up=False))
        event = worker.receive(_ANSWER_S)
        while event is not None and not isinstance(event, Loaded):
            event = worker.receive(_ANSWER_S)
    assert isinstance(event, Loaded)
    return event.resolved


def planned(model: ModelFacts, asked: Settings, devices: tuple[DeviceFacts, ...]) -> MemoryPlan:
    machine = sample.machine(memory_available_bytes=2**40)
    moved = moved_weights(model, asked)
    return plan_memory(model, asked, machine, devices, reserve(model.path, asked), moved)


def on(resolved: Resolved, device: str) -> tuple[int, int]:
    """Weights and cache, compute and output buffers."""
    places = [p for p in resolved.placements if p.buffer.split("[")[0] == device]
    return (
        sum(p.model_bytes + p.kv_bytes for p in places),
        sum(p.compute_bytes + p.output_bytes for p in places),
    )


@pytest.mark.parametrize("layers", [0, 1, 2, -1])
def test_the_plan_is_what_the_engine_does(server: str, model: ModelFacts, layers: int) -> None:
    asked = settings(server, layers)
    devices = read_engine_facts((server,)).devices
    plan, found = planned(model, asked, devices), resolved_by_the_engine(model, asked)
    (remote,) = plan.devices
    # The log rounds to hundredths of a MiB, each buffer by itself.
    assert remote.need_bytes == pytest.approx(sum(on(found, "RPC0")), rel=0.05, abs=0.05 * MIB)
    assert plan.host_need_bytes == pytest.approx(sum(on(found, "CPU")), rel=0.05, abs=0.05 * MIB)
    assert plan.gpu_layers == found.n_gpu_layers == (layers if layers >= 0 else found.layers_total)


def test_auto_places_as_many_layers_as_fit(server: str, model: ModelFacts) -> None:
    (device,) = (d for d in read_engine_facts((server,)).devices if d.name == "RPC0")
    asked = settings(server, None)
    everything = dataclasses.replace(device, memory_free_bytes=2**40)
    total = len(model.layer_bytes) + 1
    assert layers_that_fit(model, asked, [everything]) == total
    assert resolved_by_the_engine(model, asked).n_gpu_layers == total
    nothing = dataclasses.replace(device, memory_free_bytes=1)
    assert layers_that_fit(model, asked, [nothing]) == 0


def test_experts_and_cache_can_stay_on_the_host(server: str, model: ModelFacts) -> None:
    devices = read_engine_facts((server,)).devices
    kept = dataclasses.replace(settings(server, -1), kv_offload=False, n_cpu_moe=1)
    plan, found = planned(model, kept, devices), resolved_by_the_engine(model, kept)
    assert [p.kv_bytes for p in found.placements if p.buffer.startswith("RPC0")] == [0]
    assert plan.devices[0].need_bytes == pytest.approx(sum(on(found, "RPC0")), rel=0.05, abs=0.05 * MIB)
    assert plan.host_need_bytes == pytest.approx(sum(on(found, "CPU")), rel=0.05, abs=0.05 * MIB)


@pytest.mark.parametrize(
    ("layers", "overrides"),
    [
        (-1, ("exps=CPU",)),
        (-1, (r"blk\.0\.ffn_.*=CPU", "exps=CPU")),
        (-1, ("output=CPU",)),
        (1, (r"ffn_(up|down)=RPC0[{server}]", "token_embd=CPU")),
        (0, ("token_embd=RPC0[{server}]",)),
    ],
)
def test_overrides_are_followed(
    server: str, model: ModelFacts, layers: int, overrides: tuple[str, ...]
) -> None:
    named = tuple(override.format(server=server) for override in overrides)
    asked = dataclasses.replace(settings(server, layers), override_tensor=named)
    devices = read_engine_facts((server,)).devices
    plan, found = planned(model, asked, devices), resolved_by_the_engine(model, asked)
    assert plan.devices[0].need_bytes == pytest.approx(sum(on(found, "RPC0")), rel=0.05, abs=0.05 * MIB)
    assert plan.host_need_bytes == pytest.approx(sum(on(found, "CPU")), rel=0.05, abs=0.05 * MIB)


@pytest.mark.parametrize(
    "pattern",
    [2, None, 0, [True, False], [True, False, True, True]],
    ids=["a number", "the engine's own", "none", "an array", "a longer array"],
)
@pytest.mark.parametrize("n_ctx", [512, 4096])
def test_windowed_caches_are_as_the_engine_makes_them(tmp_path: Path, pattern: Any, n_ctx: int) -> None:
    path = write_tiny_sliding_window(
        tmp_path / "windowed.gguf", **{"gemma3.attention.sliding_window_pattern": pattern}
    )
    facts = read_model_facts(path)
    asked = dataclasses.replace(settings("", None), n_ctx=n_ctx, rpc_servers=())
    plan = plan_memory(facts, asked, sample.machine(memory_available_bytes=2**40))
    found = resolved_by_the_engine(facts, asked)
    # Two caches, each told to hundredths of a MiB.
    assert plan.kv_bytes == pytest.approx(sum(p.kv_bytes for p in found.placements), abs=0.011 * MIB)
