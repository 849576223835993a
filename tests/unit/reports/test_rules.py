"""Each rule fires on its own tell, clears on facts that contradict it, and abstains by naming what it lacks.

The sums are in the comments: the thresholds stand beside the rules with their reasons.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from probes.records import Neighbour
from reports.evidence import FACT_NAMES, Evidence
from reports.rules import RULES, Abstained, Cleared, Finding, Outcome

GB = 10**9
CARD = {"gpu_present": True, "backend": "cuda", "gpu_memory_bytes": 24 * GB, "gpu_bandwidth_bytes_s": 1e12}
DENSE = {"model_bytes": 5 * GB, "bytes_per_token": 5 * GB, "architecture_is_moe": False, "n_layers": 32}
HOST = {"backend": "cpu", "gpu_present": False}
PLACED = {"layers_on_gpu": 33, "layers_total": 33}

HALF_REMOTE = {
    "gpu_present": False,
    "remote_devices": 1,
    "layers_on_gpu": 10,
    "layers_total": 31,
    "n_output": 11,
    "prefill_s": 1.0,
    "decode_s": 1.0,
    "decode_tok_s": 10.0,
    "fitting_layers": 31,
}
"""A third of the layers on another machine: a second for the prompt, ten steps of 0.1 s."""


def ask(code: str, **facts: Any) -> Outcome:
    rule = next(rule for rule in RULES if rule.code == code)
    return rule.judge(Evidence(**facts))


FIRES: list[tuple[str, str, dict[str, Any]]] = [
    ("impossible-rate", "unknown", {"decode_tok_s": 95_000.0}),
    # 5 GB * 400/s = 2000 GB/s on a card of 1000.
    ("impossible-rate", "unknown", CARD | DENSE | PLACED | {"decode_tok_s": 400.0}),
    ("page-faults", "contended", {"swap_in_bytes": GB, "model_bytes": 5 * GB}),
    ("page-faults", "contended", {"disk_read_bytes": 8 * GB, "model_bytes": 5 * GB}),
    # 2 GB/s for half a second: 1 of the 5 GB that a token reads.
    ("page-faults", "contended", HOST | DENSE | {"disk_read_bytes_s": 2e9, "decode_tok_s": 2.0}),
    ("page-faults", "contended", {"major_faults": 5000, "n_output": 40}),
    # 5 GB at 0.2/s = 1 GB/s, a disk's speed.
    ("memory-too-small", "contended", HOST | DENSE | {"memory_bytes": 4 * GB, "decode_tok_s": 0.2}),
    ("cpu-quota", "contended", HOST | {"cpu_throttled_fraction": 0.4}),
    ("threads-over-cores", "contended", HOST | {"threads": 8, "usable_cpus": 4}),
    # 5 GB * 0.5/s = 2.5 GB/s: an eighth of what any two channels give.
    (
        "threads-over-cores",
        "contended",
        HOST | DENSE | {"threads": 16, "logical_cpus": 16, "decode_tok_s": 0.5},
    ),
    # 2 wanted CPUs, 1.1 taken of 2: 0.9 left, 55 % lost.
    ("neighbours", "contended", HOST | {"foreign_cpu": 1.1, "logical_cpus": 2, "threads": 2}),
    ("neighbours", "contended", HOST | {"steal_fraction": 0.3}),
    ("clock-low", "contended", HOST | {"cpu_clock_hz": 1.2e9, "cpu_clock_max_hz": 4.8e9}),
    ("clock-low", "contended", CARD | PLACED | {"gpu_clock_hz": 3e8, "gpu_clock_max_hz": 1.7e9}),
    ("clock-low", "contended", {"throttled": True}),
    ("gpu-neighbours", "contended", CARD | PLACED | {"gpu_foreign_utilization": 0.4}),
    ("gpu-unused", "offload-bound", {"gpu_present": True, "backend": "cpu"}),
    ("gpu-unused", "offload-bound", CARD | {"layers_on_gpu": 0}),
    ("gpu-unused", "offload-bound", CARD | {"gpu_utilization": 0.02, "decode_tok_s": 4.0}),
    ("gpu-unused", "offload-bound", {"gpu_present": True, "build_lacks_device": True}),
    ("layers-on-host", "offload-bound", CARD | {"layers_on_gpu": 32, "layers_total": 33}),
    ("layers-on-host", "offload-bound", HALF_REMOTE | {"fitting_layers_step_s": 0.05}),
    ("device-slower-than-host", "offload-bound", HALF_REMOTE | {"no_layers_step_s": 0.05}),
    (
        "layers-on-host",
        "offload-bound",
        CARD | {"model_bytes": 60 * GB, "n_experts": 64, "weights_on_gpu_bytes": 9 * GB},
    ),
    ("experts-on-host", "offload-bound", CARD | {"experts_on_cpu": True}),
    ("does-not-fit", "offload-bound", CARD | {"model_bytes": 30 * GB}),
    ("spilled", "offload-bound", CARD | {"gpu_shared_memory_bytes": 3 * GB}),
    ("spilled", "offload-bound", CARD | {"gpu_utilization": 0.99, "gpu_memory_utilization": 0.02}),
    ("attention-on-host", "offload-bound", CARD | {"kv_on_cpu": True}),
    ("attention-on-host", "offload-bound", CARD | PLACED | {"graph_splits": 66}),
    ("attention-on-host", "offload-bound", CARD | {"type_k": "q8_0", "type_v": "q4_0"}),
    # From 25 ms to 125 ms a token over 4000 tokens: the step grows by 1.0 a thousand.
    ("depth-cost", "offload-bound", CARD | {"decode_tok_s_at_depth": ((0, 40.0), (4000, 8.0))}),
    # 5 GB over half of 1000 GB/s, and 32 layers of 0.3 ms: 19.6 ms; three times that are 58.8 ms.
    ("device-too-slow", "offload-bound", CARD | DENSE | {"decode_tok_s": 16.0}),
    # All 24 GB at 1000 GB/s are 24 ms, 80 with 0.3 of the rate: 12.5/s.
    ("device-too-slow", "offload-bound", CARD | {"decode_tok_s": 12.0}),
    ("device-too-slow", "offload-bound", {"gpu_present": True, "backend": "cuda", "decode_tok_s": 1.0}),
    ("phase-ratio", "offload-bound", CARD | {"n_prompt": 500, "prefill_tok_s": 9.0, "decode_tok_s": 4.0}),
    ("load-share", "load-bound", {"load_s": 6.0, "prefill_s": 1.0, "decode_s": 2.0}),
    # 10 tokens cost 2 s each, 0.1 s when generated: 19 s too much, 5 GB at 263 MB/s.
    (
        "first-touch",
        "load-bound",
        HOST | DENSE | {"n_prompt": 10, "prefill_s": 20.0, "n_output": 11, "decode_s": 1.0},
    ),
    ("sampling-share", "unknown", {"sampling_s": 6.0, "n_output": 500, "decode_s": 3.0}),
    ("unaccounted", "unknown", {"prefill_s": 1.0, "decode_s": 2.0, "total_s": 20.0}),
    ("spread-out", "unknown", CARD | DENSE | {"n_gpus": 4, "gpu_utilization": 0.1}),
    ("phase-share", "prompt-bound", {"prefill_s": 8.0, "decode_s": 1.0}),
    ("phase-share", "generation-bound", {"prefill_s": 1.0, "decode_s": 8.0}),
    ("phase-share", "balanced", {"prefill_s": 5.0, "decode_s": 5.4}),
    # 5 GB * 140/s are 70 % of 1000 GB/s.
    ("memory-ceiling", "generation-bound", CARD | DENSE | PLACED | {"decode_tok_s": 140.0}),
    ("memory-ceiling", "unknown", HOST | DENSE | {"memory_bandwidth_bytes_s": 5e10, "decode_tok_s": 0.5}),
]

CLEARS: list[tuple[str, dict[str, Any]]] = [
    # Accepted drafts come at more than the memory's speed, honestly.
    ("impossible-rate", CARD | DENSE | PLACED | {"decode_tok_s": 400.0, "speculative": True}),
    ("page-faults", {"swap_in_bytes": 0, "disk_read_bytes": 5 * GB, "model_bytes": 5 * GB}),
    # 5 GB at 2/s = 10 GB/s is no disk.
    ("memory-too-small", HOST | DENSE | {"memory_bytes": 4 * GB, "decode_tok_s": 2.0}),
    ("cpu-quota", CARD | PLACED | {"cpu_throttled_fraction": 0.9}),
    ("threads-over-cores", CARD | PLACED | {"threads": 64, "usable_cpus": 4}),
    # 5 GB * 8/s = 40 of 50 GB/s.
    (
        "threads-over-cores",
        HOST
        | DENSE
        | {"threads": 8, "usable_cpus": 4, "memory_bandwidth_bytes_s": 5e10, "decode_tok_s": 8.0},
    ),
    ("threads-over-cores", HOST | {"threads": 4, "usable_cpus": 4}),
    ("neighbours", HOST | {"foreign_cpu": 1.0, "logical_cpus": 16, "threads": 8}),
    ("clock-low", CARD | DENSE | PLACED | {"throttled": True, "decode_tok_s": 150.0}),
    ("gpu-unused", HOST),
    ("layers-on-host", CARD | PLACED),
    # Seconds for the prompt and 10 steps: 2 now, 1 + 10 * 0.09 then, a saving of 5 %.
    ("layers-on-host", HALF_REMOTE | {"fitting_layers_step_s": 0.09, "fitting_layers_prefill_s": 1.0}),
    ("device-slower-than-host", HALF_REMOTE | {"no_layers_step_s": 0.095}),
    ("device-slower-than-host", HALF_REMOTE | {"layers_on_gpu": 0}),
    ("does-not-fit", {"backend": "metal", "gpu_memory_bytes": 16 * GB, "model_bytes": 20 * GB}),
    ("spilled", CARD | {"gpu_shared_memory_bytes": 200 * 10**6}),
    ("attention-on-host", CARD | PLACED | {"graph_splits": 2, "type_k": "f16", "type_v": "f16"}),
    ("device-too-slow", CARD | DENSE | {"decode_tok_s": 60.0}),
    # A tiny model is bound by operations: 3 ms a token for 0.1 ms of reading.
    (
        "device-too-slow",
        CARD | DENSE | {"model_bytes": GB // 10, "bytes_per_token": GB // 10, "decode_tok_s": 300.0},
    ),
    ("phase-ratio", CARD | {"n_prompt": 9, "prefill_tok_s": 17.0, "decode_tok_s": 16.0}),
    ("load-share", {"load_s": 1.0, "prefill_s": 1.0, "decode_s": 2.0}),
    ("first-touch", {"n_prompt": 10, "prefill_s": 0.5, "n_output": 11, "decode_s": 1.0}),
    ("sampling-share", {"sampling_s": 0.1, "n_output": 500, "decode_s": 3.0}),
    ("unaccounted", {"prefill_s": 1.0, "decode_s": 2.0, "total_s": 3.1}),
    ("spread-out", {"n_gpus": 1}),
]


@pytest.mark.parametrize(("code", "verdict", "facts"), FIRES)
def test_a_rule_fires_on_its_tell(code: str, verdict: str, facts: dict[str, Any]) -> None:
    outcome = ask(code, **facts)
    assert isinstance(outcome, Finding), outcome
    assert outcome.verdict == verdict
    assert 0 < outcome.confidence < 1
    assert all(getattr(Evidence(**facts), name) == value for name, value in outcome.inputs.items())


@pytest.mark.parametrize(("code", "facts"), CLEARS)
def test_a_rule_clears_on_the_facts(code: str, facts: dict[str, Any]) -> None:
    outcome = ask(code, **facts)
    assert isinstance(outcome, Cleared), outcome
    assert outcome.reason


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_without_facts_a_rule_abstains_and_says_which_it_lacks(rule: Any) -> None:
    outcome = rule.judge(Evidence())
    assert isinstance(outcome, Abstained), outcome
    assert outcome.missing
    assert set(outcome.missing) <= set(FACT_NAMES)


def test_every_rule_is_shown_to_fire() -> None:
    assert {code for code, _, _ in FIRES} == {rule.code for rule in RULES}


def test_codes_are_unique_and_stages_in_order() -> None:
    stages = [rule.stage for rule in RULES]
    assert len({rule.code for rule in RULES}) == len(RULES)
    assert list(dict.fromkeys(stages)) == [
        "times",
        "contention",
        "residency",
        "load",
        "beside",
        "shares",
        "ceiling",
    ]
    assert stages == sorted(stages, key=list(dict.fromkeys(stages)).index)


def test_the_neighbour_is_named_and_its_name_is_harmless() -> None:
    outcome = ask(
        "neighbours",
        **HOST,
        foreign_cpu=1.0,
        logical_cpus=2,
        threads=2,
        neighbours=(Neighbour(name="ffmpeg\x1b[31m", cpus=0.97),),
    )
    assert isinstance(outcome, Finding)
    assert "ffmpeg[31m 1.0 CPUs" in outcome.reason
    assert "50 %" in outcome.reason


@pytest.mark.parametrize(
    ("network_step_s", "named"), [(0.061, True), (0.021, True), (0.019, False), (None, False)]
)
def test_layers_on_another_machine_are_slow_for_the_network(
    network_step_s: float | None, named: bool
) -> None:
    # A step takes 0.1 s: a fifth of it, 20 ms, is a cause.
    facts = HALF_REMOTE | {"no_layers_step_s": 0.05, "network_step_s": network_step_s}
    found = ask("device-slower-than-host", **facts)
    assert isinstance(found, Finding)
    assert found.reason.startswith(
        "the layers on another machine take longer there than here: a token takes 100 ms, on the host alone"
    )
    assert ("network" in found.reason) is named
    assert ("faster network" in str(found.advice)) is named
    if network_step_s == 0.061:
        assert "and the network takes at least 61.0 ms of each token (61 %); taking them off" in found.reason
        assert found.inputs["network_step_s"] == 0.061


def test_a_network_that_takes_longer_than_a_token_is_all_of_it() -> None:
    facts = HALF_REMOTE | {"no_layers_step_s": 0.05, "network_step_s": 0.2}
    assert Evidence(**facts).network_share == 1.0
    assert Evidence(network_step_s=0.2).network_share is None


def test_the_setting_that_promised_more_is_named() -> None:
    outcome = ask("layers-on-host", **CARD, layers_on_gpu=54, layers_total=66, n_gpu_layers_requested=65)
    assert isinstance(outcome, Finding)
    assert "12 of 66 layers" in outcome.reason
    assert "65 were asked" in outcome.reason


numbers = st.one_of(st.none(), st.integers(0, 10**13), st.floats(1e-6, 1e13))


@given(
    st.dictionaries(
        st.sampled_from(
            [f.name for f in dataclasses.fields(Evidence) if "int" in f.type or "float" in f.type]
        ),
        numbers,
    ),
    st.booleans(),
)
@example({"memory_bytes": 0, "model_bytes": 1}, False)
def test_no_rule_breaks_on_odd_figures(facts: dict[str, Any], has_gpu: bool) -> None:
    facts = {name: value for name, value in facts.items() if name != "decode_tok_s_at_depth"}
    evidence = Evidence(**(facts | {"gpu_present": has_gpu}))
    for rule in RULES:
        assert isinstance(rule.judge(evidence), Finding | Cleared | Abstained)
