"""The phase model finds known costs again, says when it can not, and answers for any request."""

from __future__ import annotations

import dataclasses

import pytest
import sample_runs as sample
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.records import CellResult, CellSample
from reports.phases import Estimate, fit_phases

LENGTHS = (0, 128, 512, 1024, 2048)


def exact_cell(
    prompt_tokens: int,
    *,
    a: float = 0.002,
    b: float = 0.001,
    c: float = 1e-7,
    alpha: float = 0.01,
    beta: float = 1e-6,
    steps: int = 3,
    passes: int = 3,
) -> CellResult:
    """A cell with exactly these coefficients, in seconds."""
    read = round((a + b * prompt_tokens + c * prompt_tokens**2) * 1e9) if prompt_tokens else 0
    one = tuple(round((alpha + beta * (prompt_tokens + step)) * 1e9) for step in range(steps))
    samples = tuple(
        CellSample(pass_index=i, started_ns=0, head_ns=0, tail_ns=read, decode_ns=one) for i in range(passes)
    )
    return CellResult(
        prompt_tokens=prompt_tokens, output_tokens=steps, status="ok", reason=None, samples=samples
    )


def test_exact_costs_are_found_again() -> None:
    model = fit_phases(sample.group(cells=[exact_cell(n) for n in LENGTHS]))
    assert model.prefill
    assert model.decode
    assert model.prefill.coefficients == pytest.approx((0.002, 0.001, 1e-7), rel=1e-4)
    assert model.decode.coefficients == pytest.approx((0.01, 1e-6), rel=1e-4)
    # 0.002 + 4.096 + 1e-7 * 4096^2 = 0.002 + 4.096 + 1.6777
    estimate = model.prefill_s(4096)
    assert estimate
    assert estimate.value_s == pytest.approx(5.7757, rel=1e-4)


def test_an_answer_of_n_tokens_takes_n_minus_one_steps_each_deeper() -> None:
    model = fit_phases(sample.group(cells=[exact_cell(n) for n in LENGTHS]))
    # Four tokens after 1000: steps at depths 1000, 1001, 1002: 3 * 0.01 + 1e-6 * 3003.
    answer = model.decode_s(1000, 4)
    assert answer
    assert answer.value_s == pytest.approx(0.033003, rel=1e-4)
    single = model.decode_s(1000, 1)
    assert single
    assert single.value_s == 0


def other_below_256(n: int) -> CellResult:
    return exact_cell(n, alpha=0.006 if n < 256 else 0.01)


def test_shallow_steps_may_cost_another_constant() -> None:
    model = fit_phases(sample.group(cells=[other_below_256(n) for n in (0, 128, 512, 1024)]))
    shallow, deep = model.decode_s_per_token(192), model.decode_s_per_token(2000)
    assert shallow
    assert deep
    assert shallow.value_s == pytest.approx(0.006 + 1e-6 * 192, rel=1e-4)
    assert deep.value_s == pytest.approx(0.01 + 1e-6 * 2000, rel=1e-4)
    # Five tokens after 254: steps at depths 254 and 255, then at 256 and 257.
    answer = model.decode_s(254, 5)
    assert answer
    assert answer.value_s == pytest.approx(2 * 0.006 + 2 * 0.01 + 1e-6 * (254 + 255 + 256 + 257), rel=1e-4)


@pytest.mark.parametrize("lengths", [(0, 512), (0, 128, 512), (512, 1024, 2048)])
def test_what_the_depths_do_not_show_is_not_claimed(lengths: tuple[int, ...]) -> None:
    # One deep depth shows no slope, and without a shallow one there is nothing to tell apart.
    model = fit_phases(sample.group(cells=[other_below_256(n) for n in lengths]))
    assert model.decode
    assert model.shallow_decode is None


def test_the_wait_is_the_sum_of_both_phases() -> None:
    model = fit_phases(sample.group(cells=[exact_cell(n) for n in LENGTHS]))
    wait, empty = model.wait_s(1000, 4), model.wait_s(0, 4)
    assert wait
    assert empty
    # 0.002 + 1 + 0.1 = 1.102 reading, 0.033003 writing.
    assert wait.value_s == pytest.approx(1.135003, rel=1e-4)
    # No prompt, no reading: steps at depths 0, 1, 2.
    assert empty.value_s == pytest.approx(0.030003, rel=1e-4)


def test_crossover() -> None:
    flat = fit_phases(sample.group(cells=[exact_cell(n, a=0.0, c=0.0, beta=0.0) for n in LENGTHS]))
    # Reading 1000 tokens takes 1 s, a step 0.01 s: 100 steps, 101 tokens.
    assert flat.crossover_tokens(1000) == 101


@given(prompt=st.integers(1, 5000), beta=st.floats(1e-8, 1e-4))
@settings(max_examples=30, deadline=None)
def test_crossover_is_the_first_answer_that_outweighs_the_prompt(prompt: int, beta: float) -> None:
    model = fit_phases(sample.group(cells=[exact_cell(n, beta=beta) for n in LENGTHS]))
    tokens = model.crossover_tokens(prompt)
    read, write = model.prefill_s(prompt), model.decode_s(prompt, tokens or 0)
    before = model.decode_s(prompt, (tokens or 0) - 1)
    assert read
    assert write
    assert before
    assert before.value_s < read.value_s <= write.value_s * (1 + 1e-6)


def test_coefficients_are_never_negative() -> None:
    # Reading that gets cheaper per token would want c < 0.
    cells = [exact_cell(n, b=0.001, c=-1e-7, beta=-1e-6) for n in LENGTHS]
    model = fit_phases(sample.group(cells=cells))
    assert model.prefill
    assert model.decode
    assert min(model.prefill.coefficients) >= 0
    assert min(model.decode.coefficients) >= 0


def test_a_disturbed_pass_hardly_moves_the_fit() -> None:
    cells = [exact_cell(n, passes=7) for n in LENGTHS]
    hit = cells[-1].samples[3]
    spoiled = dataclasses.replace(hit, tail_ns=hit.tail_ns * 3)
    samples = (*cells[-1].samples[:3], spoiled, *cells[-1].samples[4:])
    cells[-1] = dataclasses.replace(cells[-1], samples=samples)
    model = fit_phases(sample.group(cells=cells))
    estimate = model.prefill_s(2048)
    assert estimate
    # Undisturbed: 0.002 + 2.048 + 0.41943 = 2.46943; least squares alone would be off by far more.
    assert estimate.value_s == pytest.approx(2.46943, rel=0.02)


def test_the_interval_holds_what_a_longer_prompt_really_takes() -> None:
    model = fit_phases(sample.group())
    estimate = model.prefill_s(4096)
    assert estimate
    truth = sample.prefill_ns(4096) * 1e-9
    assert estimate.low_s < truth < estimate.high_s
    assert estimate.high_s - estimate.low_s < 0.05 * truth


def test_two_lengths_carry_a_line_and_one_carries_nothing() -> None:
    two = fit_phases(sample.group(cells=[exact_cell(128), exact_cell(512)]))
    assert two.prefill
    assert two.prefill.coefficients[2] == 0
    one = fit_phases(sample.group(cells=[exact_cell(128)]))
    assert one.prefill is None
    assert one.decode is None
    assert "1 of at least 2" in (one.prefill_reason or "")
    assert one.wait_s(128, 10) is None
    assert one.crossover_tokens(128) is None


def test_as_many_samples_as_coefficients_carry_nothing() -> None:
    model = fit_phases(sample.group(cells=[exact_cell(128, passes=1), exact_cell(512, passes=1)]))
    assert model.prefill is None
    assert "2 samples for 2 coefficients" in (model.prefill_reason or "")


def test_failed_and_skipped_cells_are_no_evidence() -> None:
    cells = [exact_cell(128), exact_cell(512), sample.failed_cell(1024), sample.skipped_cell(2048)]
    model = fit_phases(sample.group(cells=cells))
    assert model.prefill
    assert model.prefill.largest_tokens == 512


def test_estimates_add_their_errors_in_quadrature() -> None:
    # Halves 3 and 4 make 5.
    total = Estimate(value_s=10, low_s=7, high_s=13).plus(Estimate(value_s=20, low_s=16, high_s=24))
    assert (total.value_s, total.low_s, total.high_s) == (30, 25, 35)
