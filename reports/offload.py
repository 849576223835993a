"""What layers on devices cost or save: the offload model, fitted on a sweep of `--gpu-layers`.

    seconds a token = host bytes * h + device bytes * d + crossings * c

Bytes are the weights that a token reads from each memory, crossings the borders between graph splits; h, d
and c are found from the samples by `reports.regression`, for decode and for prefill apart (a whole prompt at
the same length). 1 / h and 1 / d are effective bandwidths: they hold what each operation costs, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from probes.records import GroupResult, ModelFacts, Run, first_on_device, moving_bytes
from reports import headline, measured, stats
from reports.phases import fit_phases
from reports.regression import Terms, fit_terms
from reports.roofs import is_host_buffer

_CLIFF = 3.0
"""A step that saves at least this many times what the others save for each layer is a cliff."""
_SAME = 0.03
"""Below this share of a time, a difference is none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OffloadPoint:
    """One setting of a sweep."""

    group: int
    """Its index in the run."""
    layers: int
    """On devices, the output layer counting as one."""
    host_bytes: float
    """Weights that a token reads from the host's memory."""
    device_bytes: float
    crossings: int
    """Borders between graph splits that a token passes."""
    decode_s: tuple[float, ...]
    """Seconds of one step, each counted pass."""
    prefill_s: tuple[float, ...]
    """Seconds of the whole prompt."""
    wait_s: float | None
    """The prompt and an answer of `headline.OUTPUT_TOKENS`; None: not known."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSweep:
    """One model with everything but the number of layers on devices the same."""

    device: str
    """Names of the devices that hold layers, joined."""
    total: int
    """All layers, the output layer counting as one."""
    prompt_tokens: int
    """Where the times were taken: the longest prompt that all points share."""
    points: tuple[OffloadPoint, ...]
    """By layers, ascending."""
    decode: Terms | None
    """Seconds a byte on the host, a byte on devices, a crossing; None: too few points."""
    prefill: Terms | None

    @property
    def best(self) -> OffloadPoint | None:
        """The one with the shortest wait; of those that hardly differ, the one with fewer layers."""
        known = [point for point in self.points if point.wait_s is not None]
        shortest = min((point.wait_s or 0.0 for point in known), default=0.0)
        return next((p for p in known if (p.wait_s or 0.0) <= shortest * (1 + _SAME)), None)

    @property
    def cliff(self) -> OffloadPoint | None:
        """The point whose last step alone saved far more for each layer than the others did."""
        steps = [
            (after, (middle(before.decode_s) - middle(after.decode_s)) / (after.layers - before.layers))
            for before, after in zip(self.points, self.points[1:], strict=False)
            if before.decode_s and after.decode_s
        ]
        if len(steps) < 3:
            return None
        point, gain = max(steps, key=lambda step: step[1])
        usual = stats.summarize([saved for other, saved in steps if other is not point]).median
        is_seen = gain * (point.layers - self._before(point).layers) > _SAME * middle(point.decode_s)
        return point if is_seen and gain > _CLIFF * max(usual, 0.0) else None

    def _before(self, point: OffloadPoint) -> OffloadPoint:
        return self.points[self.points.index(point) - 1]

    @property
    def device_helps(self) -> bool | None:
        """Whether layers there shorten the wait; None: it makes no difference that can be seen, or nothing is
        known."""
        first, last = self.points[0], self.points[-1]
        waits = [point.wait_s for point in self.points[1:] if point.wait_s is not None]
        if first.layers or first.wait_s is None or not waits:
            return None
        if min(waits) < first.wait_s * (1 - _SAME):
            return True
        slower = last.wait_s is not None and last.wait_s > first.wait_s * (1 + _SAME)
        return False if slower else None


def read_split(model: ModelFacts, layers: int, n_cpu_moe: int = 0) -> tuple[float, float]:
    """Weight bytes that a token reads from the host and from devices, with `layers` on devices.

    Of experts the share in use counts; the first `n_cpu_moe` layers leave theirs on the host.
    """
    if layers <= 0:
        return float(model.bytes_per_token), 0.0
    if not model.layer_bytes:
        share = min(1.0, layers / ((model.n_layers or layers) + 1))
        return model.bytes_per_token * (1 - share), model.bytes_per_token * share
    on_device = float(model.output_bytes)
    for layer in range(first_on_device(len(model.layer_bytes), layers), len(model.layer_bytes)):
        whole, experts = moving_bytes(model, layer, n_cpu_moe)
        on_device += whole + experts * _used(model)
    on_device = min(on_device, float(model.bytes_per_token))
    return model.bytes_per_token - on_device, on_device


def _read_bytes(group: GroupResult, layers: int) -> tuple[float, float]:
    """The same of a load. Where patterns moved tensors, what the engine says that it placed on devices tells:
    up to the layers' weights without experts all of it is read for each token, beyond them it is experts."""
    model, resolved = group.model, group.resolved
    if not group.settings.override_tensor or resolved is None:
        return read_split(model, layers, group.settings.n_cpu_moe)
    placed = sum(place.model_bytes for place in resolved.placements if not is_host_buffer(place.buffer))
    _, without_experts = read_split(model, layers, len(model.layer_bytes))
    on_device = min(placed, without_experts) + max(0.0, placed - without_experts) * _used(model)
    on_device = min(on_device, float(model.bytes_per_token))
    return model.bytes_per_token - on_device, on_device


def _used(model: ModelFacts) -> float:
    """The share of experts that a token reads."""
    if model.n_experts and model.n_experts_used:
        return min(1.0, model.n_experts_used / model.n_experts)
    return 1.0


def sweeps(run: Run) -> tuple[OffloadSweep, ...]:
    """Every sweep in a run: groups that differ in the number of layers alone, two or more of them measured
    and with devices that hold any."""
    families: dict[object, list[int]] = {}
    for index, group in enumerate(run.groups):
        if group.resolved is not None and measured.measured_cells(group):
            fixed = dataclasses.replace(group.settings, n_gpu_layers=None)
            families.setdefault((group.model.path, fixed), []).append(index)
    found = (_sweep(run, indexes) for indexes in families.values())
    return tuple(sweep for sweep in found if sweep is not None)


def _sweep(run: Run, indexes: Sequence[int]) -> OffloadSweep | None:
    by_layers: dict[int, int] = {}
    for index in indexes:
        resolved = run.groups[index].resolved
        if resolved is not None and resolved.n_gpu_layers is not None:
            by_layers.setdefault(resolved.n_gpu_layers, index)
    groups = [run.groups[index] for index in by_layers.values()]
    lengths = [{cell.prompt_tokens for cell in measured.measured_cells(group)} for group in groups]
    if len(groups) < 2 or not set.intersection(*lengths):
        return None
    prompt_tokens = max(set.intersection(*lengths))
    points = tuple(
        _point(index, layers, run.groups[index], prompt_tokens) for layers, index in sorted(by_layers.items())
    )
    totals = [group.resolved.layers_total for group in groups if group.resolved is not None]
    return OffloadSweep(
        device=", ".join(sorted({name for group in groups for name in device_names(group)})),
        total=max((total for total in totals if total), default=points[-1].layers),
        prompt_tokens=prompt_tokens,
        points=points,
        decode=_fit(points, lambda point: point.decode_s),
        prefill=_fit(points, lambda point: point.prefill_s),
    )


def _point(index: int, layers: int, group: GroupResult, prompt_tokens: int) -> OffloadPoint:
    cell = next(c for c in measured.measured_cells(group) if c.prompt_tokens == prompt_tokens)
    host, device = _read_bytes(group, layers)
    splits = group.resolved.graph_splits if group.resolved else None
    wait = headline.wait_at(group, fit_phases(group), cell)
    return OffloadPoint(
        group=index,
        layers=layers,
        host_bytes=host,
        device_bytes=device,
        crossings=max(0, (splits or 1) - 1),
        decode_s=tuple(stats.counted(measured.decode_samples(cell))),
        prefill_s=tuple(stats.counted(measured.prefill_samples(cell))),
        wait_s=wait.total_s if wait else None,
    )


def device_names(group: GroupResult) -> tuple[str, ...]:
    """Devices that hold weights, by the names of their buffers: `CUDA0`, `RPC0`."""
    if group.resolved is None:
        return ()
    names = (place.buffer.split("[")[0] for place in group.resolved.placements if place.model_bytes)
    return tuple(name for name in dict.fromkeys(names) if not name.startswith(("CPU", "AMX", "BLAS")))


def _fit(points: Sequence[OffloadPoint], times: Callable[[OffloadPoint], tuple[float, ...]]) -> Terms | None:
    """Two placements carry two costs; a third one carries what crossing between them costs."""
    timed = [(point, seconds) for point in points for seconds in times(point) if seconds > 0]
    if len({point.layers for point, _ in timed}) < 2:
        return None
    columns = [(point.host_bytes, point.device_bytes, float(point.crossings)) for point, _ in timed]
    if len({point.layers for point, _ in timed}) < 3:
        columns = [(host, device, 0.0) for host, device, _ in columns]
    return fit_terms(columns, [seconds for _, seconds in timed])


def middle(values: Sequence[float]) -> float:
    """The median of a point's times, in seconds."""
    return stats.summarize(values).median
