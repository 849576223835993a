"""What a split model would take with its layers elsewhere, by what its parts took in this very run.

    time now = host layers * host time a layer + device layers * device time a layer + output + crossing

Each part is timed within single evaluations (`probes.step_parts`), which are watched for that. What watching
costs (sending a remote device its graph each time, above all) is what a watched evaluation takes beyond the
same one unwatched; it grows with the layers on the device and is taken off theirs:

    device time a layer = (until the last layer - until the first) / layers between - watching / layers there

Differences of single evaluations drown in what else runs on a machine. So they are taken between the fastest
twentieths, which nothing disturbed. What the mean evaluation takes beyond those meets all parts alike, as far
as it is other programs; as far as it is waiting until what slept while the host computed is awake, it is gone
with the last layer. Which of both is not known, so half of it is taken for each: parts are longer by

    sqrt(mean whole / undisturbed whole)

and the rest is crossing, with moving results to the device. With all layers there the network's share of that
is left. Of prompts there are too few for twentieths, and a layer takes long enough for medians.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence

from probes.records import GroupResult, StepParts

_Typical = Callable[[Sequence[float]], float]

_LEAST_THERE = 1 / 3
"""Of the layers."""
_LEAST_OF_LAYER = 0.5
"""Of a layer's watched time, what is left when watching is taken off."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Of evaluations of one kind, in seconds."""

    whole_s: float
    """The evaluation, not watched: the mean, since the steps of an answer add up."""
    host_s: float
    """What the host computes."""
    host_layers: int
    device_layer_s: float
    """A layer on a device."""
    device_layers: int
    output_s: float
    """The output layer, on a device."""

    @property
    def crossing_s(self) -> float:
        """What belongs to no layer."""
        return max(0.0, self.whole_s - self._layers_s(self.host_layers) - self.output_s)

    @property
    def total_s(self) -> float:
        """The sum of the parts: the whole, or more where noise met the parts alone."""
        return self._layers_s(self.host_layers) + self.output_s + self.crossing_s

    @property
    def host_share(self) -> float:
        """Of the time, what the layers on the host take."""
        return self.host_s / self.total_s

    @property
    def tells_layers(self) -> bool:
        """Whether enough layers are on devices for the time of one to be told: the few of a small share drown
        in what getting there costs."""
        return self.device_layers >= _LEAST_THERE * (self.host_layers + self.device_layers)

    def ratio(self, layers: int, network_s: float) -> float:
        """Time with this many layers on devices, the output layer counting as one, over the time now.
        `network_s` is what is left of the crossing when all of them are there."""
        here = self.host_layers + self.device_layers - max(0, layers - 1)
        output_s, crossing_s = self.output_s, self.crossing_s
        if layers <= 0:
            output_s *= self.host_s / self.host_layers / self.device_layer_s if self.device_layer_s else 1.0
            crossing_s = 0.0
        elif here <= 0:
            crossing_s = min(crossing_s, network_s)
        return (self._layers_s(here) + output_s + crossing_s) / self.total_s

    def _layers_s(self, here: int) -> float:
        there = self.host_layers + self.device_layers - here
        return here * self.host_s / self.host_layers + there * self.device_layer_s


def decode_parts(group: GroupResult) -> Parts | None:
    """Of a decode step; None where the model is not split plainly by layers, or was not timed so."""
    steps = _alike(group, is_prompt=False)
    return _parts(steps, _watching_s(steps), _undisturbed) if steps else None


def prompt_parts(group: GroupResult) -> Parts | None:
    """The same of a prompt's first micro-batch. Its graph has as many nodes as a step's: watching it costs as
    much, which drowns in a prompt's own time."""
    prompts, steps = _alike(group, is_prompt=True), _alike(group, is_prompt=False)
    watching_s = _watching_s(steps) if steps else 0.0
    return _parts(prompts, watching_s, statistics.median) if prompts else None


def _alike(group: GroupResult, *, is_prompt: bool) -> tuple[StepParts, ...]:
    """Evaluations of one kind and placement. Where experts or single tensors lie apart from their layers, or
    the cache does, a layer more or less there is no whole layer: none."""
    asked = group.settings
    if not asked.kv_offload or asked.n_cpu_moe or asked.override_tensor:
        return ()
    kind = [one for one in group.parts if (one.tokens > 1) is is_prompt]
    known = [
        one for one in kind if one.host_layers and one.device_layers and one.host_ns and any(one.whole_ns)
    ]
    return tuple(one for one in known if one.host_layers == known[-1].host_layers)


def _parts(timed: Sequence[StepParts], watching_s: float, typical: _Typical) -> Parts:
    last, wholes = timed[-1], _wholes_s(timed)
    host_s = typical([one.host_ns / 1e9 for one in timed])
    layer_s = _device_layer_s(timed, watching_s, typical)
    layers_s = host_s + last.device_layers * layer_s
    moving_s = typical([one.crossing_ns / 1e9 for one in timed])
    # Each is more than the output: unwatched what keeps a device waiting is in the rest, watched sending is.
    output_s = min(
        max(0.0, typical(wholes) - layers_s - moving_s),
        typical([one.output_ns / 1e9 for one in timed]),
    )
    whole_s = statistics.fmean(wholes)
    disturbed = math.sqrt(max(1.0, whole_s / typical(wholes)))
    return Parts(
        whole_s=whole_s,
        host_s=disturbed * host_s,
        host_layers=last.host_layers,
        device_layer_s=disturbed * layer_s,
        device_layers=last.device_layers,
        output_s=disturbed * output_s,
    )


def _wholes_s(timed: Sequence[StepParts]) -> list[float]:
    return [whole_ns / 1e9 for one in timed for whole_ns in one.whole_ns if whole_ns]


def _watching_s(timed: Sequence[StepParts]) -> float:
    """For each layer on a device."""
    whole_s = _undisturbed(_wholes_s(timed))
    watched_s = _undisturbed([one.watched_ns / 1e9 for one in timed if one.watched_ns] or [whole_s])
    return max(0.0, watched_s - whole_s) / timed[-1].device_layers


def _device_layer_s(timed: Sequence[StepParts], watching_s: float, typical: _Typical) -> float:
    """Without an evaluation that waited for the first layer there, its start counts as part of the layers."""
    last = timed[-1]
    layers_s, n_layers = typical([one.device_ns / 1e9 for one in timed]), last.device_layers
    entering = [one.first_device_layer_ns / 1e9 for one in timed if one.first_device_layer_ns is not None]
    if entering and last.layers_behind_first:
        layers_s, n_layers = layers_s - typical(entering), last.layers_behind_first
    layer_s = max(0.0, layers_s / n_layers)
    return max(layer_s - watching_s, _LEAST_OF_LAYER * layer_s)


def _undisturbed(times: Sequence[float]) -> float:
    """The lowest twentieth: what else runs on a machine only ever adds, and threads that wait for each other
    are held up by any of it."""
    return statistics.quantiles(times, n=20, method="inclusive")[0] if len(times) > 1 else times[0]
