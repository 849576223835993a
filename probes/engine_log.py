"""What the engine's log says about placement: pure parsing of its lines.

The log is the only place where the engine tells which buffers it made, so its wording is read
tolerantly: what a version words otherwise is missing, never guessed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from probes.records import Placement

_MIB = 1024 * 1024

_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to")
_BUFFER = re.compile(
    r":\s+(?P<buffer>\S+)\s+(?P<use>model|KV|RS|compute|output) buffer size\s*=\s*(?P<mib>[\d.]+) MiB"
)
_FLASH = re.compile(r"flash_attn\s*=\s*(\w+)")
_FLASH_AUTO = re.compile(r"Flash Attention(?: was auto| not supported)?,?(?: set to)? (enabled|disabled)")
_GRAPH = re.compile(r"graph.*: nodes = (?:\d+ / )?(\d+), splits = (?:\d+ / )?(\d+)")
_OLD_NODES = re.compile(r"graph nodes\s*=\s*(\d+)")
_OLD_SPLITS = re.compile(r"graph splits\s*=\s*(\d+)")

_FIELD_OF_USE = {
    "model": "model_bytes",
    "KV": "kv_bytes",
    "RS": "kv_bytes",
    "compute": "compute_bytes",
    "output": "output_bytes",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """Facts found in the log; None where the log did not say."""

    layers_placed: int | None
    layers_total: int | None
    flash_attn: str | None
    graph_nodes: int | None
    graph_splits: int | None
    placements: tuple[Placement, ...]


def parse_log(lines: Iterable[str]) -> LogFacts:
    """Facts of one load. A later line on the same buffer and use replaces an earlier one, except for
    weights and caches, which the engine makes in several pieces and which add up."""
    placed = total = nodes = splits = None
    flash: str | None = None
    buffers: dict[str, dict[str, float]] = {}
    for line in lines:
        if match := _BUFFER.search(line):
            _add_buffer(buffers, match)
        elif match := _OFFLOADED.search(line):
            placed, total = int(match[1]), int(match[2])
        elif match := _GRAPH.search(line):
            nodes, splits = int(match[1]), int(match[2])
        elif match := _OLD_NODES.search(line):
            nodes = int(match[1])
        elif match := _OLD_SPLITS.search(line):
            splits = int(match[1])
        elif match := (_FLASH_AUTO.search(line) or _FLASH.search(line)):
            flash = match[1]
    return LogFacts(
        layers_placed=placed,
        layers_total=total,
        flash_attn=None if flash in (None, "auto") else flash,
        graph_nodes=nodes,
        graph_splits=splits,
        placements=tuple(_placement(name, uses) for name, uses in buffers.items()),
    )


def _add_buffer(buffers: dict[str, dict[str, float]], match: re.Match[str]) -> None:
    uses = buffers.setdefault(match["buffer"], {})
    field = _FIELD_OF_USE[match["use"]]
    before = uses.get(field, 0.0) if match["use"] in ("model", "KV", "RS") else 0.0
    uses[field] = before + float(match["mib"]) * _MIB


def _placement(name: str, uses: dict[str, float]) -> Placement:
    return Placement(
        buffer=name,
        model_bytes=round(uses.get("model_bytes", 0.0)),
        kv_bytes=round(uses.get("kv_bytes", 0.0)),
        compute_bytes=round(uses.get("compute_bytes", 0.0)),
        output_bytes=round(uses.get("output_bytes", 0.0)),
    )
