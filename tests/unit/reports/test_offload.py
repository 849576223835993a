"""The offload model finds known costs again and says what layers on a device are worth."""

from __future__ import annotations

import dataclasses

import pytest
import sample_runs as sample

from probes.records import CellResult, CellSample, GroupResult, ModelFacts, Placement, Run
from reports.offload import read_split, sweeps
from reports.offload_section import offload_sections

MIB = 2**20
N_LAYERS = 10
MODEL = sample.model(
    n_layers=N_LAYERS,
    layer_bytes=(8 * MIB,) * N_LAYERS,
    output_bytes=20 * MIB,
    bytes_per_token=100 * MIB,
    model_bytes=100 * MIB,
)
PROMPT = 100


def times(host_mib: float, device_mib: float, *, crossings: int, host: float, device: float) -> float:
    """Seconds of a step: ms for each MiB on either side, 1 ms a crossing."""
    return 1e-3 * (host * host_mib + device * device_mib + crossings)


def group(layers: int, *, host: float = 1.0, device: float = 0.25) -> GroupResult:
    """The output layer is the first one to go: of `layers` on the device, one less is 8 MiB each."""
    on_device = 0 if layers == 0 else 20 + 8 * (layers - 1)
    crossings = 0 if layers == 0 else 1
    step = times(100 - on_device, on_device, crossings=crossings, host=host, device=device)
    samples = tuple(
        CellSample(
            pass_index=index,
            started_ns=0,
            head_ns=0,
            tail_ns=round(PROMPT * step * 1e8),
            decode_ns=(round(step * 1e9),) * 4,
        )
        for index in range(3)
    )
    cell = CellResult(prompt_tokens=PROMPT, output_tokens=4, status="ok", reason=None, samples=samples)
    places = [_place("CPU_Mapped", 100 - on_device)]
    places += [_place("RPC0[127.0.0.1:50052]", on_device)] if on_device else []
    resolved = sample.resolved(
        n_gpu_layers=layers, layers_total=11, graph_splits=1 + crossings, placements=tuple(places)
    )
    asked = sample.settings(n_gpu_layers=-1 if layers == 11 else layers)
    made = sample.group(cells=[cell])
    return dataclasses.replace(made, model=MODEL, settings=asked, resolved=resolved)


def _place(buffer: str, mib: int) -> Placement:
    return Placement(buffer=buffer, model_bytes=mib * MIB, kv_bytes=0, compute_bytes=0, output_bytes=0)


def run(*groups: GroupResult) -> Run:
    return dataclasses.replace(sample.run(), groups=groups)


def _moved(layers: int, placed_mib: int, model: ModelFacts = MODEL) -> GroupResult:
    """Patterns left this much on the device."""
    made = group(layers)
    assert made.resolved is not None
    places = (_place("CPU_Mapped", 100 - placed_mib), _place("RPC0[127.0.0.1:50052]", placed_mib))
    return dataclasses.replace(
        made,
        model=model,
        settings=dataclasses.replace(made.settings, override_tensor=("blk.*=CPU",)),
        resolved=dataclasses.replace(made.resolved, placements=places),
    )


def test_where_patterns_moved_tensors_a_sweep_counts_what_was_placed() -> None:
    (sweep,) = sweeps(run(_moved(4, 30), _moved(8, 50), _moved(11, 100)))
    assert [point.device_bytes / MIB for point in sweep.points] == [30, 50, 100]
    assert [point.host_bytes / MIB for point in sweep.points] == [70, 50, 0]


def test_of_experts_that_were_placed_the_share_in_use_counts() -> None:
    # Of 8 MiB a layer 6 are experts, of which a token reads a third: 20 + 10 * (2 + 2) MiB in all.
    experts = dataclasses.replace(
        MODEL,
        layer_expert_bytes=(6 * MIB,) * N_LAYERS,
        n_experts=9,
        n_experts_used=3,
        bytes_per_token=60 * MIB,
    )
    (sweep,) = sweeps(run(_moved(10, 38, experts), _moved(11, 70, experts)))
    # Ten layers have 20 + 9 * 2 MiB without experts; eleven 40, and 30 of experts are there.
    assert [point.device_bytes / MIB for point in sweep.points] == [38, 50]


@pytest.mark.parametrize(("layers", "on_device"), [(0, 0), (1, 20), (4, 44), (10, 92), (11, 100), (99, 100)])
def test_the_output_layer_goes_first_and_then_from_the_last(layers: int, on_device: int) -> None:
    assert read_split(MODEL, layers) == ((100 - on_device) * MIB, on_device * MIB)


def test_of_experts_the_share_in_use_counts_where_they_lie() -> None:
    experts = dataclasses.replace(
        MODEL,
        layer_expert_bytes=(4 * MIB,) * N_LAYERS,
        n_experts=8,
        n_experts_used=2,
        bytes_per_token=20 * MIB + 10 * 5 * MIB,  # 4 MiB of each layer, and a quarter of 4 MiB of experts
    )
    assert read_split(experts, 11) == (0, 70 * MIB)
    # Three layers leave their experts on the host: 3 * 1 MiB.
    assert read_split(experts, 11, n_cpu_moe=3) == (3 * MIB, 67 * MIB)


def test_a_header_without_sizes_of_layers_is_split_by_their_number() -> None:
    plain = dataclasses.replace(MODEL, layer_bytes=())
    assert read_split(plain, 0) == (100 * MIB, 0)
    assert read_split(plain, 11) == (0, 100 * MIB)


def test_costs_of_both_memories_and_of_crossing_are_found() -> None:
    found = sweeps(run(*(group(layers) for layers in (0, 4, 8, 10, 11))))
    assert len(found) == 1
    sweep = found[0]
    assert sweep.decode
    host, device, crossing = sweep.decode.coefficients
    assert host * MIB == pytest.approx(1e-3, rel=1e-3)
    assert device * MIB == pytest.approx(0.25e-3, rel=1e-3)
    assert crossing == pytest.approx(1e-3, rel=1e-2)
    assert sweep.device == "RPC0"
    assert sweep.total == 11


def test_a_fast_device_is_best_with_all_layers() -> None:
    sweep = sweeps(run(*(group(layers) for layers in (0, 4, 8, 10, 11))))[0]
    assert sweep.best
    assert sweep.best.layers == 11
    assert sweep.device_helps is True
    section = offload_sections(run(*(group(layers) for layers in (0, 4, 8, 10, 11))))[0]
    assert section.sentences[0].startswith("Best with 11 of 11 layers on RPC0")


def test_a_slow_device_is_advised_off() -> None:
    groups = [group(layers, device=4.0) for layers in (0, 4, 11)]
    sweep = sweeps(run(*groups))[0]
    assert sweep.best
    assert sweep.best.layers == 0
    assert sweep.device_helps is False
    section = offload_sections(run(*groups))[0]
    assert section.sentences[0].startswith("Keep layers off RPC0")
    assert [row[-1] for row in section.table.rows] == ["best", "", ""]


def test_no_difference_is_said_as_such() -> None:
    groups = [group(layers, device=0.99) for layers in (0, 11)]
    section = offload_sections(run(*groups))[0]
    assert "makes no difference that can be seen" in section.sentences[0]
    assert sweeps(run(*groups))[0].device_helps is None


def test_a_last_step_that_saves_far_more_is_a_cliff() -> None:
    # Crossing ends with the last layer: 11 of 11 saves 8 ms of bytes and far more of waiting.
    groups = [group(layers, device=0.9) for layers in (0, 4, 8, 10)]
    last = group(11, device=0.2)
    sweep = sweeps(run(*groups, last))[0]
    assert sweep.cliff
    assert sweep.cliff.layers == 11
    even = sweeps(run(*(group(layers) for layers in (0, 4, 8, 10, 11))))[0]
    assert even.cliff is None


def test_two_settings_carry_no_cost_of_crossing() -> None:
    sweep = sweeps(run(group(0), group(11)))[0]
    assert sweep.decode
    assert sweep.decode.coefficients[2] == 0


@pytest.mark.parametrize(
    "groups",
    [
        (group(4),),
        (group(4), group(4)),
        (group(0), dataclasses.replace(group(11), settings=sample.settings(n_gpu_layers=-1, threads=1))),
        (group(0), dataclasses.replace(group(11), resolved=None)),
        (group(0), dataclasses.replace(group(11), cells=())),
    ],
)
def test_what_does_not_differ_in_layers_alone_is_no_sweep(groups: tuple[GroupResult, ...]) -> None:
    assert sweeps(run(*groups)) == ()
