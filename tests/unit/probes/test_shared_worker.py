"""Several engines in one process: each is spoken to by itself, and one's end is all others'."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TypeVar

import pytest
import sample_runs as sample

from probes.messages import AskFacts, Event, Facts, Failed, Load, Loaded, PassDone, RunPass
from probes.shared_worker import Seat, SharedWorker
from probes.worker_process import WorkerCrash

E = TypeVar("E")
PASS = RunPass(pass_index=0, lengths=(0, 8), output_tokens=2, time_left_ns=10**12)


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMPHASE_ENGINE", "fakes:scripted")
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[2])])


def load() -> Load:
    return Load(
        model=sample.model(),
        settings=sample.settings(),
        tokens="random",
        seed=0,
        max_tokens=64,
        warm_up=False,
    )


def heard(seat: Seat, kind: type[E]) -> E:
    while True:
        event: Event | None = seat.receive(30)
        assert event is not None
        if isinstance(event, kind):
            return event
        assert kind is Failed or not isinstance(event, Failed), event


def asked_in_vain(seat: Seat) -> None:
    """The pipe may still take the question."""
    seat.send(AskFacts())
    seat.receive(30)


def test_each_seat_has_an_engine_of_its_own() -> None:
    shared = SharedWorker()
    one, other = shared.seat(), shared.seat()
    try:
        assert one.pid == other.pid
        one.send(load())
        heard(one, Loaded)
        other.send(PASS)
        assert heard(other, Failed).message == "no model is loaded"
        other.send(load())
        heard(other, Loaded)
        for seat in (one, other, one):
            seat.send(PASS)
            heard(seat, PassDone)
    finally:
        one.end()
        other.end()


def test_it_ends_with_the_last_seat() -> None:
    shared = SharedWorker()
    one, other = shared.seat(), shared.seat()
    one.end()
    other.send(AskFacts())
    heard(other, Facts)
    other.end()
    with pytest.raises((WorkerCrash, ValueError)):
        other.send(AskFacts())


def test_what_ends_the_process_ends_it_for_all_and_the_next_seat_begins_another() -> None:
    shared = SharedWorker()
    one, other = shared.seat(), shared.seat()
    one.kill()
    with pytest.raises(WorkerCrash):
        asked_in_vain(other)
    anew = shared.seat()
    try:
        assert anew.pid != one.pid
        anew.send(AskFacts())
        heard(anew, Facts)
    finally:
        for seat in (one, other, anew):
            seat.end()
