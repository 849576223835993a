"""Evidence keeps unknown apart from zero, and what follows from several facts is right."""

from __future__ import annotations

import dataclasses

import pytest
import sample_runs as sample

from probes.records import (
    DeviceFacts,
    KernelRate,
    MatrixShape,
    Neighbour,
    Placement,
    Run,
    WeightMatrices,
    Workload,
)
from reports.evidence import FACT_NAMES, Evidence
from reports.phases import fit_phases
from reports.run_evidence import run_evidence
from reports.waits import waits_of


def workload(prompt: int = 2048, cached: int = 0, output: int = 32, start: str = "loaded") -> Workload:
    return sample.workload(prompt, output, cached_tokens=cached, start=start)


def test_nothing_known_stays_unknown() -> None:
    nothing = Evidence()
    assert all(not getattr(nothing, name) for name in FACT_NAMES)
    assert nothing.host_works is None
    assert nothing.fully_on_gpu is None
    assert nothing.host_weights_bytes is None
    assert waits_of(nothing).parts == {}


def test_cached_tokens_are_not_evaluated() -> None:
    evidence = Evidence(n_prompt=1000, n_prompt_cached=900, prefill_s=2.0)
    assert evidence.n_evaluated == 100
    assert evidence.prefill_token_s == pytest.approx(0.02)


def test_n_tokens_take_n_minus_one_steps() -> None:
    assert Evidence(n_output=11, decode_s=5.0).decode_step_s == pytest.approx(0.5)
    assert Evidence(n_output=1, decode_s=0.0).decode_step_s is None
    assert waits_of(Evidence(n_output=11, decode_tok_s=2.0)).decode_s == pytest.approx(5.0)


def test_a_mixture_without_its_own_figure_reads_an_unknown_number_of_bytes() -> None:
    assert Evidence(model_bytes=10, architecture_is_moe=False).read_bytes == 10
    assert Evidence(model_bytes=10, n_experts=8).read_bytes is None
    assert Evidence(model_bytes=10, n_experts=8, bytes_per_token=3).read_bytes == 3


@pytest.mark.parametrize(
    ("facts", "works"),
    [
        ({"backend": "cpu"}, True),
        ({"gpu_present": True, "backend": "cuda", "layers_on_gpu": 33, "layers_total": 33}, False),
        ({"gpu_present": True, "backend": "cuda", "layers_on_gpu": 32, "layers_total": 33}, True),
        ({"gpu_present": True, "backend": "cuda", "experts_on_cpu": True}, True),
        ({"gpu_present": True, "backend": "cuda", "model_bytes": 20, "gpu_memory_bytes": 12}, True),
        ({"gpu_present": True, "backend": "cuda", "model_bytes": 8, "gpu_memory_bytes": 12}, None),
    ],
)
def test_whether_the_cpu_evaluates_weights(facts: dict[str, object], works: bool | None) -> None:
    assert Evidence(**facts).host_works is works  # type: ignore[arg-type]


def test_host_bytes_are_in_proportion_to_what_a_token_reads() -> None:
    # 30 of 40 GB lie on the host; a token reads 4 GB of all: 3 GB from the host.
    evidence = Evidence(
        model_bytes=40, bytes_per_token=4, weights_on_cpu_bytes=30, weights_on_gpu_bytes=10, n_experts=8
    )
    assert evidence.host_read_bytes == pytest.approx(3.0)


def test_a_total_without_the_load_has_no_negative_rest() -> None:
    waits = waits_of(Evidence(load_s=20.0, prefill_s=1.0, decode_s=3.0, total_s=4.5))
    assert waits.unaccounted_s == pytest.approx(0.5)


def test_a_load_that_holds_the_first_evaluation_is_not_counted_twice() -> None:
    # 9 s of "load", 8 of them the prompt; the parts would exceed the printed total of 11 s.
    waits = waits_of(Evidence(load_s=9.0, prefill_s=8.0, decode_s=2.0, total_s=11.0))
    assert waits.load_s == pytest.approx(1.0)
    assert waits.total_s == pytest.approx(11.0)


def test_a_loaded_model_waits_for_no_load() -> None:
    assert waits_of(Evidence(load_s=9.0, start="loaded")).load_s == 0.0


# --- out of a run --------------------------------------------------------------------------------


def test_a_request_that_was_run_is_measured() -> None:
    evidence = run_evidence(sample.run(), 0, workload())
    ran = sample.request(2048, 32)
    assert evidence.prefill_s == pytest.approx(ran.prefill_ns / 1e9)
    assert evidence.decode_s == pytest.approx(ran.decode_ns / 1e9)
    assert evidence.sources["prefill_s"] == "measured"
    # 3 ms of the sample's wall are no phase.
    assert waits_of(evidence).unaccounted_s == pytest.approx(0.003, abs=1e-6)
    # 31 steps for 32 tokens.
    assert evidence.decode_tok_s == pytest.approx(31 / (ran.decode_ns / 1e9))


def test_a_request_that_was_not_run_comes_from_the_model() -> None:
    run = sample.run()
    evidence = run_evidence(run, 0, workload(prompt=1000, output=100))
    predicted = fit_phases(run.groups[0]).prefill_s(1000)
    assert predicted
    assert evidence.prefill_s == pytest.approx(predicted.value_s)
    assert evidence.sources["prefill_s"] == "estimated"


def test_a_cached_prefix_leaves_its_tail_at_its_depth() -> None:
    evidence = run_evidence(sample.run(), 0, workload(prompt=2048, cached=2000))
    # 2 ms + 2.2 ms * 48 + 0.35 us * (2048^2 - 2000^2 = 194304) = 0.1756 s
    assert evidence.prefill_s == pytest.approx(0.1756, rel=0.02)


@pytest.mark.parametrize(("start", "seconds"), [("cold", 0.450), ("warm", 0.205)])
def test_the_start_chooses_the_load(start: str, seconds: float) -> None:
    evidence = run_evidence(sample.run(), 0, workload(start=start))
    assert evidence.load_s == pytest.approx(seconds, rel=0.02)


def test_a_run_without_a_workload_has_no_request() -> None:
    evidence = run_evidence(sample.run())
    assert evidence.prefill_s is None
    assert evidence.n_prompt is None
    assert evidence.model_bytes == 96_595_200
    assert evidence.sources["model_bytes"] == "header"


def test_placement_is_the_engines_word() -> None:
    evidence = run_evidence(sample.run(sample.gpu_group()), 0, workload())
    assert evidence.layers_on_gpu == 12
    assert evidence.layers_total == 31
    assert evidence.kv_on_cpu is False
    assert evidence.weights_on_cpu_bytes == 60 * sample.MIB
    assert evidence.sources["layers_on_gpu"] == "log"


def test_pinned_host_buffers_are_no_device() -> None:
    places = (
        Placement(buffer="CUDA_Host", model_bytes=50, kv_bytes=7, compute_bytes=0, output_bytes=0),
        Placement(buffer="CUDA0", model_bytes=90, kv_bytes=0, compute_bytes=0, output_bytes=0),
    )
    group = sample.gpu_group(resolved=sample.resolved(placements=places, n_gpu_layers=31, backend="CUDA"))
    evidence = run_evidence(sample.run(group), 0, workload())
    assert evidence.weights_on_cpu_bytes == 50
    assert evidence.kv_on_cpu is True


def test_a_gpu_that_the_build_does_not_see() -> None:
    evidence = run_evidence(sample.run(machine=sample.machine(gpu_names=("Example GPU",))), 0, workload())
    assert evidence.gpu_present is True
    assert evidence.build_lacks_device is True


def test_a_device_over_the_network_is_no_gpu_of_this_machine() -> None:
    remote = DeviceFacts(
        name="RPC0", description="far", kind="gpu", memory_total_bytes=2**33, memory_free_bytes=2**33
    )
    evidence = run_evidence(sample.run(engine=sample.engine(devices=(remote,))), 0, workload())
    assert evidence.gpu_present is False
    assert evidence.remote_devices == 1


def test_what_loads_read_is_not_held_against_the_phases() -> None:
    loading = sample.quiet(0, phase="load", disk_read_bytes=10**9, major_faults=5000, foreign_cpus=2.0)
    run = sample.run(disturbances=(loading, sample.quiet(1)))
    evidence = run_evidence(run, 0, workload())
    assert evidence.disk_read_bytes == 0
    assert evidence.major_faults == 0
    assert evidence.foreign_cpu == pytest.approx(0.02)


def test_neighbours_and_limits_of_the_group() -> None:
    run = sample.run(
        neighbours=(Neighbour(name="busy", cpus=0.9),), machine=sample.machine(memory_limit_bytes=2**31)
    )
    evidence = run_evidence(run, 0, workload())
    assert evidence.neighbours[0].name == "busy"
    assert evidence.memory_bytes == 2**31


def with_ceiling() -> Run:
    rates = tuple(
        KernelRate(
            rows=n, columns=n, batch=b, weight_type=t, seconds=n * n / 1.6e10 * b**0.5, weight_bytes=n * n
        )
        for n in (4096,)
        for b in (1, 512)
        for t in ("Q4_1", "Q8_0", "F32")
    )
    host = sample.ceiling(memory_bytes_s=1.6e10, compute_flops_s=2e11, rates=rates)
    return sample.run(ceilings=(host,))


def test_ceilings_bound_the_request() -> None:
    evidence = run_evidence(with_ceiling(), 0, workload())
    assert evidence.memory_bandwidth_bytes_s == 1.6e10
    assert evidence.decode_ceiling_s is not None
    assert evidence.weights_read_s is not None
    # 96.6 MB at 16 GB/s: 6.04 ms of weights; the cache and 937 operations of 1 us come on top.
    assert evidence.weights_read_s == pytest.approx(0.00604, rel=0.01)
    assert evidence.decode_ceiling_s > evidence.weights_read_s + 0.0009


def test_evidence_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Evidence().load_s = 1.0  # type: ignore[misc]


def rates(weight_type: str, step_s: float, batch_s: float) -> tuple[KernelRate, KernelRate]:
    """Of one square matrix, by itself and with 512 vectors."""
    shape = {"rows": 1024, "columns": 1024, "weight_type": weight_type, "weight_bytes": 2**19}
    return (
        KernelRate(batch=1, seconds=step_s, **shape),  # type: ignore[arg-type]
        KernelRate(batch=512, seconds=batch_s, **shape),  # type: ignore[arg-type]
    )


def matrices(quantization: str | None, weight_type: str) -> WeightMatrices:
    shape = MatrixShape(rows=1024, columns=1024, weight_type=weight_type, per_token=100, in_model=100)
    return WeightMatrices(quantization=quantization, shapes=(shape,))


def with_kernels(**changes: object) -> Run:
    measured = sample.ceiling(
        rates=(*rates("Q4_1", 80e-6, 12e-3), *rates("Q4_0", 60e-6, 6e-3)), operation_s=1e-6
    )
    run = sample.run(
        ceilings=(measured, dataclasses.replace(measured, threads=4, rates=rates("Q4_1", 50e-6, 7e-3))),
        matrices=(matrices(None, "Q4_1"), matrices("Q3_K_M", "Q4_0"), matrices("Q2_K", "Q2_K")),
    )
    return dataclasses.replace(run, **changes)  # type: ignore[arg-type]


def test_kernels_of_other_quantizations_stand_beside_those_in_use() -> None:
    (found,) = run_evidence(with_kernels(), workload=workload()).other_quantizations
    # Of Q2_K nothing was measured.
    assert found.name == "Q3_K_M"
    assert (found.step_now_s, found.step_then_s) == pytest.approx((100 * 80e-6, 100 * 60e-6))
    assert found.prompt_token_now_s == pytest.approx(100 * 12e-3 / 512)
    assert found.prompt_token_then_s == pytest.approx(100 * 6e-3 / 512)


def test_kernels_on_all_usable_cores_stand_beside_those_in_use() -> None:
    run = with_kernels(machine=sample.machine(usable_cpus=4))
    found = run_evidence(run, workload=workload()).usable_threads
    assert found is not None
    # 937 operations of 1 us each come on top, once a step.
    assert (found.step_now_s, found.step_then_s) == pytest.approx((0.008937, 0.005937))
    assert found.name == "4"
    # The run had two threads, and two cores.
    assert (
        run_evidence(with_kernels(machine=sample.machine(usable_cpus=2)), workload=workload()).usable_threads
        is None
    )
    # The memory's rate is that of the run's own threads.
    assert run_evidence(run, workload=workload()).memory_bandwidth_bytes_s == 20e9


def test_where_several_devices_share_the_weights_kernels_tell_nothing() -> None:
    resolved = sample.resolved(
        n_gpu_layers=15,
        placements=(
            Placement(buffer="CPU", model_bytes=5 * 10**7, kv_bytes=0, compute_bytes=0, output_bytes=0),
            Placement(buffer="CUDA0", model_bytes=5 * 10**7, kv_bytes=0, compute_bytes=0, output_bytes=0),
        ),
    )
    run = with_kernels(groups=(sample.group(resolved=resolved),))
    assert run_evidence(run, workload=workload()).other_quantizations == ()
