"""What a split model would take with its layers elsewhere, by what its parts took in this very run.

    time now = host layers * host time a layer + device layers * device time a layer + output
               + crossing + delay

Each part is timed within single evaluations (`probes.step_parts`), which are watched for that. Watching makes
the devices' part longer (a remote one gets its graph anew each time, above all), so of a decode step only the
proportion of layers and output is taken from there; the time that both take is what the same step, unwatched,
takes beyond all else. `crossing` is the way to the device, paid as long as anything is there; `delay` is how
much later in the mean than typically the first layer there is done: until what slept while the host computed
is awake (threads whose core is taken, a device whose clock went down). It goes with the layers on the host.
Over a network none is counted: its ways are as uneven without them.

All of it are means: the steps of an answer add up, and so do their parts with what disturbs each of them.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from probes.records import GroupResult, LinkFacts, StepParts

_LEAST_THERE = 1 / 3
"""Of the layers."""
_NETWORK_S = 1e-3
"""Round trip of a way that is a network's: within one machine and one switch it is shorter."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Of an evaluation of one kind, in seconds."""

    host_s: float
    """What the host computes."""
    host_layers: int
    device_layer_s: float
    """A layer on a device."""
    device_layers: int
    output_s: float
    """The output layer, on a device."""
    crossing_s: float
    """What else belongs to no layer."""
    delay_s: float
    """Waiting for a device that waited for the host."""

    @property
    def total_s(self) -> float:
        """The evaluation."""
        return self._with_s(self.host_layers)

    @property
    def host_share(self) -> float:
        """Of the time, what the layers on the host take."""
        return self.host_s / self.total_s

    @property
    def tells_layers(self) -> bool:
        """Whether enough layers are on devices for the time of one to be told: the few of a small share drown
        in what getting there costs."""
        return self.device_layers >= _LEAST_THERE * self._n_layers

    def ratio(self, layers: int) -> float:
        """Time with this many layers on devices, the output layer counting as one, over the time now."""
        here = min(max(0, self._n_layers + 1 - layers), self._n_layers)
        if layers > 0:
            return self._with_s(here) / self.total_s
        slower = self.host_s / self.host_layers / self.device_layer_s if self.device_layer_s else 1.0
        return (self._layers_s(here) + self.output_s * slower) / self.total_s

    @property
    def _n_layers(self) -> int:
        return self.host_layers + self.device_layers

    def _layers_s(self, here: int) -> float:
        return here * self.host_s / self.host_layers + (self._n_layers - here) * self.device_layer_s

    def _with_s(self, here: int) -> float:
        delay_s = self.delay_s * here / self.host_layers
        return self._layers_s(here) + self.output_s + self.crossing_s + delay_s


def decode_parts(group: GroupResult, known: Sequence[LinkFacts]) -> Parts | None:
    """Of a decode step; None where the model is not split plainly by layers, or was not timed so. `known` are
    the ways to remote devices."""
    steps = _alike(group, is_prompt=False)
    if not steps:
        return None
    last, entering = steps[-1], _entering_s(steps)
    whole_s, host_s = statistics.fmean(_wholes_s(steps)), _mean_s(steps, "host_ns")
    crossing_s = _mean_s(steps, "crossing_ns") + (statistics.median(entering) if entering else 0.0)
    delay_s = _delay_s(entering) if _is_near(group, known) else 0.0
    there_s = max(0.0, whole_s - host_s - crossing_s - delay_s)
    layers_s, output_s = _mean_s(steps, "device_ns"), _mean_s(steps, "output_ns")
    layers_s = max(0.0, layers_s - (statistics.fmean(entering) if entering else 0.0))
    layers_share = layers_s / (layers_s + output_s) if layers_s else 0.0
    # Entering may comprise the first layer.
    n_layers = last.layers_behind_first if entering else last.device_layers
    layer_s = there_s * layers_share / n_layers
    return Parts(
        host_s=host_s,
        host_layers=last.host_layers,
        device_layer_s=layer_s,
        device_layers=last.device_layers,
        output_s=there_s * (1 - layers_share),
        crossing_s=max(0.0, crossing_s - (last.device_layers - n_layers) * layer_s),
        delay_s=delay_s,
    )


def prompt_parts(group: GroupResult) -> Parts | None:
    """The same of a prompt's first micro-batch. It has as many nodes as a step: what watching them costs
    drowns in a prompt's own time. Of few evaluations the median is taken."""
    prompts = _alike(group, is_prompt=True)
    if not prompts:
        return None
    last = prompts[-1]
    host_s = statistics.median(one.host_ns / 1e9 for one in prompts)
    layers_s = statistics.median(one.device_ns / 1e9 for one in prompts)
    output_s = statistics.median(one.output_ns / 1e9 for one in prompts)
    return Parts(
        host_s=host_s,
        host_layers=last.host_layers,
        device_layer_s=layers_s / last.device_layers,
        device_layers=last.device_layers,
        output_s=output_s,
        crossing_s=max(0.0, statistics.median(_wholes_s(prompts)) - host_s - layers_s - output_s),
        delay_s=0.0,
    )


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


def _is_near(group: GroupResult, known: Sequence[LinkFacts]) -> bool:
    """Whether no network is on the way to the devices whose round trip may waver by what delays are."""
    round_trips_s = {link.server: link.round_trip_s for link in known}
    found = [round_trips_s.get(server) for server in group.settings.rpc_servers]
    return all(round_trip_s is not None and round_trip_s < _NETWORK_S for round_trip_s in found)


def _wholes_s(timed: Sequence[StepParts]) -> list[float]:
    return [whole_ns / 1e9 for one in timed for whole_ns in one.whole_ns if whole_ns]


def _mean_s(timed: Sequence[StepParts], name: str) -> float:
    return statistics.fmean(getattr(one, name) / 1e9 for one in timed)


def _entering_s(timed: Sequence[StepParts]) -> list[float]:
    """Until the first layer there is done; empty where no layer follows it."""
    if not timed[-1].layers_behind_first:
        return []
    return [one.first_device_layer_ns / 1e9 for one in timed if one.first_device_layer_ns is not None]


def _delay_s(entering: Sequence[float]) -> float:
    return max(0.0, statistics.fmean(entering) - statistics.median(entering)) if entering else 0.0
