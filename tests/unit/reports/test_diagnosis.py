"""The verdict: the order of tests, what gives way to what, how sure it is, and what it says."""

from __future__ import annotations

from typing import Any

import pytest
import sample_runs as sample

from probes.records import Neighbour
from reports.diagnosis import Diagnosis, diagnose
from reports.evidence import Evidence
from reports.facts import evidence_from
from reports.rules import RULES
from reports.run_evidence import run_evidence

GB = 10**9
SPLIT = {"gpu_present": True, "backend": "cuda", "layers_on_gpu": 20, "layers_total": 33}


def of(**facts: Any) -> Diagnosis:
    return diagnose(Evidence(**facts))


def of_run(prompt: int, output: int, *, cached: int = 0, start: str = "loaded", **run: Any) -> Diagnosis:
    workload = sample.workload(prompt, output, cached_tokens=cached, start=start)
    return diagnose(run_evidence(sample.run(**run), 0, workload))


# --- scenarios of a measured run -----------------------------------------------------------------


def test_a_long_prompt_and_a_short_answer() -> None:
    said = of_run(2048, 4)
    assert said.verdict == "prompt-bound"
    assert not said.is_borderline
    assert said.sentence.startswith("Prompt-bound: reading the prompt takes 5.98 s of")


def test_a_short_prompt_and_a_long_answer() -> None:
    said = of_run(16, 200)
    assert said.verdict == "generation-bound"
    assert said.confidence > 0.8


def test_a_cold_start_of_a_tiny_request() -> None:
    said = of_run(16, 4, start="cold")
    assert said.verdict == "load-bound"


def test_the_same_prompt_with_its_prefix_cached_is_no_longer_prompt_bound() -> None:
    assert of_run(2048, 100).verdict == "prompt-bound"
    assert of_run(2048, 100, cached=2040).verdict == "generation-bound"


def test_at_the_crossover_neither_phase_is_named() -> None:
    # 2 ms + 2.2 ms * 512 + 0.35 us * 512^2 = 1.22 s of prefill; 175 steps of 6.96 ms are 1.22 s too.
    said = of_run(512, 176)
    assert said.verdict == "balanced"
    assert said.is_borderline
    assert set(said.contributing) == {"prompt-bound", "generation-bound"}


def test_more_threads_than_cores() -> None:
    group = sample.group(resolved=sample.resolved(threads=8, threads_batch=8))
    said = diagnose(run_evidence(sample.run(group), 0, sample.workload(512, 100)))
    assert (said.verdict, said.code) == ("contended", "threads-over-cores")
    assert "8 threads share 2 usable cores" in said.sentence


def test_a_busy_neighbour_is_named_by_its_share() -> None:
    said = of_run(
        512,
        100,
        disturbances=(sample.quiet(0, foreign_cpus=1.0), sample.quiet(1, foreign_cpus=1.0)),
        neighbours=(Neighbour(name="encoder", cpus=0.98),),
    )
    assert (said.verdict, said.code) == ("contended", "neighbours")
    assert "encoder 1.0 CPUs" in said.sentence
    assert "50 %" in said.sentence


def test_a_mild_neighbour_does_not_hide_the_phase() -> None:
    # 0.4 of 2 CPUs taken: 20 % lost, below the quarter that makes it the answer.
    said = of_run(16, 200, disturbances=(sample.quiet(0, foreign_cpus=0.4),))
    assert said.verdict == "generation-bound"
    assert "contended" in said.contributing


def test_a_load_that_outweighs_what_a_neighbour_costs() -> None:
    said = of_run(16, 4, start="cold", disturbances=(sample.quiet(0, foreign_cpus=1.0),))
    assert said.verdict == "load-bound"
    assert "contended" in said.contributing


REMOTE = {
    "gpu_present": False,
    "remote_devices": 1,
    "layers_on_gpu": 10,
    "layers_total": 31,
    "decode_tok_s": 10.0,
}


def test_whatever_offload_costs_the_network_is_named_where_it_weighs() -> None:
    said = of(**REMOTE, network_step_s=0.05)
    assert said.code == "layers-on-host"
    assert said.sentence == (
        "Offload-bound: 21 of 31 layers are computed by the CPU; the network takes at least 50.0 ms of each"
        " token (50 %)."
    )
    assert "network" not in of(**REMOTE, network_step_s=0.01).sentence
    assert "network" not in of(**REMOTE).sentence


def test_the_network_is_named_once() -> None:
    slow = REMOTE | {"prefill_s": 1.0, "decode_s": 1.0, "n_output": 11}
    said = of(**slow, no_layers_step_s=0.03, fitting_layers_step_s=0.1, network_step_s=0.06)
    assert said.code == "device-slower-than-host"
    assert said.sentence.count("the network takes at least 60.0 ms") == 1


def test_a_network_that_takes_little_leaves_the_verdict_to_the_phases() -> None:
    placed = REMOTE | {"layers_on_gpu": 31, "prefill_s": 9.0, "decode_s": 1.0}
    said = of(**placed, network_step_s=0.01)
    assert said.verdict == "prompt-bound"
    assert "network" not in said.sentence
    # Where its cost is high or not known it is what to look at.
    assert of(**placed).code == "spread-out"
    assert of(**placed, network_step_s=0.06).sentence == (
        "Unknown: each token of 100 ms crosses the network to 1 remote device, and the network takes at least"
        " 60.0 ms of each token (60 %)."
    )


# --- order and precedence ------------------------------------------------------------------------


def test_residency_comes_before_shares() -> None:
    said = of(**SPLIT, prefill_s=1.0, decode_s=30.0, n_prompt=100, n_output=100)
    assert said.verdict == "offload-bound"
    assert said.contributing == ("generation-bound",)


def test_contention_comes_before_residency_where_it_costs_as_much() -> None:
    said = of(**SPLIT, threads=16, usable_cpus=4, decode_tok_s=1.0)
    assert said.verdict == "contended"
    assert "offload-bound" in said.contributing


def test_mild_contention_gives_way_to_misplaced_weights() -> None:
    said = of(**SPLIT, foreign_cpu=2.4, logical_cpus=8, threads=8, decode_tok_s=5.0)
    assert said.verdict == "offload-bound"
    assert "contended" in said.contributing


def test_a_load_longer_than_all_that_placement_could_save() -> None:
    said = of(**SPLIT, load_s=120.0, prefill_s=3.0, decode_s=20.0)
    assert said.verdict == "load-bound"


def test_a_weak_guess_does_not_beat_known_shares() -> None:
    # A ratio of 3.5 is low for a card and usual for a GPU that shares the CPU's memory.
    said = of(gpu_present=True, unified_memory=True, n_prompt=200, prefill_s=7.0, n_output=300, decode_s=37.0)
    assert said.verdict == "generation-bound"


def test_impossible_times_come_first() -> None:
    assert of(**SPLIT, decode_tok_s=95_000.0).code == "impossible-rate"


def test_the_ceiling_decides_where_only_a_rate_is_known() -> None:
    card = {"gpu_present": True, "backend": "cuda", "gpu_bandwidth_bytes_s": 1e12}
    dense = {"model_bytes": 5 * GB, "bytes_per_token": 5 * GB, "architecture_is_moe": False}
    said = of(**card, **dense, decode_tok_s=140.0)
    assert (said.verdict, said.code) == ("generation-bound", "memory-ceiling")
    assert "at the memory ceiling" in said.sentence
    assert said.ceiling_share == pytest.approx(0.7)


def test_decode_far_below_the_ceiling_is_no_phases_fault() -> None:
    said = of(
        backend="cpu",
        gpu_present=False,
        model_bytes=5 * GB,
        architecture_is_moe=False,
        memory_bandwidth_bytes_s=5e10,
        decode_tok_s=0.5,
        n_output=100,
    )
    assert said.verdict == "unknown"
    assert said.advice is not None
    assert "build" in said.advice


# --- confidence and words ------------------------------------------------------------------------


def test_nothing_known_is_said_so() -> None:
    said = of()
    assert (said.verdict, said.code, said.confidence) == ("unknown", None, 0.0)
    assert "prefill_s" in said.sentence
    assert {"decode_tok_s", "gpu_present", "load_s"} <= set(said.unknown)


def test_what_follows_from_rates_alone_is_never_sure() -> None:
    # Two independent guesses of 0.76 and 0.6 make 0.9 together; they stay at 0.8.
    said = of(
        gpu_present=True,
        backend="cuda",
        gpu_memory_bytes=8 * GB,
        gpu_bandwidth_bytes_s=6e11,
        n_prompt=1000,
        prefill_tok_s=9.0,
        decode_tok_s=4.0,
    )
    assert said.verdict == "offload-bound"
    assert said.confidence == 0.8


def test_the_engines_own_word_is_surer() -> None:
    assert of(**SPLIT, decode_tok_s=4.0).confidence > 0.9


def test_every_rule_is_explained_with_its_inputs_and_sources() -> None:
    said = diagnose(evidence_from({"prefill_s": 8.0, "decode_s": 1.0}).evidence)
    assert [entry.rule.code for entry in said.explain] == [rule.code for rule in RULES]
    by_code = {entry.rule.code: entry for entry in said.explain}
    fired = by_code["phase-share"]
    assert fired.result == "fired"
    assert [(n.name, n.value, n.source) for n in fired.inputs] == [
        ("prefill_s", 8.0, "reported"),
        ("decode_s", 1.0, "reported"),
    ]
    assert by_code["load-share"].result == "abstained"
    assert by_code["load-share"].text == "not known: load_s"
    assert {entry.result for entry in said.explain} == {"fired", "abstained"}


def test_what_would_change_the_verdict() -> None:
    # 8 s of prompt at 0.1 s a token: 80 steps, the 81st token.
    said = of(prefill_s=8.0, decode_s=0.9, n_output=10, n_prompt=100)
    assert said.would_change is not None
    assert "81 output tokens" in said.would_change


@pytest.mark.parametrize(("decode_s", "borderline"), [(8.2, True), (30.0, False)])
def test_a_small_lead_is_borderline(decode_s: float, borderline: bool) -> None:
    # 8.2 against 6.5 of 14.7 s: a lead of 12 %.
    assert of(prefill_s=6.5, decode_s=decode_s).is_borderline is borderline
