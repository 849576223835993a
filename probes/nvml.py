"""What the NVIDIA driver tells about its GPUs. The only module that knows NVML.

The driver's library is opened at the first question and stays open until the process ends, since opening it
can take seconds. Where there is no driver, no library or no permission, the reason stands in
`NvidiaDriver.problem` and every answer is empty; what one GPU does not tell is None.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from probes.records import GpuFacts, GpuState

N = TypeVar("N", int, float)

_MHZ = 1e6
_HELD_DOWN = {
    0x02: "clock-setting",
    0x04: "power-cap",
    0x08: "hardware",
    0x10: "sync-boost",
    0x20: "thermal",
    0x40: "hardware-thermal",
    0x80: "power-brake",
    0x100: "display-setting",
    0x200: "board-limit",
    0x400: "reliability",
}
"""Bits of `nvmlDeviceGetCurrentClocksEventReasons` (nvml.h) that hold a clock down; bit 0 only says that the
GPU is idle."""


class NvidiaDriver:
    """The driver as one process sees it; `nvidia_driver` gives the one of this process.

    `problem` is None where the driver answers, else why it does not.
    """

    def __init__(self) -> None:
        self._handles: list[tuple[int, Any]] = []
        self.problem: str | None = None
        try:
            import pynvml
        except ImportError as error:
            self.problem = f"the NVML bindings are not installed ({error})"
            return
        self._nvml = pynvml
        self._errors: tuple[type[Exception], ...] = (
            pynvml.NVMLError,
            getattr(pynvml, "NVMLLibraryMismatchError", pynvml.NVMLError),
        )
        try:
            pynvml.nvmlInit()
        except self._errors as error:
            self.problem = f"no NVIDIA driver answers ({error})"
            return
        try:
            for index in range(pynvml.nvmlDeviceGetCount()):
                self._handles.append((index, pynvml.nvmlDeviceGetHandleByIndex(index)))
        except self._errors as error:
            self.problem = f"the NVIDIA driver does not list all of its GPUs ({error})"

    def facts(self) -> tuple[GpuFacts, ...]:
        """What each GPU is."""
        if not self._handles:
            return ()
        version = _text(self._ask("nvmlSystemGetDriverVersion"))
        return tuple(self._facts(index, handle, version) for index, handle in self._handles)

    def states(self, own: Collection[int] = ()) -> tuple[GpuState, ...]:
        """What each GPU does now. `own` are process ids that are no neighbours."""
        return tuple(self._state(index, handle, own) for index, handle in self._handles)

    def _facts(self, index: int, handle: Any, version: str | None) -> GpuFacts:
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        limit_mw = self._ask("nvmlDeviceGetEnforcedPowerLimit", handle)
        slowdown = getattr(self._nvml, "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN", 1)
        return GpuFacts(
            index=index,
            name=_text(self._ask("nvmlDeviceGetName", handle)) or "NVIDIA GPU",
            driver=None if version is None else f"NVIDIA {version}",
            pci_id=_pci_id(self._ask("nvmlDeviceGetPciInfo", handle)),
            memory_total_bytes=None if memory is None else int(memory.total),
            link_generation=self._ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            link_generation_max=self._ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            link_width=self._ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
            link_width_max=self._ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
            power_limit_w=_scaled(limit_mw, 1e-3),
            temperature_limit_c=_scaled(
                self._ask("nvmlDeviceGetTemperatureThreshold", handle, slowdown), 1.0
            ),
        )

    def _state(self, index: int, handle: Any, own: Collection[int]) -> GpuState:
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        busy = self._ask("nvmlDeviceGetUtilizationRates", handle)
        clock = getattr(self._nvml, "NVML_CLOCK_SM", 1)
        return GpuState(
            index=index,
            utilization=None if busy is None else _share(busy.gpu),
            clock_hz=_scaled(self._ask("nvmlDeviceGetClockInfo", handle, clock), _MHZ),
            clock_max_hz=_scaled(self._ask("nvmlDeviceGetMaxClockInfo", handle, clock), _MHZ),
            throttle_reasons=self._held_down(handle),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            shared_memory_bytes=None,
            power_w=_scaled(self._ask("nvmlDeviceGetPowerUsage", handle), 1e-3),
            temperature_c=_scaled(
                self._ask("nvmlDeviceGetTemperature", handle, getattr(self._nvml, "NVML_TEMPERATURE_GPU", 0)),
                1.0,
            ),
            foreign_processes=self._foreign(handle, own),
            memory_utilization=None if busy is None else _share(busy.memory),
        )

    def _held_down(self, handle: Any) -> tuple[str, ...] | None:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:  # the name before driver 535
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        if bits is None:
            return None
        return tuple(word for bit, word in _HELD_DOWN.items() if bits & bit)

    def _foreign(self, handle: Any, own: Collection[int]) -> int | None:
        """Other processes that compute here. In a container the driver may number processes as the host does:
        one that does not exist here means that none can be told apart."""
        listed = self._ask("nvmlDeviceGetComputeRunningProcesses", handle)
        if listed is None:
            return None
        others = {int(process.pid) for process in listed} - {os.getpid(), *own}
        return len(others) if all(_exists(pid) for pid in others) else None

    def _ask(self, question: str, *arguments: Any) -> Any:
        """One answer of the driver; None where it does not know the question or can not answer it."""
        function: Callable[..., Any] | None = getattr(self._nvml, question, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except self._errors:
            return None


@functools.lru_cache(maxsize=1)
def nvidia_driver() -> NvidiaDriver:
    """The driver, opened once a process."""
    return NvidiaDriver()


def _exists(pid: int) -> bool:
    import psutil

    return psutil.pid_exists(pid)


def _text(value: str | bytes | None) -> str | None:
    """Older bindings answer with bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _pci_id(info: Any) -> str | None:
    """`00000000:01:00.0` of the driver in the kernel's and the engine's shorter form."""
    text = _text(getattr(info, "busId", None))
    if not text:
        return None
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:].rjust(4, '0')}:{rest}"


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None or value < 0 else value * factor


def _share(percent: float) -> float:
    return min(1.0, max(0.0, percent / 100))
