"""Where the time of an evaluation goes that is split between memories: the layers here, the way there, the
layers there."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from probes.records import StepParts

_LAYER = re.compile(r"-(\d+)(?: \(.*)?$")
"""The engine ends the names of a layer's nodes with its number: `Kcur-3`, `cache_k_l3 (view)` is none of
them."""
_COMPUTING_NS = 20_000
"""The engine's questions follow each other within about a microsecond: what takes longer is computing, and
ends a piece."""
_OF_LAYERS = 0.5
"""Of a layer's nodes, in a piece, for the layer to be counted there: borders may lie inside one."""


class Node(Protocol):
    """As `probes.graph_observer.ObservedNode` has it."""

    @property
    def name(self) -> str: ...

    @property
    def on_host(self) -> bool | None: ...

    @property
    def took_ns(self) -> int: ...

    @property
    def computed_ns(self) -> int | None: ...


class Marks(NamedTuple):
    """Indices of the nodes of a split graph after which to wait."""

    host_end: int
    """The last one on the host before the first one on a device."""
    first_end: int
    """Ends the first repeating layer whose end is on a device."""
    last_end: int
    """Ends the last repeating layer."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Piece:
    took_ns: int
    on_host: bool
    layers: tuple[int, ...]
    """The layer of each of its nodes that has one."""


def marks(nodes: Sequence[Node]) -> Marks | None:
    """Of a graph that goes from the host to devices; None where the engine names no layers, or where the last
    one or what follows it is not on a device."""
    places = [node.on_host for node in nodes]
    ends = [index for index, node in enumerate(nodes) if node.name.startswith("l_out-")]
    there = [index for index in ends if places[index] is False]
    if not there or there[-1] != ends[-1] or False not in places[ends[-1] + 1 :]:
        return None
    before = [index for index in range(places.index(False)) if places[index]]
    return Marks(host_end=before[-1], first_end=there[0], last_end=there[-1]) if before else None


def split_parts(
    nodes: Sequence[Node], found: Marks, *, whole_ns: tuple[int, ...], tokens: int, position_tokens: int
) -> StepParts | None:
    """Times of host and devices from an evaluation that was waited for at each of the marks; `whole_ns` are
    of the same ones that nobody watched. None where host or devices hold no layer, or where the host computes
    behind the layers."""
    pieces, behind = _pieces(nodes), _pieces(nodes[found.last_end + 1 :])
    host_layers, device_layers = _layers(pieces)
    if not host_layers or not device_layers or not behind or any(piece.on_host for piece in behind):
        return None
    host_end = nodes[found.host_end]
    crossing_ns = 0 if host_end.computed_ns is None else host_end.took_ns - host_end.computed_ns
    ends = (node for node in nodes[found.first_end + 1 :] if node.name.startswith("l_out-"))
    return StepParts(
        tokens=tokens,
        position_tokens=position_tokens,
        host_ns=sum(piece.took_ns for piece in pieces if piece.on_host) - crossing_ns,
        host_layers=host_layers,
        device_ns=_on_devices_ns(nodes[: found.last_end + 1]),
        device_layers=device_layers,
        first_device_layer_ns=_on_devices_ns(nodes[: found.first_end + 1]),
        layers_behind_first=sum(1 for _ in ends),
        output_ns=sum(piece.took_ns for piece in behind),
        crossing_ns=crossing_ns,
        watched_ns=sum(piece.took_ns for piece in pieces),
        whole_ns=whole_ns,
    )


def _on_devices_ns(nodes: Sequence[Node]) -> int:
    return sum(piece.took_ns for piece in _pieces(nodes) if not piece.on_host)


def _pieces(nodes: Sequence[Node]) -> list[_Piece]:
    pieces = []
    begin = 0
    for index, node in enumerate(nodes):
        if node.took_ns < _COMPUTING_NS:
            continue
        piece = nodes[begin : index + 1]
        places = [one.on_host for one in piece if one.on_host is not None]
        found = (_LAYER.search(one.name) for one in piece)
        if places:
            layers = tuple(int(match[1]) for match in found if match)
            pieces.append(_Piece(node.took_ns, places[-1], layers))
        begin = index + 1
    return pieces


def _layers(pieces: Sequence[_Piece]) -> tuple[int, int]:
    """Layers of host and devices: each belongs where most of its nodes are."""
    here: dict[int, int] = {}
    whole: dict[int, int] = {}
    for piece in pieces:
        for layer in piece.layers:
            whole[layer] = whole.get(layer, 0) + 1
            here[layer] = here.get(layer, 0) + piece.on_host
    on_host = sum(here[layer] > _OF_LAYERS * count for layer, count in whole.items())
    return on_host, len(whole) - on_host
