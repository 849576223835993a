"""What a split model would take with its layers elsewhere, by what its parts took in this very run.

    time(L) = time now - (L - layers there now) * (host time a layer - device time a layer)

Each part is timed within single evaluations (`probes.step_parts`), which are watched for that. What watching
costs (sending a remote device its graph each time, above all) is what a watched evaluation takes beyond the
same one unwatched; it grows with the layers on the device and is taken off theirs:

    device time a layer = (until the last layer - until the first) / layers between - watching / layers there
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence

from probes.records import GroupResult, StepParts

_LEAST_THERE = 1 / 3
"""Of the layers."""
_LEAST_OF_LAYER = 0.5
"""Of a layer's watched time, what is left when watching is taken off."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Of evaluations of one kind, in seconds."""

    whole_s: float
    """The evaluation, not watched."""
    host_s: float
    """What the host computes."""
    host_layers: int
    crossing_s: float
    """Moving results to the device: sending them, and waking what slept while the host computed."""
    device_layer_s: float
    """A layer on a device."""
    device_layers: int

    @property
    def output_s(self) -> float:
        """The output layer, on a device, and what belongs to no layer."""
        layers_s = self.host_s + self.device_layers * self.device_layer_s
        return max(0.0, self.whole_s - layers_s - self.crossing_s)

    @property
    def host_share(self) -> float:
        """Of the time, what the layers on the host take."""
        return min(1.0, self.host_s / self.whole_s) if self.whole_s else 0.0

    @property
    def tells_layers(self) -> bool:
        """Whether enough layers are on devices for the time of one to be told: the few of a small share drown
        in what getting there costs."""
        return self.device_layers >= _LEAST_THERE * (self.host_layers + self.device_layers)

    def ratio(self, layers: int, network_s: float) -> float:
        """Time with this many layers on devices, the output layer counting as one, over the time now. With
        all of them there nothing sleeps meanwhile: of the crossing, the network's share is left."""
        there = max(0, layers - 1)
        host_layer_s = self.host_s / self.host_layers
        gained_s = (there - self.device_layers) * (host_layer_s - self.device_layer_s)
        if layers <= 0:
            slower = host_layer_s / self.device_layer_s if self.device_layer_s else 1.0
            gained_s += self.crossing_s - self.output_s * (slower - 1)
        elif there >= self.host_layers + self.device_layers:
            gained_s += max(0.0, self.crossing_s - network_s)
        return max(0.0, 1 - gained_s / self.whole_s)


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
    timed = [one for one in timed if any(one.whole_ns) and one.host_layers and one.device_layers]
    if not timed or not is_plain:
        return None
    last = timed[-1]
    same = [one for one in timed if one.host_layers == last.host_layers]
    whole_s = _undisturbed_s(whole for one in same for whole in one.whole_ns if whole)
    return Parts(
        whole_s=whole_s,
        host_s=_undisturbed_s(one.host_ns for one in same),
        host_layers=last.host_layers,
        crossing_s=_undisturbed_s(one.crossing_ns for one in same),
        device_layer_s=_device_layer_s(same, whole_s),
        device_layers=last.device_layers,
    )


def _device_layer_s(timed: Sequence[StepParts], whole_s: float) -> float:
    """Without an evaluation that waited for the first layer there, its start counts as part of the layers."""
    last = timed[-1]
    layers_s, n_layers = _undisturbed_s(one.device_ns for one in timed), last.device_layers
    entering = [one.first_device_layer_ns for one in timed if one.first_device_layer_ns is not None]
    if entering and last.layers_behind_first:
        layers_s, n_layers = layers_s - _undisturbed_s(entering), last.layers_behind_first
    watched_s = _undisturbed_s(one.watched_ns or 0 for one in timed)
    watching_s = max(0.0, watched_s - whole_s) / last.device_layers
    layer_s = max(0.0, layers_s / n_layers)
    return max(layer_s - watching_s, _LEAST_OF_LAYER * layer_s)


def _undisturbed_s(times_ns: Iterable[int]) -> float:
    """The lower quartile: what else runs on a machine only ever adds, and differences of medians drown in
    it."""
    times = list(times_ns)
    lowest = statistics.quantiles(times, n=4, method="inclusive")[0] if len(times) > 1 else times[0]
    return lowest / 1e9
