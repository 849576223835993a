"""Which of the driver's GPUs an engine device is."""

from __future__ import annotations

from collections.abc import Sequence

from probes.records import DeviceFacts, GpuFacts


def is_local_gpu(device: DeviceFacts) -> bool:
    """Remote devices are GPUs of other machines."""
    return device.kind in ("gpu", "igpu") and not device.name.startswith("RPC")


def pair_gpus(devices: Sequence[DeviceFacts], gpus: Sequence[GpuFacts]) -> dict[str, GpuFacts]:
    """The driver's facts for each local device, by the engine's name of it.

    By the place on the bus where both tell it, else by the same name in the same order, else where there is
    one of each; a device that fits none is left out.
    """
    left = list(gpus)
    pairs: dict[str, GpuFacts] = {}
    local = [device for device in devices if is_local_gpu(device)]
    for device in local:
        _take(device, pairs, left, [gpu for gpu in left if gpu.pci_id and gpu.pci_id == device.pci_id])
    for device in local:
        if device.name not in pairs:
            _take(device, pairs, left, [gpu for gpu in left if gpu.name == device.description])
    if len(local) == len(gpus) == 1 and not pairs:
        pairs[local[0].name] = gpus[0]
    return pairs


def _take(
    device: DeviceFacts, pairs: dict[str, GpuFacts], left: list[GpuFacts], fitting: Sequence[GpuFacts]
) -> None:
    if fitting:
        pairs[device.name] = fitting[0]
        left.remove(fitting[0])
