"""Predictions of the same request with its layers elsewhere, each sum done by hand in a comment."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import sample_runs as sample

from probes.records import GroupResult, LinkFacts, Placement, Run
from reports.diagnosis_report import diagnosis_of_run
from reports.evidence import Evidence
from reports.other_placements import Now, elsewhere, most_layers, options, room_bytes
from reports.remedies.base import placed
from reports.run_evidence import run_evidence

MIB = 2**20
N_LAYERS = 10
MODEL = sample.model(
    n_layers=N_LAYERS,
    layer_bytes=(8 * MIB,) * N_LAYERS,
    output_bytes=20 * MIB,
    bytes_per_token=100 * MIB,
    model_bytes=100 * MIB,
    bytes_by_type={"Q8_0": 100 * MIB},
    n_vocab=None,
    quantization="Q8_0",
)
CACHE = 20 * MIB
HOST, DEVICE = 100 * MIB, 400 * MIB  # bytes per second
NOW = Now(decode_step_s=1.0, prefill_s=None, prompt_tokens=0, depth_tokens=0)


def place(buffer: str, model_bytes: int, kv_bytes: int = 0) -> Placement:
    return Placement(
        buffer=buffer, model_bytes=model_bytes, kv_bytes=kv_bytes, compute_bytes=0, output_bytes=0
    )


def group(layers: int = 4, **changes: Any) -> GroupResult:
    """Of 11 layers, the output layer (20 MiB) and three others (24 MiB) are on the device."""
    on_device = 20 * MIB + 8 * MIB * (layers - 1) if layers else 0
    there = [place("RPC0[127.0.0.1:50052]", on_device, CACHE * (layers - 1) // 10)] if layers else []
    resolved = sample.resolved(
        n_gpu_layers=layers,
        layers_total=11,
        graph_splits=2 if layers else 1,
        graph_nodes=0,
        placements=(place("CPU", 100 * MIB - on_device, CACHE - CACHE * max(0, layers - 1) // 10), *there),
    )
    return dataclasses.replace(
        sample.group(),
        model=MODEL,
        settings=sample.settings(n_gpu_layers=layers, rpc_servers=("127.0.0.1:50052",)),
        resolved=resolved,
        **changes,
    )


def run(*, free: int = 1000 * MIB, device: float = DEVICE, **changes: Any) -> Run:
    ceilings = (
        sample.ceiling(memory_bytes_s=HOST, operation_s=0.0),
        sample.ceiling(device="RPC0", threads=None, memory_bytes_s=device, operation_s=0.0),
    )
    devices = (
        sample.device(),
        sample.device(name="RPC0", kind="gpu", memory_free_bytes=free, memory_total_bytes=free),
    )
    return dataclasses.replace(
        sample.run(group()), ceilings=ceilings, engine=sample.engine(devices=devices), **changes
    )


def step(layers: int, **changes: Any) -> float:
    found = elsewhere(run(**changes), group(), NOW, layers)
    assert found
    return found.decode_step_s


def test_the_step_goes_with_the_roofs() -> None:
    # Now 56 MiB at 100 MiB/s and 44 at 400: 0.56 + 0.11 = 0.67 s of roof for 1 s of step.
    assert step(11) == pytest.approx(0.25 / 0.67)  # 100 MiB at 400
    assert step(0) == pytest.approx(1.00 / 0.67)  # 100 MiB at 100
    assert step(4) == pytest.approx(1.0)


def test_a_slow_device_is_predicted_slower() -> None:
    # 0.56 + 44 MiB at 50 MiB/s = 1.44 s of roof now, 1.00 without it.
    assert step(0, device=50 * MIB) == pytest.approx(1.00 / 1.44)


def test_the_network_stays_whatever_the_device_computes() -> None:
    link = LinkFacts(
        server="127.0.0.1:50052", round_trip_s=0.2, to_bytes_s=None, from_bytes_s=None, unknown={}
    )
    # One visit a token now and then: 0.2 s of network, 0.8 s of computing that grow with the roofs.
    assert step(11, links=(link,)) == pytest.approx(0.2 + 0.8 * 0.25 / 0.67)
    assert step(0, links=(link,)) == pytest.approx(0.8 * 1.00 / 0.67)


def test_the_prompt_is_predicted_too() -> None:
    ceilings = tuple(
        dataclasses.replace(one, compute_flops_s=flops)
        for one, flops in zip(run().ceilings, (1e9, 4e9), strict=True)
    )
    now = dataclasses.replace(NOW, prefill_s=2.0, prompt_tokens=100)
    found = elsewhere(dataclasses.replace(run(), ceilings=ceilings), group(), now, 11)
    assert found
    assert found.prefill_s is not None
    assert 0 < found.prefill_s < 2.0


def test_without_ceilings_nothing_is_predicted() -> None:
    assert elsewhere(dataclasses.replace(run(), ceilings=()), group(), NOW, 11) is None


def test_what_this_load_holds_counts_as_room() -> None:
    # 95 % of 100 MiB free and of the 44 + 6 MiB held.
    assert room_bytes(run(free=100 * MIB), group()) == pytest.approx(0.95 * 150 * MIB)
    blind = sample.device(name="RPC0", kind="gpu", memory_free_bytes=None)
    assert room_bytes(dataclasses.replace(run(), engine=sample.engine(devices=(blind,))), group()) is None
    assert room_bytes(dataclasses.replace(run(), engine=sample.engine()), group()) is None


def test_layers_within_a_room() -> None:
    # The output layer takes 20 MiB, each other one 8; a share of the cache of 20 MiB for each of 11.
    assert most_layers(group(), 120 * MIB) == 11
    assert most_layers(group(), 119 * MIB) == 10  # 92 + 18.2
    assert most_layers(group(), 22 * MIB) == 1  # 20 + 1.8
    assert most_layers(group(), 21 * MIB) == 0


def test_ways_to_more_layers_where_not_all_fit() -> None:
    # Room for 0.95 * (30 + 50) = 76 MiB: 6 layers (60 + 10.9), not 7 (68 + 12.7).
    short = run(free=30 * MIB)
    wide = dataclasses.replace(group(), resolved=dataclasses.replace(group().resolved, n_ctx=1024))
    found = {option.way: option for option in options(short, wide, NOW, 256)}
    # A quarter of the cache: 7 layers (68 + 3.2). q8_0, 53 % of it: 7 layers (68 + 6.8).
    assert (found["context"].layers, found["context"].setting) == (7, 256)
    assert found["cache"].layers == 7
    # Weights have 76 - 20 of their 100 MiB.
    assert found["weights"].setting == pytest.approx(0.56)
    assert found["weights"].decode_step_s == pytest.approx(0.25 / 0.67)
    assert "experts" not in found


def test_where_all_fit_no_way_is_needed() -> None:
    assert options(run(), group(), NOW, 256) == ()


def test_experts_that_stay_on_the_host_make_room() -> None:
    experts = dataclasses.replace(
        MODEL, layer_expert_bytes=(6 * MIB,) * N_LAYERS, n_experts=8, n_experts_used=8
    )
    made = dataclasses.replace(group(), model=experts)
    found = {option.way: option for option in options(run(free=30 * MIB), made, NOW, 10**6)}
    # 120 MiB in all, 76 of room: eight layers leave 6 MiB each, 48 in all.
    assert (found["experts"].layers, found["experts"].setting) == (11, 8)


def diagnosed(made: Run, layers: int) -> Any:
    """A request of 512 prompt and 33 output tokens, with this placement."""
    asked = sample.workload(prompt_tokens=512, output_tokens=33)
    groups = (dataclasses.replace(group(layers), cells=sample.group().cells),)
    return diagnosis_of_run(dataclasses.replace(made, groups=groups, workload=asked, disturbances=()))


def slowed(made: Run, factor: float) -> Run:
    """Ceilings so low that the samples' steps (some 7 ms) lie above their roofs."""
    return dataclasses.replace(
        made,
        ceilings=tuple(
            dataclasses.replace(
                one, memory_bytes_s=(one.memory_bytes_s or 0.0) * factor, compute_flops_s=1e15
            )
            for one in made.ceilings
        ),
    )


def test_half_on_a_faster_device_is_offload_bound_with_the_saving() -> None:
    said = diagnosed(slowed(run(), 1000), 4)
    assert said.verdict == "offload-bound"
    remedy = next(one for one in said.remedies if one.code == "gpu-layers")
    assert remedy.title == "place all layers on the device"
    assert remedy.saved_s is not None
    assert remedy.saved_s > 0
    assert remedy.try_with is not None


def test_what_goes_with_mixing_is_between_all_and_nothing() -> None:
    # 1 s now over a roof of 0.5 s: 2 times. 0.4 s in proportion, 0.4 * (4/3) / 2 for a healthy run.
    found = placed(Evidence(), 0.4, 1.0, 0.5)
    assert (found.low_s, found.high_s) == pytest.approx((0.8 / 3, 0.4))
    assert found.value_s == pytest.approx((0.4 * 0.8 / 3) ** 0.5)
    # A healthy run has nothing to lose, and without a roof nothing is known of it: a tenth either way.
    for least_s in (0.8, None):
        found = placed(Evidence(), 0.4, 1.0, least_s)
        assert (found.value_s, found.low_s, found.high_s) == pytest.approx((0.4, 0.36, 0.44))
    # Where the parts were timed, both memories were seen as they are.
    timed = placed(Evidence(layers_timed=True), 0.4, 1.0, 0.5)
    assert (timed.value_s, timed.low_s, timed.high_s) == pytest.approx((0.4, 0.36, 0.44))


def test_layers_on_a_slower_device_are_advised_off() -> None:
    said = diagnosed(slowed(run(device=20 * MIB), 1000), 11)
    assert said.verdict == "offload-bound"
    remedy = next(one for one in said.remedies if one.code == "gpu-layers")
    assert remedy.title == "keep all layers off the device: the host is faster"
    assert "--gpu-layers 0" in remedy.how["llmphase"]


def test_more_layers_that_save_nothing_are_no_verdict() -> None:
    said = diagnosed(slowed(run(device=HOST), 1000), 4)
    assert said.verdict != "offload-bound"


def test_what_does_not_fit_names_the_quantization_that_would() -> None:
    said = diagnosed(slowed(run(free=30 * MIB), 1000), 4)
    codes = {one.code: one.title for one in said.remedies}
    # 56 % of Q8_0: Q4_K_M has 4.8944 / 8.5008 = 57.6 %, Q3_K_M 47 %.
    assert codes["quantization-that-fits"].startswith("use Q3_K_M")
    evidence = run_evidence(
        dataclasses.replace(slowed(run(free=30 * MIB), 1000), groups=(group(4),)),
        workload=sample.workload(prompt_tokens=512, output_tokens=33),
    )
    assert evidence.fitting_layers == 6
