"""Changes of level in a series: found where they are, not found in noise."""

from __future__ import annotations

import itertools
import random

import pytest

from reports.drift import FOUND_FROM, KNOWN_FROM, find_shifts, pettitt, rank_sum_p


def noise(count: int, level: float = 100.0, spread: float = 0.01, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(level, spread * level) for _ in range(count)]


def test_rank_sum_by_hand() -> None:
    # of the 20 ways to take three of six, one has the three smallest and one the three largest
    assert rank_sum_p([1, 2, 3], [4, 5, 6]) == pytest.approx(2 / 20)
    assert rank_sum_p([4, 5, 6, 7], [1, 2, 3, 0]) == pytest.approx(2 / 70)
    assert rank_sum_p([1, 4], [2, 3]) == 1.0
    assert rank_sum_p([5, 5, 5], [5, 5, 5]) == 1.0


def test_rank_sum_is_the_share_of_all_splits() -> None:
    values = [3.0, 1.0, 2.0, 2.0, 9.0, 8.0, 7.0]
    order = sorted(values)
    ranks = [sum(i + 1 for i, other in enumerate(order) if other == v) / order.count(v) for v in values]
    centre = 3 * sum(ranks) / len(ranks)
    distance = abs(sum(ranks[:3]) - centre)
    sums = [sum(chosen) for chosen in itertools.combinations(ranks, 3)]
    share = sum(abs(total - centre) >= distance - 1e-9 for total in sums) / len(sums)
    assert rank_sum_p(values[:3], values[3:]) == pytest.approx(share)


def test_pettitt_by_hand() -> None:
    # ranks 1 2 3 4 5 6: U_3 = 2 * 6 - 3 * 7 = -9, the largest there can be
    assert pettitt([1, 2, 3, 4, 5, 6]) == (3, 9)


def test_a_step_is_found_where_it_is() -> None:
    values = [*noise(30), *noise(30, level=90.0, seed=2)]
    (shift,) = find_shifts(values)
    assert abs(shift.position - 30) <= 1
    assert shift.change == pytest.approx(-0.10, abs=0.01)


def test_two_steps() -> None:
    values = [*noise(30), *noise(30, level=80.0, seed=2), *noise(30, level=100.0, seed=3)]
    assert [round(shift.position, -1) for shift in find_shifts(values)] == [30, 60]


def test_a_small_step_is_not_named() -> None:
    assert find_shifts([*noise(50, spread=0.001), *noise(50, level=101.0, spread=0.001, seed=2)]) == ()


def test_a_known_place_needs_fewer_values() -> None:
    values = [*noise(5), *noise(5, level=90.0, seed=2)]
    assert find_shifts(values) == ()
    (shift,) = find_shifts(values, [5])
    assert shift.position == 5


def test_three_on_each_side_are_too_few_to_be_sure() -> None:
    assert find_shifts([100, 101, 102, 80, 81, 82], [3]) == ()


def test_a_found_place_beside_a_known_one_is_that_one() -> None:
    # the first value of the new level looks like one of the old
    values = [*noise(30), 100.0, *noise(29, level=90.0, seed=2)]
    (shift,) = find_shifts(values, [30])
    assert shift.position == 30


def test_how_many_values_a_perfect_step_takes() -> None:
    def step(each: int) -> list[float]:
        return [100.0 + i for i in range(each)] + [50.0 + i for i in range(each)]

    assert find_shifts(step(KNOWN_FROM // 2), [KNOWN_FROM // 2])
    assert not find_shifts(step(KNOWN_FROM // 2 - 1), [KNOWN_FROM // 2 - 1])
    assert find_shifts(step(FOUND_FROM // 2))
    assert not find_shifts(step(FOUND_FROM // 2 - 1))


def test_single_wild_values_are_no_drift() -> None:
    values = noise(60)
    values[10] = values[40] = 300.0
    assert find_shifts(values, [20, 40]) == ()


def test_noise_is_rarely_taken_for_drift() -> None:
    draw = random.Random(7)
    false = 0
    for _ in range(200):
        values = [draw.gauss(100, 8) for _ in range(40)]  # far noisier than the least change named
        false += bool(find_shifts(values))
    assert false <= 10  # 5 %


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 50])
def test_nothing_to_find(values: list[float]) -> None:
    assert find_shifts(values, [1] if len(values) > 1 else []) == ()
