"""Where the time of an evaluation goes that is split between memories: the layers here, the layers there, the
output layer."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Protocol

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


@dataclasses.dataclass(frozen=True, slots=True)
class _Piece:
    took_ns: int
    on_host: bool
    layers: tuple[int, ...]
    """The layer of each of its nodes that has one."""


def last_layer_end(nodes: Sequence[Node]) -> int | None:
    """Index of the node that ends the last repeating layer; None where the engine names none."""
    ends = [index for index, node in enumerate(nodes) if node.name.startswith("l_out-")]
    return ends[-1] if ends and ends[-1] + 1 < len(nodes) else None


def first_device_layer_end(nodes: Sequence[Node]) -> int | None:
    """Index of the node that ends the first repeating layer whose end is on a device; None without one."""
    ends = (i for i, node in enumerate(nodes) if node.name.startswith("l_out-") and node.on_host is False)
    return next(ends, None)


def split_parts(
    nodes: Sequence[Node],
    with_wait: Sequence[Node],
    end_of_layers: int,
    *,
    entering: Sequence[Node] = (),
    tokens: int,
    position_tokens: int,
) -> StepParts | None:
    """Times of host and devices from two evaluations of one graph: one as it is, and one that waited after
    the node at `end_of_layers`, which tells the output layer from the layers.

    `entering` is a third one, up to the end of the first layer there. None where host or devices hold no
    layer, or where the output layer does not come out on a device.
    """
    pieces, waited = _pieces(nodes), _pieces(with_wait[end_of_layers + 1 :])
    if not pieces or not waited or any(piece.on_host for piece in waited):
        return None
    output_ns = sum(piece.took_ns for piece in waited)
    host_ns = sum(piece.took_ns for piece in pieces if piece.on_host)
    device_ns = sum(piece.took_ns for piece in pieces if not piece.on_host)
    host_layers, device_layers = _layers(pieces)
    if not host_layers or not device_layers or device_ns <= output_ns:
        return None
    return StepParts(
        tokens=tokens,
        position_tokens=position_tokens,
        host_ns=host_ns,
        host_layers=host_layers,
        device_ns=device_ns - output_ns,
        device_layers=device_layers,
        output_ns=output_ns,
        first_device_layer_ns=sum(piece.took_ns for piece in _pieces(entering) if not piece.on_host) or None,
    )


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
