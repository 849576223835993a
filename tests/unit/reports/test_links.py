"""What the network costs a token, and whether devices behind it help: sums by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import sample_runs as sample

from probes.records import GroupResult, LinkFacts, Placement
from reports.links import link_text, network_costs, network_share, network_step_s
from reports.notices import notices
from reports.remote_use import remote_facts
from reports.run_evidence import run_evidence

SERVER, OTHER = "10.0.0.2:50052", "10.0.0.3:50052"


def link(server: str = SERVER, **changes: Any) -> LinkFacts:
    facts = LinkFacts(
        server=server, round_trip_s=0.002, to_bytes_s=2_304_000.0, from_bytes_s=19_660_800.0, unknown={}
    )
    return dataclasses.replace(facts, **changes)


def place(buffer: str, model_bytes: int = 1) -> Placement:
    return Placement(buffer=buffer, model_bytes=model_bytes, kv_bytes=0, compute_bytes=0, output_bytes=0)


def group(*buffers: str, splits: int | None = 2, speed: float = 1.0, layers: int = 10) -> GroupResult:
    """Weights on these buffers; one measured cell whose decode takes 6.6 ms / speed a token and more."""
    servers = (SERVER, OTHER)
    return sample.group(
        settings=sample.settings(n_gpu_layers=layers, rpc_servers=servers),
        resolved=sample.resolved(
            placements=tuple(place(buffer) for buffer in buffers), graph_splits=splits, n_gpu_layers=layers
        ),
        cells=(sample.cell(0, speed=speed), sample.cell(512, speed=speed)),
    )


def test_one_visit_a_token_returns_the_logits() -> None:
    (cost,) = network_costs(group("CPU_Mapped", f"RPC0[{SERVER}]"), [link()])
    assert cost.visits == 1
    # 576 numbers there, 49,152 logits back, 4 bytes each
    assert (cost.sent_bytes, cost.returned_bytes) == (2304, 196_608)
    # 2 ms + 2,304 / 2,304,000 + 196,608 / 19,660,800 = 2 + 1 + 10 ms
    assert cost.token_s == pytest.approx(0.013)


def test_each_pair_of_splits_is_a_visit() -> None:
    (cost,) = network_costs(group("CPU", f"RPC0[{SERVER}]", splits=20), [link()])
    # 20 parts alternate between host and server: 10 visits; 9 return 2,304 bytes, the last one the logits
    assert (cost.visits, cost.sent_bytes, cost.returned_bytes) == (10, 23_040, 9 * 2304 + 196_608)


def test_with_two_servers_the_last_one_has_the_output_layer() -> None:
    both = group("CPU", f"RPC0[{SERVER}]", f"RPC0[{OTHER}]", splits=3)
    first, last = network_costs(both, [link(), link(OTHER)])
    assert (first.visits, first.returned_bytes) == (1, 2304)
    assert (last.visits, last.returned_bytes) == (1, 196_608)


def test_a_local_device_has_the_output_layer() -> None:
    (cost,) = network_costs(group("CPU", f"RPC0[{SERVER}]", "CUDA0", splits=3), [link()])
    assert (cost.visits, cost.returned_bytes) == (1, 2304)


def test_without_rates_round_trips_are_all_that_is_known() -> None:
    (cost,) = network_costs(group("CPU", f"RPC0[{SERVER}]"), [link(to_bytes_s=None, from_bytes_s=None)])
    assert cost.token_s == 0.002


@pytest.mark.parametrize("buffers", [("CPU_Mapped",), ("CPU", "CUDA0"), ("CPU", f"RPC0[{OTHER}]")])
def test_what_does_not_lie_there_costs_nothing(buffers: tuple[str, ...]) -> None:
    assert network_costs(group(*buffers), [link()]) == ()
    assert network_share(group(*buffers), [link()]) is None


def test_a_way_that_was_not_measured_has_no_cost() -> None:
    dead = link(round_trip_s=None, to_bytes_s=None, from_bytes_s=None, unknown={"server": "rpc: refused"})
    assert network_costs(group("CPU", f"RPC0[{SERVER}]"), [dead]) == ()
    assert link_text(dead) == "unknown (rpc: refused)"


def run_of(*groups: GroupResult, links: tuple[LinkFacts, ...] = (link(),)) -> Any:
    return sample.run(*groups, links=links)


def facts_of(*groups: GroupResult, links: tuple[LinkFacts, ...] = (link(),)) -> list[tuple[str, str]]:
    found = remote_facts(run_of(*groups, links=links))
    assert found is not None
    return [(fact.name, fact.value) for fact in found.facts]


def test_the_network_is_named_where_it_takes_much_of_a_token() -> None:
    # 13 ms of network in a token of 6.6 ms / 0.4 = 16.5 ms: 79 %
    slow = group("CPU", f"RPC0[{SERVER}]", speed=0.4)
    (found,) = [notice for notice in notices(run_of(slow)) if notice.code == "network"]
    assert "at least 13.0 ms of each token's 16.5 ms (79 %)" in found.text
    assert found.phase == "decode"


def test_a_fast_network_is_not_named() -> None:
    quick = link(round_trip_s=0.0001, to_bytes_s=1e9, from_bytes_s=1e9)
    near = group("CPU", f"RPC0[{SERVER}]")
    assert not [notice for notice in notices(run_of(near, links=(quick,))) if notice.code == "network"]


def test_a_run_without_servers_has_no_such_part() -> None:
    assert remote_facts(run_of(group("CPU"), links=())) is None


@pytest.mark.parametrize(
    ("speed", "word", "advice"),
    [
        (2.0, "faster", "Adding them helps."),
        (0.5, "slower", "Keep layers off them."),
        (1.0, "no different beyond the noise", "Adding them changes nothing that shows."),
    ],
)
def test_the_best_with_them_is_set_against_the_best_without(speed: float, word: str, advice: str) -> None:
    facts = facts_of(
        group("CPU", layers=0),
        group("CPU", f"RPC0[{SERVER}]", speed=speed / 4, layers=5),
        group("CPU", f"RPC0[{SERVER}]", speed=speed, layers=31),
    )
    by_name = dict(facts)
    assert by_name["decode"].startswith(f"{word} with them")
    assert "with 31 of 31 layers there" in by_name["decode"]
    assert by_name["prefill"].startswith(f"{word} with them")
    assert by_name["advice"] == advice


def test_other_settings_are_not_compared() -> None:
    other = group("CPU", f"RPC0[{SERVER}]")
    other = dataclasses.replace(other, settings=dataclasses.replace(other.settings, threads=1))
    assert "advice" not in dict(facts_of(group("CPU", layers=0), other))


def test_names_from_outside_are_harmless() -> None:
    evil = group("CPU", layers=0)
    evil = dataclasses.replace(evil, model=sample.model(name="\x1b[31mred"))
    remote = dataclasses.replace(group("CPU", f"RPC0[{SERVER}]"), model=evil.model)
    assert "\x1b" not in str(facts_of(evil, remote))


def test_the_cost_of_a_token_is_evidence() -> None:
    there = group("CPU", f"RPC0[{SERVER}]")
    run = sample.run(there, links=(link(), link(OTHER)))
    assert network_step_s(there, run.links) == pytest.approx(0.013)  # as above: 2 + 1 + 10 ms
    evidence = run_evidence(run)
    assert evidence.network_step_s == pytest.approx(0.013)
    assert evidence.sources["network_step_s"] == "estimated"
    here = sample.run(group("CPU", layers=0), links=run.links)
    assert run_evidence(here).network_step_s is None
    assert run_evidence(sample.run(there)).network_step_s is None
