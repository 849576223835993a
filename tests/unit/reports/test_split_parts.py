"""What a split model would take with its layers elsewhere, by its parts in this run: each sum by hand."""

from __future__ import annotations

from typing import Any

import pytest
import sample_runs as sample

from probes.records import GroupResult, LinkFacts, StepParts
from reports.diagnosis_report import diagnosis_of_run
from reports.other_placements import Now, elsewhere
from reports.split_parts import decode_parts, prompt_parts

MS = 1_000_000


def part(
    host_ms: float = 10,
    layers_ms: float = 2,
    whole_ms: float = 13,
    *,
    crossing_ms: float = 0.0,
    watching_ms: float = 0.0,
    output_ms: float = 1.0,
    **changes: Any,
) -> StepParts:
    """20 layers here and ten there; `layers_ms` is what those take when nobody watches."""
    facts = {"tokens": 1, "position_tokens": 64, "host_layers": 20, "device_layers": 10} | changes
    return StepParts(
        host_ns=round(host_ms * MS),
        crossing_ns=round(crossing_ms * MS),
        device_ns=round((layers_ms + watching_ms) * MS),
        output_ns=round(output_ms * MS),
        watched_ns=round((whole_ms + watching_ms) * MS),
        whole_ns=(round(whole_ms * MS),),
        **facts,
    )


def group(*parts: StepParts, **settings: Any) -> GroupResult:
    resolved = sample.resolved(n_gpu_layers=11, layers_total=31, graph_splits=2)
    return sample.group(resolved=resolved, parts=parts, settings=sample.settings(n_gpu_layers=11, **settings))


def test_steps_alone_and_what_is_least_disturbed() -> None:
    times = [(8, 11), (8, 11), (9, 12), (10, 13), (11, 39.875)]
    steps = [part(host, whole_ms=whole) for host, whole in times]
    found = decode_parts(group(*steps, part(100, tokens=64, position_tokens=0)))
    assert found is not None
    # Undisturbed: 8 of 11 ms; so 1 is the output's. The mean of 17.375 ms is 1.2568 ** 2 times as long.
    disturbed = (17.375 / 11) ** 0.5
    parts = (found.host_s, found.device_layer_s, found.output_s)
    assert parts == pytest.approx((disturbed * 0.008, disturbed * 0.0002, disturbed * 0.001))
    # The rest of the mean belongs to no layer, and is gone when all are there.
    assert found.whole_s == pytest.approx(0.017375)
    assert found.crossing_s == pytest.approx(0.017375 - disturbed * 0.011)
    assert found.ratio(31, 0.0) == pytest.approx(disturbed * 7 / 17.375)
    assert found.host_share == pytest.approx(disturbed * 8 / 17.375)


def test_what_keeps_the_device_waiting_is_not_the_outputs() -> None:
    found = decode_parts(group(part(whole_ms=16, output_ms=1)))
    assert found is not None
    assert (found.output_s, found.crossing_s) == pytest.approx((0.001, 0.003))


def test_where_noise_met_the_parts_alone_their_sum_is_the_whole() -> None:
    found = decode_parts(group(part(host_ms=20, whole_ms=13, watching_ms=9)))
    assert found is not None
    assert found.host_share == pytest.approx(20 / (20 + 10 * found.device_layer_s * 1e3))
    assert 0 < found.ratio(31, 0.0) < 1


def test_watching_costs_a_prompt_what_it_costs_a_step() -> None:
    prompt = part(100, 30, 140, watching_ms=20, tokens=64, position_tokens=0)
    found = prompt_parts(group(part(watching_ms=1), prompt))
    assert found is not None
    # 0.1 ms of 5 for each of ten layers.
    assert found.device_layer_s == pytest.approx(0.0049)
    alone = prompt_parts(group(prompt))
    assert alone is not None
    assert alone.device_layer_s == pytest.approx(0.005)


def test_a_prompts_parts_alone() -> None:
    prompts = prompt_parts(group(part(), part(100, tokens=64, position_tokens=0)))
    assert prompts is not None
    assert prompts.host_s == pytest.approx(0.100)


@pytest.mark.parametrize(
    ("layers", "then_ms"),
    [
        (31, 30 * 0.2 + 1),  # all there: 0.2 ms each, and the output
        (11, 13.0),  # as now
        (21, 10 * 0.5 + 20 * 0.2 + 1),
        (1, 30 * 0.5 + 1),  # the output layer alone
        (0, 30 * 0.5 + 1 * 2.5),  # all here: the output is slower by what a layer is
    ],
)
def test_layers_take_what_they_take_in_each_memory(layers: int, then_ms: float) -> None:
    found = decode_parts(group(part()))
    assert found is not None
    assert found.ratio(layers, 0.0) == pytest.approx(then_ms / 13)


def test_with_all_layers_there_the_networks_share_of_the_crossing_is_left() -> None:
    found = decode_parts(group(part(crossing_ms=0.5)))
    assert found is not None
    assert found.output_s == pytest.approx(0.0005)
    assert found.ratio(31, 0.0001) == pytest.approx((13 - 20 * 0.3 - 0.4) / 13)
    # A network that was slower when it was measured alone costs no more than the crossing does now.
    assert found.ratio(31, 1.0) == pytest.approx((13 - 20 * 0.3) / 13)
    assert found.ratio(21, 0.0001) == pytest.approx((13 - 10 * 0.3) / 13)
    # Without any there nothing crosses, and the output is slower by what a layer is.
    assert found.ratio(0, 0.0001) == pytest.approx((30 * 0.5 + 0.5 * 2.5) / 13)


def test_what_a_stay_there_costs_is_not_the_layers() -> None:
    # The first of ten layers takes 0.65 of 2 ms, the other nine 0.15 each.
    found = decode_parts(group(part(first_device_layer_ns=650_000, layers_behind_first=9)))
    assert found is not None
    assert found.device_layer_s == pytest.approx(0.00015)
    assert (found.output_s, found.crossing_s) == pytest.approx((0.001, 0.0005))
    assert found.ratio(21, 0.0) == pytest.approx((13 - 10 * (0.5 - 0.15)) / 13)


@pytest.mark.parametrize(
    ("watching_ms", "layer_ms"),
    [
        (0.6, 0.2),
        (-0.6, 0.14),  # by noise the watched one was quicker: nothing is taken off
        (6.0, 0.4),  # 0.8 a layer as seen: never below half of that
    ],
)
def test_what_watching_costs_is_no_layers_time(watching_ms: float, layer_ms: float) -> None:
    found = decode_parts(group(part(watching_ms=watching_ms)))
    assert found is not None
    assert found.device_layer_s == pytest.approx(layer_ms / 1000)


@pytest.mark.parametrize(
    "changes",
    [{"whole_ms": 0}, {"host_layers": 0}, {"device_layers": 0}, {"host_ms": 0, "layers_ms": 0}],
)
def test_records_that_no_measuring_writes_are_no_traceback(changes: dict[str, Any]) -> None:
    found = decode_parts(group(part(**changes)))
    assert found is None or found.ratio(0, 0.0) >= 0


@pytest.mark.parametrize(
    "settings", [{"n_cpu_moe": 4}, {"override_tensor": ("exps=CPU",)}, {"kv_offload": False}]
)
def test_where_tensors_lie_apart_from_their_layers_they_tell_nothing(settings: dict[str, Any]) -> None:
    assert decode_parts(group(part(), **settings)) is None
    assert decode_parts(group()) is None


def test_few_layers_there_do_not_tell_what_one_takes() -> None:
    few = decode_parts(group(part(host_layers=21, device_layers=9)))
    enough = decode_parts(group(part(host_layers=20, device_layers=10)))
    assert few is not None
    assert enough is not None
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
