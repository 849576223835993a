"""How long a silence may be, in seconds by hand."""

from __future__ import annotations

import pytest

from probes.patience import Patience

S = 10**9


def silent_for(patience: Patience, seconds: int) -> bool:
    patience.wait(seconds * S)
    return patience.is_over


def test_a_call_has_two_minutes_or_ten_times_what_it_should_take() -> None:
    patience = Patience(None, 10**8)
    patience.begin_pass(5 * S)
    assert patience.limit_ns == 120 * S
    patience.begin_pass(30 * S)
    assert patience.limit_ns == 300 * S
    assert not silent_for(patience, 299)
    assert silent_for(patience, 1)


def test_a_word_ends_the_silence_and_a_survived_one_raises_the_limit() -> None:
    patience = Patience(None, 10**8)
    patience.begin_pass(0)
    assert not silent_for(patience, 50)
    patience.hear()
    assert patience.limit_ns == 500 * S
    assert not silent_for(patience, 499)
    patience.begin_pass(0)  # a later pass of the same worker
    assert patience.limit_ns == 500 * S


@pytest.mark.parametrize(
    ("file_bytes", "limit_s"),
    [(10**6, 120), (10**8, 125), (40 * 10**9, 2120)],  # two minutes, and the file at 20 MB/s
)
def test_a_load_has_the_time_of_a_slow_disk(file_bytes: int, limit_s: int) -> None:
    patience = Patience(None, file_bytes)
    patience.begin_load()
    assert patience.limit_ns // S == limit_s
    patience.wait(100 * S)
    patience.hear()
    patience.begin_pass(0)
    assert patience.limit_ns == 120 * S  # what a load takes says nothing about calls


def test_a_whole_request_is_silent_for_long() -> None:
    for asked_ns in (None, 10 * S):
        patience = Patience(asked_ns, 10**8)
        patience.begin_request(40 * S)
        assert patience.limit_ns == 400 * S


def test_what_was_asked_for_holds() -> None:
    patience = Patience(10 * S, 40 * 10**9)
    for begin in (patience.begin_load, lambda: patience.begin_pass(100 * S)):
        begin()
        assert patience.limit_ns == 10 * S
        assert not silent_for(patience, 9)
        patience.hear()
        assert not silent_for(patience, 9)
        assert silent_for(patience, 1)
