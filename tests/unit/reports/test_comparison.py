"""What two files are said to differ in: verdicts, gates, matching, with ratios worked out by hand."""

from __future__ import annotations

import math

import pytest
from comparables import ENGINE, MACHINE, MODEL, SETTINGS, cell, file, summary

from probes.errors import UsageError
from reports import comparison_stats as decide
from reports.comparable import Comparable, ComparableCell, with_repetitions
from reports.comparison import ComparedCell, Comparison, compare
from reports.comparison_gate import Gate, failures
from reports.comparison_report import build_comparison_report

STEADY = (0.99, 1.0, 1.0, 1.0, 1.01)
LOOSE = (0.8, 0.9, 1.0, 1.1, 1.3)


def times(factor: float, samples: tuple[float, ...] = STEADY) -> tuple[float, ...]:
    return tuple(factor * sample for sample in samples)


def one(found: Comparison) -> ComparedCell:
    assert len(found.cells) == 1
    return found.cells[0]


def refused(base: Comparable, new: Comparable, reason: str) -> str:
    with pytest.raises(UsageError) as error:
        compare(base, new)
    assert error.value.reason == reason
    return str(error.value)


def against(base: ComparableCell, new: ComparableCell, **options: object) -> ComparedCell:
    return one(compare(file(base, label="a"), file(new, label="b"), **options))  # type: ignore[arg-type]


def test_a_slower_cell() -> None:
    found = against(cell("decode", 512, STEADY), cell("decode", 512, times(1.1)))
    assert found.verdict == "slower"
    assert found.ratio == pytest.approx(1.1)
    assert (found.base_s, found.new_s, found.base_n, found.new_n) == (1.0, pytest.approx(1.1), 5, 5)
    assert found.interval == "bootstrap"
    assert found.low is not None
    assert found.high is not None
    # Medians of resamples lie between the extremes: 1.1 * 0.99 / 1.01 and 1.1 * 1.01 / 0.99.
    assert 1.078 <= found.low <= 1.1 <= found.high <= 1.123


def test_a_faster_cell() -> None:
    assert against(cell("prefill", 512, STEADY), cell("prefill", 512, times(0.8))).verdict == "faster"


def test_the_same_needs_the_whole_interval_within_the_limit() -> None:
    base, new = cell("prefill", 512, STEADY), cell("prefill", 512, times(1.005))
    # Medians of resamples differ by at most 1.005 * 1.01 / 0.99 = 1.0253.
    assert against(base, new, same_within=0.03).verdict == "same"
    assert against(base, new, same_within=0.005).verdict == "too noisy to say"


def test_noise_is_called_noise() -> None:
    found = against(cell("decode", 0, LOOSE), cell("decode", 0, times(1.02, LOOSE)))
    assert found.verdict == "too noisy to say"
    assert found.reason == "its interval reaches beyond ±5 %"
    assert found.repetitions is not None
    assert found.repetitions > 30


def test_a_sure_change_below_one_percent_is_none() -> None:
    exact = (1.0,) * 9
    assert against(cell("decode", 0, exact), cell("decode", 0, times(1.009, exact))).verdict == "same"
    assert against(cell("decode", 0, exact), cell("decode", 0, times(1.011, exact))).verdict == "slower"


@pytest.mark.parametrize(
    ("base", "reason"),
    [
        (cell("decode", 0, (1.0,)), "one repetition does not show how much it varies"),
        (
            cell("decode", 0, summary=summary(1.0, 0.01, None)),
            "a file does not say how many repetitions it has (--assume-repetitions)",
        ),
        (cell("decode", 0, summary=summary(1.0, None)), "a file does not say how much its samples vary"),
    ],
)
def test_without_known_noise_there_is_no_verdict(base: ComparableCell, reason: str) -> None:
    found = against(base, cell("decode", 0, times(2.0)))
    assert (found.verdict, found.reason) == ("too noisy to say", reason)
    assert found.ratio == pytest.approx(2.0)
    assert (found.low, found.high, found.p_value, found.interval) == (None, None, None, "none")


def test_summaries_are_compared_by_their_deviation() -> None:
    # 3 % each, five each: standard error sqrt(2 * 0.03^2 / 5) = 0.019; log 1.1 = 0.0953, t = 5.02 with 8
    # degrees of freedom: p = 0.001. Interval: 1.1 * exp(-+ 2.306 * 0.019) = 1.053 to 1.149.
    found = against(
        cell("decode", 0, summary=summary(1.0, 0.03)), cell("decode", 0, summary=summary(1.1, 0.033))
    )
    assert found.verdict == "slower"
    assert found.p_value == pytest.approx(0.00103, abs=2e-5)
    assert (found.low, found.high) == (pytest.approx(1.053, abs=1e-3), pytest.approx(1.149, abs=1e-3))
    assert found.interval == "t"


def test_repetitions_may_be_assumed() -> None:
    bare = file(cell("decode", 0, summary=summary(1.0, 0.01, None)))
    told = with_repetitions(bare, 5)
    assert one(compare(told, file(cell("decode", 0, times(1.2))))).verdict == "slower"
    assert "5 are assumed" in told.notes[0]
    assert with_repetitions(told, 9) == told


def test_many_cells_are_corrected_for() -> None:
    """A change that one cell alone would show is not shown among forty."""
    base, new = cell("decode", 0, (0.97, 1.0, 1.03)), cell("decode", 0, times(1.075, (0.97, 1.0, 1.03)))
    assert against(base, new).verdict == "slower"
    others = [cell("load", cache_state=str(i), samples_s=(0.97, 1.0, 1.03)) for i in range(40)]
    found = compare(file(base, *others), file(new, *others))
    assert {one.verdict for one in found.cells} == {"too noisy to say"}


def test_what_differs_is_refused_first() -> None:
    base = file(cell("decode", 0, STEADY), label="a")
    new = file(
        cell(
            "decode", 0, STEADY, settings=SETTINGS | {"threads": "4"}, model=MODEL | {"quantization": "Q8_0"}
        ),
        label="b",
        machine=MACHINE | {"cpu": "Other CPU"},
        engine=ENGINE | {"commit": "def5678"},
    )
    text = refused(base, new, "not-alike")
    for part in (
        "cpu Example CPU against Other CPU",
        "engine commit abc1234 against def5678",
        "model quantization Q4_1 against Q8_0",
        "threads 2 against 4",
    ):
        assert part in text
    found = compare(base, new, anyway=True)
    assert not found.like_for_like
    assert len(found.divergences) == 4
    assert len(found.cells) == 1


def test_harmless_differences_are_told_and_not_refused() -> None:
    base = file(cell("decode", 0, STEADY, settings=SETTINGS | {"n_ctx": "512"}))
    new = file(
        cell("decode", 0, STEADY, settings=SETTINGS | {"n_ctx": "2304"}), machine=MACHINE | {"os": "Linux 7"}
    )
    found = compare(base, new)
    assert found.like_for_like
    assert [d.text for d in found.divergences] == ["os Linux 6.8 against Linux 7", "n ctx 512 against 2304"]


def test_a_batch_that_takes_the_whole_prompt_is_harmless() -> None:
    def of(n_ubatch: str, *lengths: int) -> Comparable:
        chosen = SETTINGS | {"n_ubatch": n_ubatch}
        return file(*(cell("prefill", n, STEADY, settings=chosen) for n in lengths))

    found = compare(of("256", 64, 256), of("512", 64, 256, 1024))
    assert found.like_for_like
    assert [d.text for d in found.divergences] == ["n ubatch 256 against 512"]
    assert "n ubatch 256 against 512" in refused(of("256", 64, 257), of("512", 64, 257), "not-alike")


def test_a_disturbed_run_is_said_so_in_the_answer() -> None:
    base, new = file(cell("decode", 0, STEADY)), file(cell("decode", 0, times(1.2)), is_disturbed=True)
    report = build_comparison_report([compare(base, new)], Gate())
    assert report.headline[0].endswith("in the figures of the new: repeat before believing a change.")
    assert "busy" not in build_comparison_report([compare(base, base)], Gate()).headline[0]


def test_what_one_file_does_not_know_is_not_compared() -> None:
    bare = cell("decode", 0, STEADY, settings={"threads": "2"}, model={"name": "Demo"})
    assert compare(file(cell("decode", 0, STEADY)), file(bare, machine={}, engine={})).like_for_like


def test_cells_are_matched_by_settings_that_vary() -> None:
    def at(threads: str, factor: float) -> ComparableCell:
        return cell("decode", 0, times(factor), settings=SETTINGS | {"threads": threads})

    found = compare(file(at("2", 1), at("4", 2)), file(at("4", 2), at("2", 1.2), at("8", 3), label="b"))
    assert [(one.label, one.verdict) for one in found.cells] == [
        ("threads 2", "slower"),
        ("threads 4", "same"),
    ]
    assert found.unmatched == ("Only in b: decode at 0 tokens.",)


def test_of_several_models_those_in_both_are_compared() -> None:
    def of(name: str) -> ComparableCell:
        return cell("decode", 0, STEADY, model=MODEL | {"name": name, "model_bytes": str(len(name))})

    found = compare(file(of("A"), of("Bee")), file(of("Bee"), of("Ceee"), label="b"))
    assert [(one.label, one.model["name"]) for one in found.cells] == [("", "Bee")]
    assert "model name A, Bee against Ceee" in refused(
        file(of("A"), of("Bee")), file(of("Ceee")), "no-common-cell"
    )


@pytest.mark.parametrize(
    ("base", "new", "axis"),
    [
        (cell("prefill", 128, STEADY), cell("prefill", 512, STEADY), "prefill prompt tokens 128 against 512"),
        (cell("decode", 0, STEADY), cell("decode", 64, STEADY), "decode depth tokens 0 against 64"),
        (cell("prefill", 128, STEADY), cell("decode", 128, STEADY), "phase prefill against decode"),
    ],
)
def test_no_common_cell_names_the_axis(base: ComparableCell, new: ComparableCell, axis: str) -> None:
    assert axis in refused(file(base), file(new), "no-common-cell")


def test_a_file_without_measured_cells_is_named() -> None:
    failed = cell("decode", 0, problem="failed: crash: signal 9")
    text = refused(file(cell("decode", 0, STEADY)), file(failed, label="broken"), "no-common-cell")
    assert text.startswith("broken has no measured cell")


def test_a_cell_measured_twice_is_pooled_and_two_summaries_are_refused() -> None:
    twice = file(cell("decode", 0, STEADY), cell("decode", 0, STEADY))
    assert one(compare(twice, twice)).base_n == 10
    rows = file(
        cell("decode", 0, summary=summary(1.0), where="x.csv, row 3"),
        cell("decode", 0, summary=summary(1.0), where="x.csv, row 7"),
    )
    assert refused(rows, rows, "duplicate-rows").startswith("x.csv, row 3 and x.csv, row 7")


def test_the_gate_fails_on_sure_slowdowns_over_the_limit() -> None:
    base = file(cell("prefill", 128, STEADY), cell("decode", 0, STEADY))
    new = file(cell("prefill", 128, times(1.04)), cell("decode", 0, times(1.2)))
    found = compare(base, new)
    assert [one.verdict for one in found.cells] == ["slower", "slower"]
    assert failures(found, Gate(fail_over=0.05)) == ("decode at 0 tokens is 20 % slower, over 5 %",)
    assert failures(found, Gate()) == ()
    assert failures(compare(new, base), Gate(fail_over=0.05)) == ()


def test_noise_fails_only_where_it_could_hide_a_slowdown() -> None:
    noisy = compare(file(cell("decode", 0, LOOSE)), file(cell("decode", 0, times(1.02, LOOSE))))
    assert failures(noisy, Gate(fail_over=0.05)) == ()
    assert len(failures(noisy, Gate(fail_over=0.05, noise_is_failure=True))) == 1
    # At most 1.02 * 1.3 / 0.8 = 1.66: a limit of 70 % can not have been broken.
    assert failures(noisy, Gate(fail_over=0.7, noise_is_failure=True)) == ()


def test_a_cell_that_is_measured_no_more_counts_as_noise() -> None:
    base = file(cell("decode", 0, STEADY), cell("decode", 64, STEADY))
    new = file(cell("decode", 0, STEADY), cell("decode", 64, problem="failed: crash: signal 9"))
    found = compare(base, new)
    assert found.lost == ("decode at 64 tokens (failed: crash: signal 9)",)
    assert failures(found, Gate(fail_over=0.05)) == ()
    assert len(failures(found, Gate(noise_is_failure=True))) == 1


def test_student_tails_are_those_of_the_tables() -> None:
    for degrees, t in ((1, 12.706), (2, 4.3027), (8, 2.3060), (30, 2.0423)):
        assert decide.student_tail(t, degrees) == pytest.approx(0.05, abs=2e-5)
        assert decide.student_quantile(0.05, degrees) == pytest.approx(t, abs=1e-3)
    # One degree of freedom is Cauchy's: the tail beyond 1 is 1 - 2 atan(1) / pi = 0.5.
    assert decide.student_tail(1.0, 1) == pytest.approx(0.5)
    assert decide.student_tail(0.0, 7.3) == pytest.approx(1.0)


def test_holm_by_hand() -> None:
    # Sorted 0.01 0.02 0.04: 3 * 0.01 = 0.03, 2 * 0.02 = 0.04, 1 * 0.04 = 0.04.
    assert decide.holm([0.04, 0.01, 0.02]) == pytest.approx((0.04, 0.03, 0.04))
    # 2 * 0.03 = 0.06 holds for the larger one too.
    assert decide.holm([0.05, 0.03]) == pytest.approx((0.06, 0.06))
    assert decide.holm([]) == ()


def test_a_variance_is_steadied_by_its_neighbours_and_never_lowered() -> None:
    def side(variance: float) -> decide.Side:
        return decide.Side(mean=0.0, variance=variance, n=5, degrees=4)

    quiet, loud, alone = decide.steadied([side(1e-4), side(9e-4), side(4e-4)], ["a", "a", "b"])
    # (4 * 1e-4 + 4 * 9e-4) / 8 = 5e-4; the louder one keeps its own.
    assert (quiet.variance, quiet.degrees) == (pytest.approx(5e-4), 8)
    assert (loud.variance, loud.degrees) == (pytest.approx(9e-4), 8)
    assert (alone.variance, alone.degrees) == (pytest.approx(4e-4), 4)


def test_the_change_that_would_have_been_found() -> None:
    base = new = decide.Side(mean=0.0, variance=0.03**2, n=5, degrees=4)
    found = decide.difference(base, new)
    assert found.degrees == pytest.approx(8)
    # Standard error 0.01897; t(0.045, 8) = 2.374 and t(0.10, 8) = 1.860: 4.234 * 0.01897 = 0.0803.
    assert found.detectable(1) == pytest.approx(math.expm1(0.0803), abs=1e-3)
    # Normal: (2.0047 + 1.6449)^2 * 2 * 0.0009 / log(1.05)^2 = 10.07, so 11.
    assert decide.repetitions_needed(base, new, 0.05, 1) == 11
