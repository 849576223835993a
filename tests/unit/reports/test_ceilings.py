"""Roofs and shares, against sums done by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from sample_runs import MIB, ceiling, cell, gpu_group, group, model, resolved

from probes.records import CellResult, DeviceCeiling, GroupResult, KernelRate, Placement
from reports.ceilings import CeilingReport, PhaseShare, assess, sentence
from reports.roofs import Roof, UnknownRoofError, decode_roof, prefill_roof

N_CTX = 2048


def vector(weight_type: str, bytes_s: float, rows: int = 8192, columns: int = 4096) -> KernelRate:
    """A matrix-vector product of four-bit (Q4_1: 20 bytes for 32) or eight-bit (34) weights."""
    n_bytes = rows * columns // 32 * (20 if weight_type == "Q4_1" else 34)
    return KernelRate(
        rows=rows,
        columns=columns,
        batch=1,
        weight_type=weight_type,
        seconds=n_bytes / bytes_s,
        weight_bytes=n_bytes,
    )


def batch(weight_type: str, flops_s: float, side: int = 2048) -> KernelRate:
    n_bytes = side * side // 32 * (20 if weight_type == "Q4_1" else 34)
    return KernelRate(
        rows=side,
        columns=side,
        batch=512,
        weight_type=weight_type,
        seconds=2 * side * side * 512 / flops_s,
        weight_bytes=n_bytes,
    )


def cpu(**changes: Any) -> DeviceCeiling:
    """Q4_1 at 10 GB/s and 50 GFLOP/s, Q8_0 at 20 GB/s and 100 GFLOP/s, 1 µs an operation."""
    rates = (vector("Q4_1", 10e9), vector("Q8_0", 20e9), batch("Q4_1", 50e9), batch("Q8_0", 100e9))
    return ceiling(**{"rates": rates, **changes})


def gpu(**changes: Any) -> DeviceCeiling:
    """Ten times the CPU's rates, 5 GB/s from the host."""
    device = {
        "device": "CUDA0",
        "threads": None,
        "memory_bytes_s": 200e9,
        "compute_flops_s": 1000e9,
        "operation_s": 2e-6,
        "transfer_bytes_s": 5e9,
        "rates": (vector("Q4_1", 200e9), batch("Q4_1", 1000e9)),
    }
    return ceiling(**{**device, **changes})


def simple(
    cells: tuple[CellResult, ...] = (), buffers: tuple[Placement, ...] = (), **facts: Any
) -> GroupResult:
    """40 MB of Q4_1 in layers (64 M weights) and 34 MB of Q8_0 in the output layer (32 M weights): 1,000
    words of 32,000 numbers each would do; 100 graph nodes; 8 MiB of cache for 2,048 tokens."""
    place = Placement(
        buffer="CPU_Mapped", model_bytes=74_000_000, kv_bytes=8 * MIB, compute_bytes=0, output_bytes=0
    )
    plain = {
        "n_params": 96_000_000,
        "n_vocab": 32_000,
        "n_embd": 1000,
        "n_layers": 10,
        "model_bytes": 74_000_000,
        "bytes_per_token": 74_000_000,
        "bytes_by_type": {"Q4_1": 40_000_000, "Q8_0": 34_000_000},
    }
    return group(
        cells=cells,
        facts=model(**(plain | facts)),
        resolved=resolved(n_ctx=N_CTX, graph_nodes=100, placements=buffers or (place,)),
    )


OUTPUT = vector("Q8_0", 20e9, rows=32_000, columns=1000)
WITH_OUTPUT = cpu(rates=(*cpu().rates, OUTPUT))


def one(report: CeilingReport, phase: str) -> PhaseShare:
    (share,) = report.decode if phase == "decode" else report.prefill
    return share


def test_a_decode_step_reads_weights_and_cache_and_runs_the_graph() -> None:
    roof = decode_roof(simple(), [cpu()], 1024)
    # 40 MB at 10 GB/s + 34 MB at 20 GB/s = 4 ms + 1.7 ms
    assert roof.weights_s == pytest.approx(5.7e-3)
    # half of 8 MiB at the best rate, 20 GB/s
    assert roof.attention_s == pytest.approx(4 * MIB / 20e9)
    # 100 nodes of 1 µs
    assert roof.operations_s == pytest.approx(1e-4)
    assert roof.total_s == pytest.approx(5.7e-3 + 4 * MIB / 20e9 + 1e-4)


def test_a_prompt_multiplies_the_layers_and_reads_the_output_once() -> None:
    roof = prefill_roof(simple(), [WITH_OUTPUT], 768)
    # 2 x 64 M weights x 768 tokens at 50 GFLOP/s = 1.96608 s; one output row: 34 MB at 20 GB/s = 1.7 ms
    assert roof.weights_s == pytest.approx(1.96608 + 1.7e-3)
    # 4 x 10 layers x 1,000 wide x (0 + 1 + ... + 767) = 40,000 x 294,528 at 100 GFLOP/s
    assert roof.attention_s == pytest.approx(40_000 * 294_528 / 100e9)
    # 512 + 256: two micro-batches, two graphs of 100 nodes
    assert roof.operations_s == pytest.approx(2e-4)


def test_a_short_prompt_can_not_beat_reading_the_weights() -> None:
    roof = prefill_roof(simple(), [WITH_OUTPUT], 1)
    # 2 x 64 M at 50 GFLOP/s is 2.56 ms; 40 MB at 10 GB/s is 4 ms; the output row 1.7 ms
    assert roof.weights_s == pytest.approx(5.7e-3)


def test_an_output_that_was_not_measured_is_taken_off_at_the_average() -> None:
    roof = prefill_roof(simple(bytes_by_type={"Q4_1": 74_000_000}), [cpu()], 512)
    # 32 M of 96 M weights are the output: a third of the bytes, 49.333 MB of Q4_1 remain, 78.933 M weights.
    layers = 74e6 * 2 / 3 / (20 / 32)
    assert roof.weights_s == pytest.approx(2 * layers * 512 / 50e9 + 74e6 / 3 / 10e9)


def test_the_models_own_shapes_count_where_caches_serve_it_faster() -> None:
    own = vector("Q4_1", 40e9, rows=1000, columns=992)
    roof = decode_roof(simple(), [cpu(rates=(*cpu().rates, own))], 0)
    assert roof.weights_s == pytest.approx(40e6 / 40e9 + 34e6 / 20e9)


def test_a_format_that_was_not_measured_is_read_at_the_best_rate() -> None:
    facts = {"bytes_by_type": {"F32": 74_000_000}}
    assert decode_roof(simple(**facts), [cpu()], 0).weights_s == pytest.approx(74e6 / 20e9)


def test_windows_and_states_need_less_than_a_full_cache() -> None:
    windowed = prefill_roof(simple(attention="sliding-window", sliding_window_tokens=100), [cpu()], 300)
    # 0 + 1 + ... + 99 = 4,950, then 200 tokens that look back 100 each
    assert windowed.attention_s == pytest.approx(40_000 * (4950 + 20_000) / 100e9)
    recurrent = simple(attention="recurrent", sliding_window_tokens=None)
    assert prefill_roof(recurrent, [cpu()], 300).attention_s == 0
    # The state is read whole at any depth.
    assert decode_roof(recurrent, [cpu()], 0).attention_s == pytest.approx(8 * MIB / 20e9)


def test_layers_that_attend_to_everything_count_in_full_beside_windowed_ones() -> None:
    # Four of five layers are windowed: 100 tokens, and with a micro-batch of 512 a cache of 768 cells each.
    facts = {
        "attention": "sliding-window",
        "sliding_window_tokens": 100,
        "layer_windowed": (True, True, True, True, False) * 2,
        "layer_kv_elements": (10,) * 10,
    }
    roof = prefill_roof(simple(**facts), [cpu()], 300)
    # 8 layers as above; 2 whose tokens look back 0 + 1 + ... + 299 = 44,850
    assert roof.attention_s == pytest.approx(4 * 1000 * (8 * (4950 + 20_000) + 2 * 44_850) / 100e9)
    # Held: 8 x 768 + 2 x 2,048 cells, of 8 MiB; read at a depth of 1,024: 8 x 100 + 2 x 1,024.
    decode = decode_roof(simple(**facts), [cpu()], 1024)
    assert decode.attention_s == pytest.approx(8 * MIB * (800 + 2048) / (6144 + 4096) / 20e9)
    assert decode_roof(simple(**facts), [cpu()], 0).attention_s == 0


def test_experts_are_read_by_the_share_in_use() -> None:
    facts = {"n_experts": 4, "n_experts_used": 1, "bytes_per_token": 37_000_000}
    assert decode_roof(simple(**facts), [cpu()], 0).weights_s == pytest.approx(5.7e-3 / 2)


def split(**facts: Any) -> GroupResult:
    """30 of 40 MB on the device, with three quarters of the cache."""
    plain = {
        "model_bytes": 40_000_000,
        "bytes_per_token": 40_000_000,
        "bytes_by_type": {"Q4_1": 40_000_000},
        "n_vocab": None,
    }
    places = (
        Placement(
            buffer="CPU_Mapped", model_bytes=10_000_000, kv_bytes=2 * MIB, compute_bytes=0, output_bytes=0
        ),
        Placement(buffer="CUDA0", model_bytes=30_000_000, kv_bytes=6 * MIB, compute_bytes=0, output_bytes=0),
    )
    return simple(buffers=places, **(plain | facts))


def test_each_device_reads_what_it_holds() -> None:
    roof = decode_roof(split(), [cpu(), gpu()], N_CTX)
    # 10 MB at 10 GB/s + 30 MB at 200 GB/s
    assert roof.weights_s == pytest.approx(1e-3 + 0.15e-3)
    assert roof.attention_s == pytest.approx(2 * MIB / 20e9 + 6 * MIB / 200e9)
    # A quarter of the 100 nodes at 1 µs, the rest at 2 µs
    assert roof.operations_s == pytest.approx(25e-6 + 150e-6)


def test_an_embedding_table_left_on_the_host_is_not_read() -> None:
    """The table of 10 MB lies on the host alone: a token reads one row of it."""
    roof = decode_roof(split(bytes_per_token=30_000_000), [cpu(), gpu()], 0)
    assert roof.weights_s == pytest.approx(30e6 / 200e9)


def test_host_weights_are_multiplied_where_that_is_sooner_done() -> None:
    group_ = split()
    # 512 tokens: the host's 16 M weights take 2 x 16 M x 512 / 50 GFLOP/s = 328 ms there, copied at 5 GB/s
    # and multiplied by the device 2 ms + 16.4 ms. The device's own 48 M weights take 49.2 ms.
    assert prefill_roof(group_, [cpu(), gpu()], 512).weights_s == pytest.approx(2e-3 + 16.384e-3 + 49.152e-3)
    # 31 tokens stay where the weights are: 19.84 ms, and 2.976 ms on the device.
    assert prefill_roof(group_, [cpu(), gpu()], 31).weights_s == pytest.approx(19.84e-3 + 2.976e-3)


def test_batch_threads_have_a_ceiling_of_their_own() -> None:
    few = simple()
    asked = dataclasses.replace(
        few, resolved=resolved(n_ctx=N_CTX, graph_nodes=100, threads=2, threads_batch=4)
    )
    four = cpu(threads=4, rates=(vector("Q4_1", 10e9), batch("Q4_1", 500e9), batch("Q8_0", 500e9)))
    assert decode_roof(asked, [cpu(), four], 0) == decode_roof(asked, [cpu()], 0)
    assert prefill_roof(asked, [cpu(), four], 512).weights_s < prefill_roof(few, [cpu()], 512).weights_s
    with pytest.raises(UnknownRoofError, match="with 2 threads, the run used 4"):
        prefill_roof(asked, [cpu()], 512)


@pytest.mark.parametrize(
    ("ceilings", "why"),
    [
        ((), "CPU's ceiling was not measured"),
        ((cpu(),), "no ceiling was measured for CUDA0"),
        (
            (cpu(), gpu(memory_bytes_s=None, rates=(), unknown={"rates": "device: it does not open"})),
            "not open",
        ),
    ],
)
def test_a_roof_that_can_not_be_told_says_why(ceilings: tuple[DeviceCeiling, ...], why: str) -> None:
    with pytest.raises(UnknownRoofError, match=why):
        decode_roof(gpu_group(), ceilings, 0)
    report = assess(gpu_group(cells=(cell(512),)), ceilings)
    assert one(report, "decode").share is None
    assert why in (one(report, "decode").reason or "")
    assert report.notices == ()
    assert why in sentence(one(report, "decode"))


def test_roofs_of_figures_that_can_not_be() -> None:
    """A run file may hold any number: 2^31 tokens in micro-batches of one, matrices of no size."""
    group = simple()
    assert group.resolved is not None
    tiny = dataclasses.replace(group, resolved=dataclasses.replace(group.resolved, n_ubatch=1))
    # Each batch of one token reads the 40 MB of the layers at 10 GB/s: 4 ms.
    assert prefill_roof(tiny, [WITH_OUTPUT], 2**31 - 1).weights_s == pytest.approx(2**31 * 0.004)
    none = dataclasses.replace(group, resolved=dataclasses.replace(group.resolved, n_ubatch=0))
    with pytest.raises(UnknownRoofError, match="no tokens"):
        prefill_roof(none, [cpu()], 512)
    empty = dataclasses.replace(vector("Q4_1", 10e9), rows=0)
    assert prefill_roof(group, [cpu(rates=(empty,))], 512).total_s > 0


def test_shares_are_least_over_measured_time() -> None:
    """The sample cell: 512 prompt tokens take 2 + 2.2 x 512 + 0.00035 x 512^2 = 1,220 ms, a step 6.6 ms +
    0.6 µs a token of depth, at a mean depth of 512 + 15.5; a few of its 32 steps stutter by 40 µs."""
    report = assess(simple(cells=(cell(512),)), [cpu(rates=(*WITH_OUTPUT.rates, batch("Q4_1", 100e9)))])
    step_s = 6.6e-3 + 0.6e-6 * 527.5
    decode = one(report, "decode")
    assert decode.roof is not None
    # 5.7 ms + 100 µs + 527.5 of 2,048 cells of 8 MiB at 20 GB/s
    assert decode.roof.total_s == pytest.approx(5.8e-3 + 8 * MIB * 527.5 / 2048 / 20e9)
    assert decode.share == pytest.approx(decode.roof.total_s / step_s, rel=0.01)
    assert decode.measured_tokens_s == pytest.approx(1 / step_s, rel=0.01)
    assert decode.allowed_tokens_s == pytest.approx(1 / decode.roof.total_s)
    assert sentence(decode).startswith("Decode runs at 85 % of what this machine can do with this model: 14")
    prefill = one(report, "prefill")
    assert prefill.roof is not None
    # 2 x 64 M x 512 / 100 GFLOP/s = 655 ms, 1.7 ms for the output row, 52 ms of attention, 0.1 ms of graph
    assert prefill.roof.total_s == pytest.approx(0.65536 + 1.7e-3 + 40_000 * 130_816 / 100e9 + 1e-4)
    assert prefill.share == pytest.approx(prefill.roof.total_s / 1.2202, rel=0.01)
    assert report.notices == ()


def test_no_prompt_has_no_prefill() -> None:
    report = assess(simple(cells=(cell(0),)), [cpu()])
    assert report.prefill == ()
    assert one(report, "decode").prompt_tokens == 0


def test_more_than_the_ceiling_is_an_error_of_measurement_with_both_numbers() -> None:
    """Twice the sample's speed is 3.3 ms a step at an empty cache, where 5.8 ms are the least."""
    report = assess(simple(cells=(cell(0, speed=2.0), cell(512, speed=2.0))), [WITH_OUTPUT])
    assert [share.share for share in report.decode] == [None, None]
    assert all("error of measurement" in (share.reason or "") for share in report.decode)
    decode = next(notice for notice in report.notices if notice.phase == "decode")
    assert decode.code == "over-ceiling"
    assert decode.prompt_tokens == (0, 512)
    assert "An error of measurement" in decode.text
    # 1 / 3.31 ms and 1 / 5.807 ms: 15.5 tokens deep on average
    assert "302 tok/s" in decode.text
    assert "172 tok/s" in decode.text or "171 tok/s" in decode.text
    assert "%" not in decode.text


def test_a_hair_above_the_ceiling_is_the_ceiling() -> None:
    """Steps of 6.6 / 1.16 = 5.69 ms and a roof of 5.8 ms: 1.9 % within what both sides are known to."""
    report = assess(simple(cells=(cell(0, speed=1.16, output_tokens=4),)), [cpu()])
    assert one(report, "decode").share == 1.0
    assert report.notices == ()


def test_what_a_roof_leaves_out_is_listed() -> None:
    bare = simple(attention="hybrid")
    assert bare.resolved is not None
    without = dataclasses.replace(bare, resolved=dataclasses.replace(bare.resolved, graph_nodes=None))
    doubtful = cpu(unknown={"memory_bytes_s": "caches: their size is not known, they may have helped"})
    unknown = assess(without, [doubtful]).unknown
    assert any("CPU: memory_bytes_s: caches" in text for text in unknown)
    assert any("operations" in text for text in unknown)
    assert any("attention" in text for text in unknown)
    assert decode_roof(without, [doubtful], 0).operations_s == 0


def test_a_group_that_was_not_loaded_has_no_shares() -> None:
    failed = dataclasses.replace(simple(), resolved=None)
    report = assess(failed, [cpu()])
    assert (report.prefill, report.decode) == ((), ())
    with pytest.raises(UnknownRoofError, match="not loaded"):
        decode_roof(failed, [cpu()], 0)


def test_parts_of_a_roof_add_up() -> None:
    assert Roof(weights_s=1.0, attention_s=0.5, operations_s=0.25).total_s == 1.75
