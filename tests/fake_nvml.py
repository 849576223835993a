"""`pynvml` with scripted cards: what a driver answers, and how it fails."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

GIB = 2**30


class NVMLError(Exception):
    """The bindings' own error."""


@dataclasses.dataclass(kw_only=True)
class Card:
    """One GPU; None in place of an answer: the card does not support the question."""

    name: str = "GPU A"
    bus: str = "00000000:01:00.0"
    memory_total: int = 24 * GIB
    memory_used: int = 2 * GIB
    busy: int = 90
    memory_busy: int = 40
    clock: int | None = 1500
    clock_max: int = 2000
    reasons: int = 0
    milliwatts: int | None = 200_000
    temperature: int = 60
    pids: tuple[int, ...] = ()
    lost: bool = False
    """Every question about it fails."""


def answers(**values: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(**values)


class FakeNvml(types.ModuleType):
    """The module. Without cards there is no driver."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1

    def __init__(self, *cards: Card) -> None:
        super().__init__("pynvml")
        self.cards = list(cards)
        self.opened = 0

    def nvmlInit(self) -> None:
        self.opened += 1
        if not self.cards:
            raise NVMLError("library not found")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        return self.cards[index]

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"570.86"

    def nvmlDeviceGetName(self, card: Card) -> str:
        return _told(card, card.name)

    def nvmlDeviceGetPciInfo(self, card: Card) -> Any:
        return _told(card, answers(busId=card.bus.encode()))

    def nvmlDeviceGetMemoryInfo(self, card: Card) -> Any:
        return _told(card, answers(total=card.memory_total, used=card.memory_used))

    def nvmlDeviceGetUtilizationRates(self, card: Card) -> Any:
        return _told(card, answers(gpu=card.busy, memory=card.memory_busy))

    def nvmlDeviceGetClockInfo(self, card: Card, _: int) -> int:
        return _told(card, card.clock)

    def nvmlDeviceGetMaxClockInfo(self, card: Card, _: int) -> int:
        return _told(card, card.clock_max)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, card: Card) -> int:
        return _told(card, card.reasons)

    def nvmlDeviceGetPowerUsage(self, card: Card) -> int:
        return _told(card, card.milliwatts)

    def nvmlDeviceGetEnforcedPowerLimit(self, card: Card) -> int:
        return _told(card, 450_000)

    def nvmlDeviceGetTemperature(self, card: Card, _: int) -> int:
        return _told(card, card.temperature)

    def nvmlDeviceGetTemperatureThreshold(self, card: Card, _: int) -> int:
        return _told(card, 93)

    def nvmlDeviceGetCurrPcieLinkGeneration(self, card: Card) -> int:
        return _told(card, 1)

    def nvmlDeviceGetMaxPcieLinkGeneration(self, card: Card) -> int:
        return _told(card, 4)

    def nvmlDeviceGetCurrPcieLinkWidth(self, card: Card) -> int:
        return _told(card, 8)

    def nvmlDeviceGetMaxPcieLinkWidth(self, card: Card) -> int:
        return _told(card, 16)

    def nvmlDeviceGetComputeRunningProcesses(self, card: Card) -> list[Any]:
        return [answers(pid=pid) for pid in _told(card, card.pids)]


def _told(card: Card, value: Any) -> Any:
    if card.lost or value is None:
        raise NVMLError("Not Supported")
    return value
