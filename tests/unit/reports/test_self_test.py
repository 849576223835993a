"""Judgement of self-test rounds with known times."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from probes.records import RequestSample, SelfTestRound
from reports.formats import TerminalStyle
from reports.formats.self_test_forms import render_json, render_terminal
from reports.self_test import Statement, judge


def a_round(**changes: Any) -> SelfTestRound:
    made = SelfTestRound(
        decode_ns=(1_000_000,) * 4,
        doubled_decode_ns=(1_960_000,) * 4,
        walk_prefill_ns={"48": 40_000_000, "288": 300_000_000},
        fresh_prefill_ns={"48": 40_000_000, "288": 300_000_000},
        request=RequestSample(
            prompt_tokens=160,
            output_tokens=16,
            tokenize_ns=1_000_000,
            prefill_ns=160_000_000,
            decode_ns=15_000_000,
            sampling_ns=1_000_000,
            ttft_ns=162_000_000,
            wall_ns=180_000_000,
        ),
    )
    return dataclasses.replace(made, **changes)


def judged(*rounds: SelfTestRound) -> dict[str, Statement]:
    return {one.code: one for one in judge([a_round(), *rounds])}


def test_what_is_as_it_must_be_passes_with_its_figures() -> None:
    found = judged(*[a_round()] * 7)
    assert all(one.passed for one in found.values())
    assert found["layers-double"].measured == pytest.approx(1.96)
    # 177 of 180 ms
    assert found["phases-sum-to-wall"].measured == pytest.approx(177 / 180)
    assert found.keys() == {
        "layers-double",
        "repeat-costs-the-same",
        "walk-is-fresh-48",
        "walk-is-fresh-288",
        "phases-sum-to-wall",
    }


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("layers-double", {"doubled_decode_ns": (1_100_000,) * 4}),
        ("walk-is-fresh-288", {"walk_prefill_ns": {"48": 40_000_000, "288": 330_000_000}}),
        ("walk-is-fresh-48", {"fresh_prefill_ns": {"48": 36_000_000, "288": 300_000_000}}),
        ("phases-sum-to-wall", {"request": dataclasses.replace(a_round().request, wall_ns=300_000_000)}),
        # Parts above the whole are an error, however little.
        ("phases-sum-to-wall", {"request": dataclasses.replace(a_round().request, wall_ns=176_900_000)}),
    ],
)
def test_what_is_off_fails(code: str, changes: dict[str, Any]) -> None:
    found = judged(*[a_round(**changes)] * 7)
    assert not found[code].passed
    assert [one.code for one in found.values() if not one.passed] == [code]


def test_a_prefix_cache_is_found_out() -> None:
    """From the second counted round on the prompt would be nearly free."""
    cached = a_round(walk_prefill_ns={"48": 40_000_000, "288": 1_000_000})
    times = [a_round(), cached, a_round(), cached, a_round(), cached, cached]
    assert (
        not judged(*times)["repeat-costs-the-same"].passed or not judged(*times)["walk-is-fresh-288"].passed
    )


def test_noise_widens_the_interval_and_is_said() -> None:
    slow = [a_round(doubled_decode_ns=(step,) * 4) for step in (1_500_000, 1_800_000, 2_300_000, 2_600_000)]
    found = judged(*slow, *slow)
    one = found["layers-double"]
    assert one.passed
    assert one.low is not None
    assert one.low < 1.8
    style = TerminalStyle(width=80, colour=False, unicode=True)
    text = render_terminal(tuple(found.values()), 1, style)
    assert "Some intervals are wide" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_noise_alone_never_passes() -> None:
    """Half of the rounds at three times, half at four: the interval may be wide, the median is far off."""
    off = [a_round(doubled_decode_ns=(step,) * 4) for step in (1_000_000, 3_400_000, 3_500_000, 3_600_000)]
    assert not judged(*off)["layers-double"].passed


def test_json() -> None:
    document = json.loads(
        render_json(judge([a_round()] * 8), 1, TerminalStyle(width=80, colour=False, unicode=True))
    )
    assert (document["schema_version"], document["ok"], document["threads"]) == (1, True, 1)
    assert document["statements"][0]["rounds"] == 7


def test_a_single_round_is_no_test() -> None:
    with pytest.raises(ValueError, match="more than one round"):
        judge([a_round()])
