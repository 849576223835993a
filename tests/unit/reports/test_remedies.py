"""Each lever's figure is the sum that its basis says; what saves little is no advice; nothing is made up."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import sample_runs as sample
from hypothesis import given
from hypothesis import strategies as st

from reports.evidence import Evidence, OtherKernels
from reports.phases import fit_phases
from reports.remedies import LEAST_SHARE, Remedy, Trial, futile, remedies
from reports.run_evidence import run_evidence

GB = 10**9
TOOLS = {"llmphase", "llama.cpp", "ollama", "lm-studio"}


def by_code(evidence: Evidence, **others: Any) -> dict[str, Remedy]:
    return {remedy.code: remedy for remedy in remedies(evidence, **others)}


def on_cpu(**facts: Any) -> Evidence:
    return Evidence(backend="cpu", gpu_present=False, **facts)


def with_gpu(**facts: Any) -> Evidence:
    return Evidence(backend="cuda", gpu_present=True, architecture_is_moe=False, **facts)


def of_run(prompt: int, output: int, *, start: str = "loaded", **changes: Any) -> dict[str, Remedy]:
    run = sample.run(**changes)
    evidence = run_evidence(run, 0, sample.workload(prompt, output, start=start))
    return by_code(evidence, model=fit_phases(run.groups[0]))


def test_half_the_prompt_saves_more_than_half_of_it() -> None:
    half = of_run(2048, 4)["prompt-half"]
    # Prefill 2.0 + 2.2 n + 0.00035 n^2 ms: 5975.6 at 2048, 2621.8 at 1024; some ms of decode and beside.
    assert half.saved_s == pytest.approx(3.354, rel=0.02)
    assert half.low_s is not None
    assert half.high_s is not None
    assert half.predicted_wait_s is not None
    assert half.low_s <= half.predicted_wait_s <= half.high_s
    assert half.try_with == Trial(workload={"prompt_tokens": 1024, "cached_tokens": 0})


def test_a_cached_prefix_leaves_one_step_and_says_at_best() -> None:
    cached = of_run(2048, 4)["prefix-cached"]
    assert cached.saved_s == pytest.approx(5.97, rel=0.01)
    assert "at best" in cached.basis
    # Half cached: the second 1024 tokens cost 5975.6 - 2621.8 ms and stay.
    assert cached.high_s is not None
    assert cached.high_s == pytest.approx(3.38, rel=0.05)


def test_the_crossover_prompt_costs_what_the_answer_does() -> None:
    crossing = of_run(2048, 200)["prompt-to-crossover"]
    assert crossing.try_with is not None
    tokens = crossing.try_with.workload["prompt_tokens"]
    read = sample.prefill_ns(tokens)
    written = sum(sample.decode_step_ns(tokens + step) for step in range(199))
    assert read == pytest.approx(written, rel=0.03)


def test_half_the_answer() -> None:
    half = of_run(16, 200)["output-half"]
    # 100 of 199 steps of 6.6 ms + 0.6 us * depth, depth 166 on average, and 100 draws of 94 us.
    assert half.saved_s == pytest.approx(100 * 0.0067 + 100 * 94e-6, rel=0.02)


def test_a_smaller_quantization_saves_decode_alone() -> None:
    first = of_run(16, 200)["quantization-down-1"]
    # Q3 over Q4: 3.996 / 4.894 = 0.816 of the bytes; between half and all of 1.33 s of decode reads weights.
    decode = sum(sample.decode_step_ns(16 + step) for step in range(199)) / 1e9
    assert first.saved_s == pytest.approx(decode * 0.1836 * 0.75, rel=0.02)
    assert first.predicted_wait_s is not None
    assert first.low_s == pytest.approx(first.predicted_wait_s - decode * 0.1836 * 0.25, rel=0.02)
    assert first.try_with == Trial(quantization="Q3_K_M")


def kernels(name: str, step: tuple[float, float], prompt_token: tuple[float, float]) -> OtherKernels:
    return OtherKernels(
        name=name,
        step_now_s=step[0],
        step_then_s=step[1],
        prompt_token_now_s=prompt_token[0],
        prompt_token_then_s=prompt_token[1],
    )


def test_where_its_kernels_were_measured_a_smaller_quantization_changes_both_phases() -> None:
    found = by_code(
        on_cpu(
            quantization="Q4_1",
            n_prompt=400,
            n_output=101,
            prefill_s=2.0,
            decode_s=1.5,
            other_quantizations=(kernels("Q3_K_M", (0.008, 0.006), (0.003, 0.0015)),),
        )
    )
    # 100 steps of 2 ms less, 400 prompt tokens of 1.5 ms less; Q2_K was not measured: by its bytes.
    first = found["quantization-down-1"]
    assert first.saved_s == pytest.approx(0.2 + 0.6)
    assert "2.00 ms less, a prompt token 1.50 ms less" in first.basis
    assert "of the bytes" in found["quantization-down-2"].basis


def test_a_quantization_whose_kernels_are_slower_is_no_advice() -> None:
    facts = {"quantization": "Q8_0", "n_prompt": 400, "n_output": 101, "prefill_s": 2.0, "decode_s": 1.5}
    slower = (kernels("Q6_K", (0.008, 0.012), (0.003, 0.004)),)
    assert "quantization-down-1" in by_code(on_cpu(**facts))
    assert "quantization-down-1" not in by_code(on_cpu(**facts, other_quantizations=slower))


def test_a_large_model_is_not_quantized_for_a_trial() -> None:
    large = sample.group(model=sample.model(model_bytes=5 * 2**30))
    found = {
        one.code: one for one in remedies(run_evidence(sample.run(large), workload=sample.workload(16, 200)))
    }
    assert found["quantization-down-1"].try_with is None


def test_keeping_the_model_loaded_saves_the_load() -> None:
    kept = of_run(16, 4, start="cold")["keep-loaded"]
    assert kept.saved_s == pytest.approx(0.450, rel=0.02)
    assert kept.try_with == Trial(workload={"start": "loaded"})


def test_what_saves_less_than_three_per_cent_is_no_advice() -> None:
    found = of_run(16, 200)
    assert not {"prompt-half", "prefix-cached", "sampler-shorter"} & set(found)
    assert all(r.saved_share is None or r.saved_share >= LEAST_SHARE for r in found.values())


def test_what_can_not_help_is_said() -> None:
    # Reading is 2 % of the wait, loading 1 %.
    facts = Evidence(prefill_s=2.0, decode_s=97.0, load_s=1.0)
    texts = " ".join(futile(facts))
    assert "length of the prompt" in texts
    assert "Keeping the model loaded" in texts
    assert "length of the answer" not in texts
    assert futile(Evidence(decode_s=97.0)) == ()


def test_the_largest_saving_comes_first_and_the_untold_last() -> None:
    found = list(of_run(2048, 100, start="cold").values())
    told = [remedy.saved_s for remedy in found if remedy.saved_s is not None]
    assert told == sorted(told, reverse=True)
    flags = [remedy.saved_s is None for remedy in found]
    assert flags == sorted(flags)
    assert True in flags


def test_all_layers_on_a_device_that_has_room() -> None:
    # 4 GB on the card at 750 GB/s are 5.3 ms, 4 GB on the host the other 194.7 of 200 ms.
    split = with_gpu(
        gpu_memory_bytes=24 * GB,
        gpu_bandwidth_bytes_s=1e12,
        model_bytes=8 * GB,
        bytes_per_token=8 * GB,
        layers_on_gpu=16,
        layers_total=33,
        weights_on_cpu_bytes=4 * GB,
        weights_on_gpu_bytes=4 * GB,
        n_output=101,
        decode_tok_s=5.0,
    )
    moved = by_code(split)["gpu-layers"]
    # 8 GB at 750 GB/s: 10.67 ms a token, 100 steps.
    assert moved.predicted_wait_s == pytest.approx(1.067, rel=0.01)
    assert moved.try_with == Trial(settings={"n_gpu_layers": -1})
    # One step down: 6.53 GB a token, the card still holds 4; 2.53 GB at the host's 4 GB / 194.7 ms.
    down = by_code(dataclasses.replace(split, quantization="Q4_K_M"))["quantization-down-1"]
    assert down.predicted_wait_s == pytest.approx(100 * (4 / 750 + 2.532 / (4 / 0.19467)), rel=0.01)


def test_a_model_that_does_not_fit_gets_as_many_layers_as_do() -> None:
    split = with_gpu(
        gpu_memory_bytes=10 * GB,
        gpu_bandwidth_bytes_s=5e11,
        model_bytes=18 * GB,
        bytes_per_token=18 * GB,
        layers_on_gpu=10,
        layers_total=40,
        weights_on_cpu_bytes=13_500_000_000,
        weights_on_gpu_bytes=4_500_000_000,
        n_output=101,
        decode_tok_s=2.0,
    )
    # Nine tenths of 10 GB hold half of 18: 20 of 40 layers.
    assert by_code(split)["gpu-layers"].title == "place 20 layers on the device"


def test_an_unknown_effect_gets_no_figure() -> None:
    found = by_code(on_cpu(threads=8, usable_cpus=4, prefill_s=5.0, decode_s=5.0))
    threads = found["threads"]
    assert threads.saved_s is None
    assert threads.predicted_wait_s is None
    assert threads.at_most_s == pytest.approx(10.0)
    assert threads.try_with == Trial(settings={"threads": 4, "threads_batch": 4})


def test_threads_below_the_cores_scale_the_prompt_and_decode_to_its_ceiling() -> None:
    found = by_code(
        on_cpu(
            threads=2,
            threads_batch=2,
            usable_cpus=8,
            n_prompt=100,
            n_output=101,
            prefill_s=8.0,
            decode_s=10.0,
            decode_ceiling_s=0.06,
        )
    )
    # Prefill 8 * 2/8 = 2 s; decode 10 * 2/8 = 2.5 s, but not below 100 * 0.06 = 6 s.
    assert found["threads"].predicted_wait_s == pytest.approx(8.0)
    assert found["threads"].high_s == pytest.approx(18.0)


def test_of_a_split_model_only_the_hosts_part_gains_from_threads() -> None:
    found = by_code(
        on_cpu(
            threads=2,
            threads_batch=2,
            usable_cpus=8,
            n_prompt=100,
            n_output=101,
            prefill_s=8.0,
            decode_s=10.0,
            host_layers_share=0.5,
        )
    )
    # Half of each phase falls to a quarter.
    assert found["threads"].predicted_wait_s == pytest.approx(0.625 * 18.0)


def test_where_the_kernels_were_measured_on_all_cores_threads_gain_what_they_do() -> None:
    facts = {"threads": 1, "threads_batch": 1, "usable_cpus": 2, "n_prompt": 100, "n_output": 101}
    known = kernels("2", (0.010, 0.008), (0.006, 0.004))
    found = by_code(on_cpu(**facts, prefill_s=3.0, decode_s=5.0, usable_threads=known))
    # Two thirds of 3 s and four fifths of 5 s.
    assert found["threads"].predicted_wait_s == pytest.approx(2.0 + 4.0)
    # Measured for another number of threads it says nothing.
    other = dataclasses.replace(known, name="4")
    assert by_code(on_cpu(**facts, prefill_s=3.0, decode_s=5.0, usable_threads=other))[
        "threads"
    ].predicted_wait_s == pytest.approx(1.5 + 2.5)


def test_fewer_micro_batches_save_a_reading_of_the_weights_each() -> None:
    found = by_code(
        on_cpu(
            model_bytes=GB,
            bytes_per_token=GB,
            n_prompt=1024,
            n_ubatch=64,
            n_output=11,
            prefill_s=4.0,
            decode_s=1.0,
        )
    )
    # 16 micro-batches become 1: 15 readings of 0.1 s.
    assert found["micro-batch"].saved_s == pytest.approx(1.5)
    assert found["micro-batch"].try_with == Trial(settings={"n_ubatch": 1024, "n_batch": 1024})


def test_stopping_a_neighbour_saves_what_it_takes() -> None:
    found = of_run(512, 100, disturbances=(sample.quiet(0, foreign_cpus=1.0),))
    stop = found["stop-neighbours"]
    # One of two CPUs: half of prefill and decode.
    prefill, decode = sample.prefill_ns(512), sum(sample.decode_step_ns(512 + step) for step in range(99))
    assert stop.saved_s == pytest.approx((prefill + decode) / 2e9, rel=0.02)


def test_a_trial_changes_settings_and_workload() -> None:
    trial = Trial(settings={"threads": 7}, workload={"output_tokens": 2})
    changed = trial.apply(sample.settings(), sample.workload(10, 5))
    assert changed[0].threads == 7
    assert changed[0].n_ctx == sample.settings().n_ctx
    assert changed[1].output_tokens == 2


def test_every_remedy_says_how_in_every_tool_and_what_it_costs() -> None:
    runs = [of_run(2048, 100, start="cold"), of_run(16, 200)]
    facts = with_gpu(
        layers_on_gpu=3,
        layers_total=33,
        flash_attn=False,
        swap_in_bytes=GB,
        model_bytes=GB,
        memory_bytes=4 * GB,
        prefill_s=1.0,
        decode_s=3.0,
    )
    for found in [*runs, by_code(facts)]:
        for remedy in found.values():
            assert set(remedy.how) == TOOLS
            assert "{" not in remedy.how["llama.cpp"]
            assert remedy.cost
            assert remedy.basis


def test_rates_alone_are_reckoned_with_a_usual_answer() -> None:
    found = by_code(Evidence(quantization="Q8_0", decode_tok_s=10.0))
    # 255 steps of 0.1 s.
    half = found["output-half"]
    assert half.saved_s == pytest.approx(12.8)


def test_nothing_known_gives_no_advice() -> None:
    assert remedies(Evidence()) == ()


@given(
    prefill=st.just(0.0) | st.floats(1e-9, 1e4),
    decode=st.just(0.0) | st.floats(1e-9, 1e4),
    load=st.none() | st.just(0.0) | st.floats(1e-9, 1e4),
    prompt=st.integers(0, 10**6),
    output=st.integers(0, 10**5),
    ubatch=st.none() | st.integers(1, 4096),
)
def test_no_prediction_is_negative_or_above_its_interval(
    prefill: float, decode: float, load: float | None, prompt: int, output: int, ubatch: int | None
) -> None:
    evidence = on_cpu(
        prefill_s=prefill,
        decode_s=decode,
        load_s=load,
        n_prompt=prompt,
        n_output=output,
        n_ubatch=ubatch,
        quantization="Q4_K_M",
    )
    for remedy in remedies(evidence):
        if remedy.predicted_wait_s is not None and remedy.low_s is not None and remedy.high_s is not None:
            assert 0 <= remedy.low_s <= remedy.predicted_wait_s <= remedy.high_s


def test_a_wait_whose_phases_are_unknown_has_no_remedy() -> None:
    # 1 ms of sampling is all that is known: to save it would look like saving everything
    assert remedies(Evidence(sampling_s=0.001, n_prompt=300, n_output=4)) == ()
