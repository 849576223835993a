"""GPU facts of a run: of the GPUs in use, while the phases ran."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import sample_runs as sample
from gpu_samples import gpu, state

from probes.codec import decode, encode
from probes.records import Disturbance, GpuState, GroupResult, Placement, Run
from reports.gpu_evidence import gpu_evidence
from reports.local_gpus import pair_gpus
from reports.notices import notices
from reports.rules import RULES, Finding
from reports.run_evidence import run_evidence

GIB = 2**30
DEVICES = (
    sample.device(),
    sample.device(name="CUDA0", description="GPU A", kind="gpu", pci_id="0000:02:00.0"),
)


def tick(*states: GpuState, phase: str = "decode") -> Disturbance:
    return sample.quiet(phase=phase, gpus=states)


def run(*ticks: Disturbance, group: GroupResult | None = None, **machine: Any) -> Run:
    return sample.run(
        groups=(group or sample.gpu_group(),),
        machine=sample.machine(gpu_names=("GPU A",), **({"gpus": (gpu(),)} | machine)),
        engine=sample.engine(devices=DEVICES),
        disturbances=ticks,
    )


def facts_of(measured: Run) -> dict[str, Any]:
    return gpu_evidence(measured, measured.groups[0])


def test_clocks_and_use_are_those_of_the_phases() -> None:
    found = facts_of(
        run(
            tick(state(utilization=0.0, clock_hz=0.2e9), phase="load"),
            tick(state(utilization=0.8, clock_hz=1.8e9, memory_used_bytes=3 * GIB)),
            # Idle for a moment: its clock is not that of work.
            tick(state(utilization=0.0, clock_hz=0.3e9)),
            tick(state(utilization=1.0, clock_hz=1.6e9)),
        )
    )
    assert found["gpu_utilization"] == 0.6  # (0.8 + 0 + 1) / 3
    assert (found["gpu_clock_hz"], found["gpu_clock_max_hz"]) == (1.7e9, 2e9)
    assert found["gpu_memory_used_bytes"] == 3 * GIB
    assert found["throttled"] is False
    assert found["gpu_shared_memory_bytes"] is None


def test_heat_holds_down_and_a_power_limit_alone_does_not() -> None:
    hot = state(throttle_reasons=("hardware-thermal", "power-cap"))
    capped = state(throttle_reasons=("power-cap",), clock_hz=1.7e9)
    found = facts_of(run(tick(hot), tick(hot), tick(capped)))
    assert (found["throttled"], found["throttle_reasons"]) == (True, ("hardware-thermal",))
    assert facts_of(run(tick(hot), tick(capped), tick(capped)))["throttled"] is False
    # 1.2 of 2 GHz: the limit costs two fifths of the clock.
    low = dataclasses.replace(capped, clock_hz=1.2e9)
    assert facts_of(run(tick(low)))["throttle_reasons"] == ("power-cap",)


def test_a_gpu_that_holds_nothing_of_the_model_has_no_say() -> None:
    hot = state(1, throttle_reasons=("thermal",), clock_hz=0.2e9, memory_used_bytes=9 * GIB)
    both = (gpu(0, pci_id="0000:02:00.0"), gpu(1, pci_id="0000:05:00.0"))
    found = facts_of(run(tick(state(0), hot), gpus=both))
    assert (found["throttled"], found["gpu_memory_used_bytes"]) == (False, 2 * GIB)
    on_cpu = run(tick(hot), group=sample.group(), gpus=both)
    assert all(value is None for value in facts_of(on_cpu).values())


def test_spill_is_growth_beyond_what_the_engine_placed_there() -> None:
    pinned = Placement(
        buffer="ROCm_Host", model_bytes=GIB, kv_bytes=0, compute_bytes=GIB // 2, output_bytes=0
    )
    group = sample.gpu_group()
    assert group.resolved is not None
    placements = (*group.resolved.placements, pinned)
    group = dataclasses.replace(group, resolved=dataclasses.replace(group.resolved, placements=placements))
    before = (state(shared_memory_bytes=GIB),)
    found = facts_of(
        run(
            tick(state(shared_memory_bytes=5 * GIB)),
            tick(state(shared_memory_bytes=3 * GIB)),
            group=group,
            gpu_states=before,
        )
    )
    # 5 - 1 before - 1.5 pinned by the engine
    assert found["gpu_shared_memory_bytes"] == 2.5 * GIB


def test_what_others_did_before_the_run_is_theirs() -> None:
    before = (state(utilization=0.4, foreign_processes=None),)
    found = facts_of(run(tick(state(foreign_processes=2)), gpu_states=before))
    assert (found["gpu_foreign_utilization"], found["gpu_foreign_processes"]) == (0.4, 2)


def test_the_rules_use_them() -> None:
    hot = state(throttle_reasons=("thermal",))
    group = sample.gpu_group(
        resolved=sample.resolved(
            n_gpu_layers=31,
            layers_total=31,
            backend="CUDA",
            placements=(
                Placement(
                    buffer="CUDA0", model_bytes=92 * 2**20, kv_bytes=0, compute_bytes=0, output_bytes=0
                ),
            ),
        )
    )
    measured = run(tick(hot), group=group, gpu_states=(state(utilization=0.5),))
    evidence = run_evidence(measured, 0)
    outcomes = {rule.code: rule.judge(evidence) for rule in RULES}
    clock, neighbours = outcomes["clock-low"], outcomes["gpu-neighbours"]
    assert isinstance(clock, Finding)
    assert clock.reason == "the driver reports that power or heat holds the clock down (thermal)"
    assert isinstance(neighbours, Finding)
    assert neighbours.reason == "other work kept the GPU busy 50 % of the time before the run"
    assert evidence.sources["throttled"] == "measured"


def test_a_reader_is_told_of_clocks_and_of_others() -> None:
    hot = tick(state(throttle_reasons=("thermal",)))
    low = dataclasses.replace(hot, cpu_clock_hz=1.2e9, cpu_clock_max_hz=4e9)
    found = {n.code: n.text for n in notices(run(low, gpu_states=(state(utilization=0.5),)))}
    assert "(thermal)" in found["gpu-throttled"]
    assert "1.20 GHz, 30 %" in found["cpu-clock-low"]
    assert "50 %" in found["gpu-shared"]
    assert {"gpu-throttled", "cpu-clock-low", "gpu-shared"}.isdisjoint(
        {n.code for n in notices(run(tick(state())))}
    )


def test_without_a_driver_nothing_is_made_up() -> None:
    assert all(value is None for value in facts_of(run(sample.quiet(), gpus=())).values())


def test_pairing_goes_by_the_bus_then_by_name_in_order() -> None:
    def device(name: str, description: str, pci: str | None = None) -> Any:
        return sample.device(name=name, description=description, kind="gpu", pci_id=pci)

    listed = (gpu(0, pci_id="a"), gpu(1, pci_id="b"), gpu(2, name="GPU C"))
    by_bus = pair_gpus((device("CUDA0", "GPU A", "b"), device("CUDA1", "GPU A", "a")), listed)
    assert {name: facts.index for name, facts in by_bus.items()} == {"CUDA0": 1, "CUDA1": 0}
    by_name = pair_gpus((device("V0", "GPU A"), device("V1", "GPU A"), device("V2", "GPU C")), listed)
    assert {name: facts.index for name, facts in by_name.items()} == {"V0": 0, "V1": 1, "V2": 2}
    assert pair_gpus((device("Vulkan0", "GPU A (driver name)"),), listed[:1]) == {"Vulkan0": listed[0]}
    remote = device("RPC0[host:1]", "GPU A")
    assert pair_gpus((remote, sample.device()), listed[:1]) == {}


def test_a_saved_run_keeps_what_gpus_did() -> None:
    measured = run(tick(state(throttle_reasons=None)), gpu_states=(state(),))
    assert decode(Run, json.loads(json.dumps(encode(measured)))) == measured
