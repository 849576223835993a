"""What the NVIDIA driver tells, from scripted cards."""

from __future__ import annotations

import os
import sys

import psutil
import pytest
from fake_nvml import GIB, Card, FakeNvml

from probes.nvml import NvidiaDriver
from probes.records import GpuFacts, GpuState


def driver(monkeypatch: pytest.MonkeyPatch, *cards: Card) -> NvidiaDriver:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(*cards))
    return NvidiaDriver()


@pytest.fixture(autouse=True)
def _everyone_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "pid_exists", lambda pid: pid < 1000)


def test_what_a_card_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert driver(monkeypatch, Card()).facts() == (
        GpuFacts(
            index=0,
            name="GPU A",
            driver="NVIDIA 570.86",
            pci_id="0000:01:00.0",
            memory_total_bytes=24 * GIB,
            link_generation=1,
            link_generation_max=4,
            link_width=8,
            link_width_max=16,
            power_limit_w=450.0,
            temperature_limit_c=93.0,
        ),
    )


def test_what_a_card_does(monkeypatch: pytest.MonkeyPatch) -> None:
    # Bits: 0x4 power cap, 0x40 heat, 0x1 idle, which holds nothing down.
    card = Card(reasons=0x45, pids=(7, 8, os.getpid(), 9))
    assert driver(monkeypatch, card).states(own=(7,)) == (
        GpuState(
            index=0,
            utilization=0.9,
            clock_hz=1.5e9,
            clock_max_hz=2e9,
            throttle_reasons=("power-cap", "hardware-thermal"),
            memory_used_bytes=2 * GIB,
            memory_total_bytes=24 * GIB,
            shared_memory_bytes=None,
            power_w=200.0,
            temperature_c=60.0,
            foreign_processes=2,
            memory_utilization=0.4,
        ),
    )


def test_what_a_card_does_not_tell_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    (state,) = driver(monkeypatch, Card(clock=None, milliwatts=None)).states()
    assert (state.clock_hz, state.power_w, state.clock_max_hz) == (None, None, 2e9)


def test_a_lost_card_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found = driver(monkeypatch, Card(), Card(lost=True), Card(name="GPU C"))
    assert [gpu.name for gpu in found.facts()] == ["GPU A", "NVIDIA GPU", "GPU C"]
    lost = found.states()[1]
    assert (lost.utilization, lost.throttle_reasons, lost.memory_used_bytes) == (None, None, None)


def test_processes_numbered_as_the_host_does_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    (state,) = driver(monkeypatch, Card(pids=(5, 4321))).states()
    assert state.foreign_processes is None


def test_without_a_driver_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    found = driver(monkeypatch)
    assert (found.facts(), found.states()) == ((), ())
    assert found.problem == "no NVIDIA driver answers (library not found)"


def test_without_bindings_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = NvidiaDriver()
    assert found.states() == ()
    assert found.problem is not None
    assert "not installed" in found.problem


def test_a_driver_that_does_not_list_its_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml(Card())

    def broken() -> int:
        raise fake.NVMLError("Insufficient Permissions")

    monkeypatch.setattr(fake, "nvmlDeviceGetCount", broken)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    found = NvidiaDriver()
    assert found.facts() == ()
    assert found.problem == "the NVIDIA driver does not list all of its GPUs (Insufficient Permissions)"


def test_the_installed_bindings_have_every_question_asked() -> None:
    """The fake would hide a name that the real module does not know."""
    import pynvml

    asked = {name for name in dir(FakeNvml) if name.startswith(("nvml", "NVML"))}
    assert {name for name in asked if not hasattr(pynvml, name)} == set()
    assert hasattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons")
