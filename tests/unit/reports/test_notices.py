"""Each notice appears where its reason is met, says what to do, and is silent otherwise."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import sample_runs as sample

from probes.records import CellResult, Run
from reports.notices import codes_for, notices


def codes(run: Run) -> list[str]:
    return [notice.code for notice in notices(run)]


def scaled(cell: CellResult, factors: tuple[float, ...]) -> CellResult:
    samples = tuple(
        dataclasses.replace(one, head_ns=0, tail_ns=round(sample.prefill_ns(cell.prompt_tokens) * factor))
        for one, factor in zip(cell.samples, factors, strict=True)
    )
    return dataclasses.replace(cell, samples=samples)


def test_a_clean_run_has_none() -> None:
    assert codes(sample.run()) == []


@pytest.mark.parametrize(
    ("changes", "code", "advice"),
    [
        ({"foreign_cpus": 1.4}, "foreign-cpu", "close them"),
        ({"steal_fraction": 0.2}, "steal", "quieter"),
        ({"throttled_fraction": 0.3}, "throttled", "fewer threads"),
        ({"swap_in_bytes": 5 * 2**20}, "swap-in", "free memory"),
        ({"memory_available_bytes": 100 * 2**20}, "memory-low", "free memory"),
    ],
)
def test_a_disturbed_machine(changes: dict[str, Any], code: str, advice: str) -> None:
    found = notices(sample.run(disturbances=(sample.quiet(0, **changes),)))
    assert [notice.code for notice in found] == [code]
    assert advice in found[0].text


def test_what_is_not_known_is_no_disturbance() -> None:
    blind = sample.quiet(
        foreign_cpus=None,
        steal_fraction=None,
        throttled_fraction=None,
        swap_in_bytes=None,
        memory_available_bytes=None,
    )
    assert codes(sample.run(disturbances=(blind,))) == []


def test_intervals_are_weighed_by_their_length() -> None:
    # 0.5 CPUs for 1 s and none for 9 s are 0.05 on average: below the threshold of 0.1.
    short = sample.quiet(0, foreign_cpus=0.5)
    long = sample.quiet(1, foreign_cpus=0.0, duration_ns=9 * 10**9)
    assert codes(sample.run(disturbances=(short, long))) == []


def test_noise_names_phase_length_and_width() -> None:
    cell = scaled(sample.cell(512, passes=6), (1.0, 0.9, 1.1, 1.0, 1.0, 1.0))
    found = notices(sample.run(sample.group(cells=[sample.cell(128), cell])))
    assert [notice.code for notice in found] == ["noise"]
    assert (found[0].phase, found[0].prompt_tokens, found[0].group) == ("prefill", (512,), 0)
    # Six samples: from 0.9 to 1.1 around 1.0.
    assert "±10 %" in found[0].text
    assert "±3.0 %" in found[0].text
    # Median 1.0, deviations 0 0.1 0.1 0 0 0: median 0, mean 0.033, sigma 0.042; 0.1 is 2.4 of them.
    assert "far off" not in found[0].text


def test_noise_by_single_passes_says_so() -> None:
    cell = scaled(sample.cell(512, passes=7), (1.0, 1.0, 1.0, 1.01, 0.99, 1.01, 3.0))
    found = notices(sample.run(sample.group(cells=[cell])))
    assert "1 of its samples" in next(notice.text for notice in found if notice.code == "noise")


def test_few_samples() -> None:
    assert codes(sample.run(sample.group(cells=[sample.cell(128, passes=2)], passes=2))) == ["few-samples"]


def test_a_first_pass_that_stands_apart() -> None:
    found = notices(sample.run(sample.group(cells=[sample.cell(128, slow_first=1.5)])))
    assert [(notice.code, notice.phase) for notice in found] == [
        ("first-pass-apart", "prefill"),
        ("first-pass-apart", "decode"),
    ]
    assert "1.51 times" in found[0].text


def test_drift_between_early_and_late_passes() -> None:
    factors = (1.0, 1.0, 1.01, 1.0, 1.08, 1.09, 1.08)
    cell = scaled(sample.cell(512, passes=7), factors)
    found = notices(sample.run(sample.group(cells=[cell]), options=sample.options(precision=0.05)))
    drift = [notice for notice in found if notice.code == "drift"]
    # Without the first pass: early 1.00 1.01 1.00, late 1.08 1.09 1.08.
    assert len(drift) == 1
    assert "8.0 % slower" in drift[0].text


def test_scatter_is_not_drift() -> None:
    cell = scaled(sample.cell(512, passes=7), (1.0, 1.0, 1.08, 1.0, 1.08, 1.0, 1.08))
    assert "drift" not in codes(sample.run(sample.group(cells=[cell])))


def test_more_threads_than_cores() -> None:
    found = notices(
        sample.run(machine=sample.machine(usable_cpus=1, usable_cpus_reason="cgroup quota 1.0 CPUs"))
    )
    assert [notice.code for notice in found] == ["threads-over-cores"]
    assert "2 threads on 1 usable core (cgroup quota 1.0 CPUs)" in found[0].text
    assert "--threads 1" in found[0].text


def test_lengths_beyond_the_training_context() -> None:
    # 512 + 32 fit into 544; 2048 + 32 do not.
    found = notices(sample.run(sample.group(facts=sample.model(n_ctx_train=544))))
    assert [notice.code for notice in found] == ["beyond-training-context"]
    assert found[0].prompt_tokens == (2048,)


def test_unaccounted_time() -> None:
    request = sample.request()
    late = dataclasses.replace(request, wall_ns=2 * request.wall_ns)
    assert codes(sample.run(sample.group(requests=(late,)))) == ["unaccounted"]


def test_engine_lines_are_cleaned_and_counted() -> None:
    lines = tuple(f"warn\x1b[31m {i}" for i in range(8))
    found = notices(sample.run(sample.group(engine_warnings=lines)))
    assert len(found) == 6
    assert found[0].text == "The engine says: warn[31m 0"
    assert "3 more" in found[-1].text


def test_what_was_told_of_a_group_is_a_sentence_and_counted() -> None:
    told = tuple(f"load: crash: by\x1b[31m SIGKILL {i}" for i in range(7))
    found = notices(sample.run(sample.group(warnings=told)))
    assert [notice.code for notice in found] == ["recorded"] * 6
    assert found[0].text == "Load: crash: by[31m SIGKILL 0."
    assert found[-1].text.startswith("2 more")


def test_a_diagnosis_names_the_cells_that_failed() -> None:
    failed = dataclasses.replace(sample.cell(512), status="failed", reason="stall: too long", samples=())
    group = sample.group(cells=[sample.cell(0), failed])
    assert "failed" not in codes(sample.run(group))  # a profile shows them in its table
    found = notices(sample.run(group, workload=sample.workload()))
    assert [n.text for n in found if n.code == "failed"] == [
        "Nothing was measured at 512 tokens: stall: too long."
    ]


def test_an_interrupted_run_and_recorded_warnings() -> None:
    run = sample.run(finished=False, warnings=("no page cache here; loads are unknown",))
    assert codes(run) == ["unfinished", "recorded"]


def test_codes_reach_only_their_rows() -> None:
    found = notices(sample.troubled_run())
    assert "noise" in codes_for(found, group=0, phase="prefill", prompt_tokens=512)
    assert "noise" not in codes_for(found, group=0, phase="decode", prompt_tokens=512)
    assert "noise" not in codes_for(found, group=1, phase="prefill", prompt_tokens=512)
    assert "swap-in" in codes_for(found, group=1, phase="load", prompt_tokens=None)
