"""Facts of `Evidence` as text: the value with its unit, told from the field's name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from probes.records import Neighbour
from reports import units
from reports.evidence import FACT_NAMES, Evidence, OtherKernels, PlacementOption
from reports.text import clean

_SHARES = frozenset(
    {
        "host_layers_share",
        "gpu_utilization",
        "gpu_memory_utilization",
        "gpu_foreign_utilization",
        "cpu_utilization",
    }
)
_SIZES = frozenset({"bytes_per_token", "kv_bytes_per_token"})
_UNITS = (
    ("_bytes_s", "bytes/s"),
    ("_tok_s", "tok/s"),
    ("_hz", "Hz"),
    ("_bytes", "bytes"),
    ("_fraction", "share"),
    ("_s", "s"),
)
"""Ends of field names, the longer ones first."""
_GHZ = 1e9


def unit_of(name: str) -> str:
    """The unit of a field as it is stored: `s`, `bytes`, `share` ...; empty for counts, flags and names."""
    if name in _SHARES:
        return "share"
    if name in _SIZES:
        return "bytes"
    if name == "foreign_cpu":
        return "CPUs"
    return next((unit for ending, unit in _UNITS if name.endswith(ending)), "")


def value_text(name: str, value: object) -> str:
    """A fact for a person: `7.90 s`, `92.1 MiB`, `yes`."""
    if value is None:
        return units.UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return clean(value, limit=120)
    if isinstance(value, tuple):
        return ", ".join(_item(name, item) for item in value) or "none"
    if name == "n_gpu_layers_requested" and value == -1:
        return "all"
    return _number(name, value) if isinstance(value, int | float) else _item(name, value)


def _number(name: str, value: int | float) -> str:
    unit = unit_of(name)
    if unit == "s":
        return units.duration(value)
    if unit == "bytes":
        return units.size(value)
    if unit == "bytes/s":
        return f"{units.size(value)}/s"
    if unit == "tok/s":
        return units.token_rate(value)
    if unit == "share":
        return units.percent(value)
    if unit == "Hz":
        return f"{value / _GHZ:.2f} GHz"
    if unit == "CPUs":
        return f"{value:.2f} CPUs"
    return units.count(value) if isinstance(value, int) else f"{value:g}"


def _item(name: str, item: Any) -> str:
    if isinstance(item, Neighbour):
        return f"{clean(item.name, limit=40)} {item.cpus:.2f} CPUs"
    if isinstance(item, PlacementOption):
        step = units.duration(item.decode_step_s)
        return f"{item.way} for {units.count(item.layers)} layers, {step} a token"
    if isinstance(item, OtherKernels):
        step, prompt = units.duration(item.step_then_s), units.duration(item.prompt_token_then_s)
        return f"{clean(item.name, limit=40)} {step} a token, {prompt} a prompt token"
    if name == "decode_tok_s_at_depth":
        depth, rate = item
        return f"{units.token_rate(rate)} at {units.count(depth)}"
    return clean(str(item), limit=60)


def plain_facts(evidence: Evidence) -> Mapping[str, Any]:
    """All known facts in their stored units, as JSON has them: lists, numbers, flags and cleaned text."""
    known = {name: getattr(evidence, name) for name in FACT_NAMES}
    return {name: plain_value(value) for name, value in known.items() if value not in (None, ())}


def plain_value(value: object) -> Any:
    if isinstance(value, str):
        return clean(value)
    if dataclasses.is_dataclass(value):
        return {one.name: plain_value(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain_value(item) for item in value]
    return value
