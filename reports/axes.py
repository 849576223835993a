"""What differs between the load groups of a run, in words short enough for a table or a name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from probes.records import GroupResult, Settings
from reports.text import clean

_NAMES = {
    "n_gpu_layers": "gpu layers",
    "n_ctx": "context",
    "n_batch": "batch",
    "n_ubatch": "micro-batch",
    "threads": "threads",
    "threads_batch": "batch threads",
    "flash_attn": "flash attention",
    "type_k": "K cache",
    "type_v": "V cache",
    "load_mode": "load mode",
    "swa_full": "full window cache",
    "repack": "repack",
    "kv_offload": "KV offload",
    "op_offload": "op offload",
    "n_cpu_moe": "experts on the host",
    "override_tensor": "overrides",
    "split_mode": "split mode",
    "tensor_split": "tensor split",
    "devices": "devices",
    "main_gpu": "main GPU",
    "rpc_servers": "RPC servers",
}
"""Of every setting, in the order of the record where it matters."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Something that is not the same in all groups."""

    name: str
    """A column title."""
    value: Callable[[GroupResult], str]
    """A group's value, cleaned."""
    is_setting: bool
    """Not of the model."""


def axes(groups: Sequence[GroupResult]) -> tuple[Axis, ...]:
    """The model's name, its quantization, then settings, as far as they differ."""
    found = []
    if len({group.model.name for group in groups}) > 1:
        found.append(Axis(name="model", value=lambda g: clean(g.model.name, limit=40), is_setting=False))
    if len({group.model.quantization for group in groups}) > 1:
        found.append(
            Axis(name="quantization", value=lambda g: clean(g.model.quantization, limit=20), is_setting=False)
        )
    for field in dataclasses.fields(Settings):
        if len({getattr(group.settings, field.name) for group in groups}) > 1:
            found.append(_setting_axis(field.name))
    return tuple(axis for axis in found if not _follows(axis, groups))


def label(group: GroupResult, found: Sequence[Axis]) -> str:
    """What tells this group from the others that share its model: `gpu layers 10, threads 2`."""
    return ", ".join(f"{axis.name} {axis.value(group)}" for axis in found if axis.is_setting)


def _follows(axis: Axis, groups: Sequence[GroupResult]) -> bool:
    """Batch threads that are always the threads say nothing more."""
    return axis.name == _NAMES["threads_batch"] and all(
        group.settings.threads == group.settings.threads_batch for group in groups
    )


def _setting_axis(field: str) -> Axis:
    return Axis(
        name=_NAMES[field], value=lambda group: _words(field, getattr(group.settings, field)), is_setting=True
    )


def _words(field: str, value: Any) -> str:
    if field == "n_gpu_layers":
        return "auto" if value is None else "all" if value < 0 else str(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        parts = (f"{part:g}" if isinstance(part, float) else str(part) for part in value)
        return clean("/".join(parts), limit=40) or "default"
    return clean(str(value), limit=40)
