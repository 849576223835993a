"""What a split model would take with its layers elsewhere, by what its parts took in this very run.

    time(L) = host layers * host time a layer + device layers * device time a layer + crossing + output layer

Each memory's time a layer is its part's over its number of layers, as timed within single evaluations
(`probes.step_parts`). Crossing is what getting to the device costs, whatever lies there: with all layers
there the network's share is left of it.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from probes.records import GroupResult, StepParts

_LEAST_THERE = 1 / 3
"""Of the layers."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Medians over the evaluations of one kind, in seconds."""

    host_s: float
    host_layers: int
    device_s: float
    device_layers: int
    output_s: float
    """On a device."""
    crossing_s: float | None
    """Of the devices' time, what getting there costs, whatever lies there: moving, and waking what has slept
    while the host computed. None: not told apart."""

    @property
    def total_s(self) -> float:
        """The whole evaluation."""
        return self.host_s + self.device_s + self.output_s

    @property
    def host_share(self) -> float:
        """Of the time, what the layers on the host take."""
        return self.host_s / self.total_s if self.total_s else 0.0

    @property
    def tells_layers(self) -> bool:
        """Whether enough layers are on devices for the time of one to be told: the few of a small share drown
        in what getting there costs."""
        return self.device_layers >= _LEAST_THERE * (self.host_layers + self.device_layers)

    def unwatched(self, whole_s: float) -> Parts:
        """The parts of an evaluation that took `whole_s` without being watched. Watching sends a remote
        device its graph anew each time: where the parts together took longer than the whole, that is the
        devices', up to half of their time."""
        device_s = whole_s - self.host_s - self.output_s
        return dataclasses.replace(self, device_s=min(self.device_s, max(device_s, self.device_s / 2)))

    def ratio(self, layers: int, network_s: float) -> float:
        """Time with this many layers on devices, the output layer counting as one, over the time now."""
        there = max(0, layers - 1)
        here = self.host_layers + self.device_layers - there
        crossing = network_s if self.crossing_s is None else self.crossing_s
        crossing = min(crossing, self.device_s / 2)
        host_each = self.host_s / self.host_layers
        device_each = (self.device_s - crossing) / self.device_layers
        if layers <= 0:
            slower = host_each / device_each if device_each else 1.0
            return (here * host_each + self.output_s * slower) / self.total_s
        entering = crossing if here else min(network_s, crossing)
        return (here * host_each + there * device_each + entering + self.output_s) / self.total_s


def decode_parts(group: GroupResult) -> Parts | None:
    """Of a decode step; None where the model is not split plainly by layers, or was not timed so."""
    return _parts(group, [one for one in group.parts if one.tokens == 1])


def prompt_parts(group: GroupResult) -> Parts | None:
    """The same of a prompt's first micro-batch."""
    return _parts(group, [one for one in group.parts if one.tokens > 1])


def _parts(group: GroupResult, timed: Sequence[StepParts]) -> Parts | None:
    """Where experts or single tensors lie apart from their layers, or the cache does, a layer more or less
    there is no whole layer."""
    asked = group.settings
    is_plain = asked.kv_offload and not asked.n_cpu_moe and not asked.override_tensor
    if not timed or not is_plain:
        return None
    last = timed[-1]
    same = [one for one in timed if one.host_layers == last.host_layers]
    return Parts(
        host_s=statistics.median(one.host_ns for one in same) / 1e9,
        host_layers=last.host_layers,
        device_s=statistics.median(one.device_ns for one in same) / 1e9,
        device_layers=last.device_layers,
        output_s=statistics.median(one.output_ns for one in same) / 1e9,
        crossing_s=_crossing_s(same),
    )


def _crossing_s(timed: Sequence[StepParts]) -> float | None:
    """The first layer there takes a layer's time and the crossing; those behind it tell the former."""
    found = [
        one.first_device_layer_ns - (one.device_ns - one.first_device_layer_ns) / (one.device_layers - 1)
        for one in timed
        if one.first_device_layer_ns is not None and one.device_layers > 1
    ]
    return max(0.0, statistics.median(found) / 1e9) if found else None
