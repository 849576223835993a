"""What a split model would take with its layers elsewhere, by its parts in this run: each sum by hand."""

from __future__ import annotations

from typing import Any

import pytest
import sample_runs as sample

from probes.records import GroupResult, LinkFacts, StepParts
from reports.diagnosis_report import diagnosis_of_run
from reports.other_placements import Now, elsewhere
from reports.split_parts import Parts, decode_parts, prompt_parts

MS = 1_000_000


def part(
    host_ms: float = 10,
    layers_ms: float = 2,
    whole_ms: float = 13,
    *,
    crossing_ms: float = 0.0,
    output_ms: float = 1.0,
    **changes: Any,
) -> StepParts:
    """20 layers here and ten there; `whole_ms` is what nobody watches."""
    facts = {"tokens": 1, "position_tokens": 64, "host_layers": 20, "device_layers": 10} | changes
    return StepParts(
        host_ns=round(host_ms * MS),
        crossing_ns=round(crossing_ms * MS),
        device_ns=round(layers_ms * MS),
        output_ns=round(output_ms * MS),
        watched_ns=round((host_ms + crossing_ms + layers_ms + output_ms) * MS),
        whole_ns=(round(whole_ms * MS),),
        **facts,
    )


def group(*parts: StepParts, **settings: Any) -> GroupResult:
    resolved = sample.resolved(n_gpu_layers=11, layers_total=31, graph_splits=2)
    return sample.group(resolved=resolved, parts=parts, settings=sample.settings(n_gpu_layers=11, **settings))


def near(*parts: StepParts, **settings: Any) -> Parts:
    found = decode_parts(group(*parts, **settings), ())
    assert found is not None
    return found


def test_steps_alone_in_the_mean() -> None:
    steps = [part(host, layers, whole) for host, layers, whole in [(8, 3, 12), (9, 2, 11), (13, 1, 16)]]
    found = near(*steps, part(100, tokens=64, position_tokens=0))
    # Of 13 ms the host takes 10; of the rest the layers take two parts of three.
    assert (found.total_s, found.host_s, found.output_s) == pytest.approx((0.013, 0.010, 0.001))
    assert found.device_layer_s == pytest.approx(0.0002)
    assert found.ratio(31) == pytest.approx(7 / 13)
    assert found.host_share == pytest.approx(10 / 13)


def test_what_watching_makes_longer_is_told_from_the_unwatched() -> None:
    # Watched, layers and output take 6 ms; the step without leaves 3 for both.
    found = near(part(10, 4, 13, output_ms=2))
    assert found.device_layer_s == pytest.approx(0.0002)
    assert found.output_s == pytest.approx(0.001)


def test_where_the_parts_are_longer_than_the_whole_nothing_is_left_for_devices() -> None:
    found = near(part(host_ms=20, whole_ms=13))
    assert (found.device_layer_s, found.output_s) == (0, 0)
    assert found.ratio(31) == 0
    assert found.ratio(0) == pytest.approx(30 / 20)


def test_a_prompts_parts_alone_in_the_median() -> None:
    prompts = [
        part(host, layers, whole, output_ms=output, tokens=64, position_tokens=0)
        for host, layers, whole, output in [(99, 30, 135, 4), (100, 32, 140, 5), (300, 31, 350, 6)]
    ]
    found = prompt_parts(group(part(), *prompts))
    assert found is not None
    assert (found.host_s, found.device_layer_s, found.output_s) == pytest.approx((0.100, 0.0031, 0.005))
    assert found.crossing_s == pytest.approx(0.140 - 0.100 - 0.031 - 0.005)
    assert prompt_parts(group(part())) is None


@pytest.mark.parametrize(
    ("layers", "then_ms"),
    [
        (31, 30 * 0.2 + 1),  # all there: 0.2 ms each, and the output
        (99, 30 * 0.2 + 1),
        (11, 13.0),  # as now
        (21, 10 * 0.5 + 20 * 0.2 + 1),
        (1, 30 * 0.5 + 1),  # the output layer alone
        (0, 30 * 0.5 + 1 * 2.5),  # all here: the output is slower by what a layer is
    ],
)
def test_layers_take_what_they_take_in_each_memory(layers: int, then_ms: float) -> None:
    assert near(part()).ratio(layers) == pytest.approx(then_ms / 13)


def test_the_way_there_is_paid_as_long_as_anything_is_there() -> None:
    found = near(part(whole_ms=13.5, crossing_ms=0.5))
    assert found.crossing_s == pytest.approx(0.0005)
    assert found.ratio(31) == pytest.approx((13.5 - 20 * 0.3) / 13.5)
    assert found.ratio(21) == pytest.approx((13.5 - 10 * 0.3) / 13.5)
    # Without any there nothing crosses, and the output is slower by what a layer is.
    assert found.ratio(0) == pytest.approx((30 * 0.5 + 2.5) / 13.5)


def entering(*first_ms: float, behind: int = 9, whole_ms: float = 13.0, **changes: Any) -> list[StepParts]:
    """Steps whose first layer there is done after so long; those behind it take 1.8 ms."""
    return [
        part(
            10,
            first + 1.8,
            whole_ms,
            output_ms=1,
            first_device_layer_ns=round(first * MS),
            layers_behind_first=behind,
            **changes,
        )
        for first in first_ms
    ]


def test_what_a_stay_there_costs_is_not_the_layers() -> None:
    # 3 ms: 0.2 until the first of ten layers is done; of the rest nine layers take 1.8 parts, the output one.
    found = near(*entering(0.2))
    assert found.device_layer_s == pytest.approx(0.0002)
    assert (found.output_s, found.crossing_s, found.delay_s) == pytest.approx((0.001, 0, 0))
    found = near(*entering(0.65, whole_ms=13.45))
    assert found.crossing_s == pytest.approx(0.00045)
    assert found.ratio(31) == pytest.approx((13.45 - 20 * 0.3) / 13.45)


def test_waiting_for_what_slept_goes_with_the_layers_here() -> None:
    # The first layer is done 0.8 ms later in the mean than typically, and so is the step.
    found = near(*entering(0.2, 0.2, 2.6, whole_ms=13.8))
    assert found.delay_s == pytest.approx(0.0008)
    assert found.device_layer_s == pytest.approx(0.0002)
    assert found.ratio(31) == pytest.approx((13.8 - 20 * 0.3 - 0.8) / 13.8)
    assert found.ratio(21) == pytest.approx((13.8 - 10 * 0.3 - 0.4) / 13.8)
    assert found.ratio(1) == pytest.approx((13.8 + 10 * 0.3 + 0.4) / 13.8)


@pytest.mark.parametrize(
    ("round_trip_s", "is_counted"),
    [(0.0002, True), (0.005, False), (None, False)],
    ids=["one machine", "a network", "not known"],
)
def test_over_a_network_later_is_no_waiting(round_trip_s: float | None, is_counted: bool) -> None:
    steps = entering(0.2, 0.2, 2.6, whole_ms=13.8)
    link = LinkFacts(
        server="10.0.0.2:50052", round_trip_s=round_trip_s, to_bytes_s=None, from_bytes_s=None, unknown={}
    )
    found = decode_parts(group(*steps, rpc_servers=("10.0.0.2:50052",)), (link,))
    assert found is not None
    assert (found.delay_s > 0) is is_counted
    unknown = decode_parts(group(*steps, rpc_servers=("10.0.0.2:50052",)), ())
    assert unknown is not None
    assert unknown.delay_s == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"whole_ms": 0},
        {"host_layers": 0},
        {"device_layers": 0},
        {"host_ms": 0, "layers_ms": 0},
        {"layers_ms": 0, "output_ms": 0},
        {"first_device_layer_ns": 10**9, "layers_behind_first": 9},
    ],
)
def test_records_that_no_measuring_writes_are_no_traceback(changes: dict[str, Any]) -> None:
    found = decode_parts(group(part(**changes)), ())
    assert found is None or found.ratio(0) >= 0


@pytest.mark.parametrize(
    "settings", [{"n_cpu_moe": 4}, {"override_tensor": ("exps=CPU",)}, {"kv_offload": False}]
)
def test_where_tensors_lie_apart_from_their_layers_they_tell_nothing(settings: dict[str, Any]) -> None:
    assert decode_parts(group(part(), **settings), ()) is None
    assert decode_parts(group(), ()) is None


def test_few_layers_there_do_not_tell_what_one_takes() -> None:
    few, enough = near(part(host_layers=21, device_layers=9)), near(part(host_layers=20, device_layers=10))
    assert (few.tells_layers, enough.tells_layers) == (False, True)
    # Without ceilings nothing else tells.
    split = group(part(host_layers=21, device_layers=9))
    now = Now(decode_step_s=0.013, prefill_s=None, prompt_tokens=0, depth_tokens=64)
    assert elsewhere(sample.run(split, ceilings=()), split, now, 31) is None


def test_a_request_elsewhere_is_told_by_its_parts_without_ceilings() -> None:
    split = group(part(), part(200, 40, 242, output_ms=2, tokens=64, position_tokens=0))
    link = LinkFacts(server="127.0.0.1:50052", round_trip_s=0.0, to_bytes_s=1e9, from_bytes_s=1e9, unknown={})
    now = Now(decode_step_s=0.026, prefill_s=0.242, prompt_tokens=64, depth_tokens=64)
    found = elsewhere(sample.run(split, links=(link,)), split, now, 31)
    assert found is not None
    # The request ran at half the speed of its parts, and so would the other one.
    assert found.decode_step_s == pytest.approx(2 * 0.007)
    assert found.prefill_s == pytest.approx(30 * 0.004 + 0.002)


def test_the_verdict_tells_how_much_of_a_token_the_layers_here_take() -> None:
    gpu = sample.device(name="CUDA0", kind="gpu", memory_total_bytes=16 * 2**30, memory_free_bytes=16 * 2**30)
    layer_bytes = {"layer_bytes": (2 * 2**20,) * 30, "output_bytes": 28 * 2**20}
    split = sample.gpu_group(parts=(part(),), facts=sample.model(**layer_bytes))
    run = sample.run(split, engine=sample.engine(devices=(gpu,)), workload=sample.workload(64, 50))
    report = diagnosis_of_run(run)
    assert report.verdict == "offload-bound"
    assert "take 77 % of the time of each token" in " ".join(report.headline)
    layers = next(one for one in report.remedies if one.code == "gpu-layers")
    assert layers.basis == "what a layer took here and there in this run"
    assert report.ways[0].title == "How to place all layers on the device"
