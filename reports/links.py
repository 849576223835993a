"""What the network between machines costs: how fast each way to an RPC server is, and what of each token's
time it takes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from probes.records import GroupResult, LinkFacts, Run
from reports import measured, units
from reports.parts import Fact
from reports.text import clean

NETWORK_SHARE = 0.2
"""Of the time of a decoded token, from which on the network is named as a cause."""

_REMOTE = re.compile(r"RPC\d+\[(.+)\]")
_NUMBER_BYTES = 4
"""Activations and logits travel as F32."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCost:
    """The least that the network takes of each decoded token of one group, for one server."""

    server: str
    visits: int
    """Times that a token's evaluation goes there and comes back."""
    sent_bytes: int | None
    """A token, activations alone; None where the model's width is not known."""
    returned_bytes: int | None
    token_s: float
    """Round trips, and the bytes at the measured rates."""


def network_costs(group: GroupResult, links: Sequence[LinkFacts]) -> tuple[NetworkCost, ...]:
    """The cost of every measured way that the group's tokens take.

    token_s = visits * round trip + sent / rate there + returned / rate back. Activations of a token are
    n_embd numbers each way; where the output layer is there, the last visit returns n_vocab logits instead
    (llama.cpp, llama_model::load_tensors: it is the first layer to be offloaded). The engine also sends
    masks, positions and, with several visits, its graph: so this is a lower bound.
    """
    costs = (_network_cost(group, link) for link in links)
    return tuple(cost for cost in costs if cost is not None)


def _network_cost(group: GroupResult, link: LinkFacts) -> NetworkCost | None:
    visits = _visits(group, link.server)
    if not visits or link.round_trip_s is None:
        return None
    model = group.model
    sent = returned = None
    if model.n_embd is not None:
        sent = visits * model.n_embd * _NUMBER_BYTES
        returned = sent
        if model.n_vocab is not None and _output_server(group) == link.server:
            returned += (model.n_vocab - model.n_embd) * _NUMBER_BYTES
    return NetworkCost(
        server=link.server,
        visits=visits,
        sent_bytes=sent,
        returned_bytes=returned,
        token_s=visits * link.round_trip_s
        + _moving_s(sent, link.to_bytes_s)
        + _moving_s(returned, link.from_bytes_s),
    )


def _moving_s(n_bytes: int | None, rate: float | None) -> float:
    """0 where it is not known: costs are the least."""
    return n_bytes / rate if n_bytes is not None and rate is not None else 0.0


def _visits(group: GroupResult, server: str) -> int:
    """How often a token's evaluation goes to the server; 0 where nothing lies there.

    The graph is cut into parts where the device changes. Parts of the host alternate with those of k devices
    in turn, so that each of these has every (k + 1)th one; one at the least.
    """
    if group.resolved is None:
        return 0
    devices = [name for name in _weight_buffers(group) if not _is_host(name)]
    here = sum(_server_of(name) == server for name in devices)
    return here * max(1, (group.resolved.graph_splits or 1) // (len(devices) + 1))


def _output_server(group: GroupResult) -> str | None:
    """The server that has the output layer; None where a local device or the host has it. Devices share the
    layers in the engine's order, servers before local ones, and the output layer comes last."""
    devices = [name for name in _weight_buffers(group) if not _is_host(name)]
    if not devices or any(_server_of(name) is None for name in devices):
        return None
    there = {_server_of(name) for name in devices}
    return next((server for server in reversed(group.settings.rpc_servers) if server in there), None)


def _weight_buffers(group: GroupResult) -> tuple[str, ...]:
    places = group.resolved.placements if group.resolved else ()
    return tuple(place.buffer for place in places if place.model_bytes)


def _is_host(buffer: str) -> bool:
    return buffer.startswith(("CPU", "BLAS", "AMX")) or buffer.endswith("Host")


def _server_of(buffer: str) -> str | None:
    match = _REMOTE.fullmatch(buffer)
    return match[1] if match else None


def is_remote(group: GroupResult) -> bool:
    """Whether weights of the group lie on another machine."""
    return any(_server_of(name) is not None for name in _weight_buffers(group))


def network_share(group: GroupResult, links: Sequence[LinkFacts]) -> tuple[float, float] | None:
    """Seconds that the network takes of one decoded token at the least, and their share of it at the shortest
    prompt that was measured; None where either is not known or nothing is remote."""
    seconds = network_step_s(group, links)
    decoded = next((found for found in map(measured.decode, measured.measured_cells(group)) if found), None)
    if seconds is None or decoded is None or decoded.summary.median <= 0:
        return None
    return seconds, seconds / decoded.summary.median


def network_step_s(group: GroupResult, links: Sequence[LinkFacts]) -> float | None:
    """Seconds that the network takes of one decoded token at the least; None where nothing is remote, or no
    way to it was measured."""
    costs = network_costs(group, links)
    return sum(cost.token_s for cost in costs) if costs else None


# In words


def link_facts(run: Run) -> tuple[Fact, ...]:
    """One line for each server, and what the network costs with the fastest remote setting."""
    remote = [group for group in run.groups if is_remote(group) and network_share(group, run.links)]
    fastest = min(remote, key=_step_s, default=None)
    visits = {cost.server: cost for cost in network_costs(fastest, run.links)} if fastest else {}
    facts = [
        Fact(name=clean(link.server), value="; ".join((link_text(link), *_visit_text(visits, link))))
        for link in run.links
    ]
    if fastest:
        facts.append(Fact(name="network", value=cost_text(fastest, run.links)))
    return tuple(facts)


def link_text(link: LinkFacts) -> str:
    """`round trip 10.1 ms, 18.9 MiB/s there, 19.0 MiB/s back`, or why it is not known."""
    if link.round_trip_s is None:
        return units.unknown(clean(link.unknown.get("server", "not measured")))
    there, back = (_rate_text(link, field) for field in ("to_bytes_s", "from_bytes_s"))
    return f"round trip {units.duration(link.round_trip_s)}, {there} there, {back} back"


def _rate_text(link: LinkFacts, field: str) -> str:
    rate: float | None = getattr(link, field)
    if rate is None:
        return units.unknown(clean(link.unknown.get(field, "not measured")))
    return f"{units.size(rate)}/s"


def cost_text(group: GroupResult, links: Sequence[LinkFacts]) -> str:
    """What of a token's time is the network, for a group of which `network_share` is known."""
    found = network_share(group, links)
    if found is None:
        return units.unknown("nothing was decoded there")
    seconds, share = found
    return (
        f"with {layers_there(group)} there, at least {units.duration(seconds)} of each token's"
        f" {units.duration(_step_s(group))} ({units.percent(share)})"
    )


def _visit_text(visits: Mapping[str, NetworkCost], link: LinkFacts) -> tuple[str, ...]:
    cost = visits.get(link.server)
    if cost is None:
        return ()
    times = "once" if cost.visits == 1 else f"{units.count(cost.visits)} times"
    if cost.sent_bytes is None or cost.returned_bytes is None:
        return (f"each token visits it {times}",)
    there, back = units.size(cost.sent_bytes), units.size(cost.returned_bytes)
    return (f"each token visits it {times}: {there} there, {back} back",)


def layers_there(group: GroupResult) -> str:
    """`10 of 31 layers`, as the engine placed them."""
    resolved = group.resolved
    if resolved is None or resolved.n_gpu_layers is None or resolved.layers_total is None:
        return "layers"
    return f"{resolved.n_gpu_layers} of {resolved.layers_total} layers"


def _step_s(group: GroupResult) -> float:
    found = (measured.decode(cell) for cell in measured.measured_cells(group))
    return next((step.summary.median for step in found if step), float("inf"))
