"""What another placement of the layers would save: predicted from one run, and tried.

python tests/benchmarks/placements.py [half|crowded|off] [RUNS] [PORT]

half     15 of 31 layers on a loopback server of two threads that keep to a core each, one thread here: all of
         them there
crowded  the same with threads that go where the system puts them, three on two cores
off      all layers on a server of one thread, two threads here: none of them there

Wanted: within 15 % of the saving. A machine may drift by more than that between a run and its trial: the
saving is also given as a share of the wait at its own time. Needs two idle cores.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from probes.rpc_server import RpcServer

PROGRAM = Path(sys.executable).with_name("llmphase")
HALF = ("-t", "1", "-ngl", "15", "-p", "128", "-n", "128")
SETTINGS = {
    "half": (2, True, HALF),
    "crowded": (2, False, HALF),
    "off": (1, False, ("-t", "2", "-ngl", "all", "-p", "64", "-n", "48")),
}
"""Threads of the server, whether they keep to their cores, and what is diagnosed."""
FORM = ("--verify", "1", "--no-save", "--format", "json", "--quiet")


@contextmanager
def server(address: str, threads: int, *, keeps_cores: bool) -> Iterator[None]:
    """A server of its own environment: what keeps its threads to their cores would keep ours to one."""
    before = os.environ.copy()
    if keeps_cores:
        os.environ["OMP_PROC_BIND"] = "true"
    serving = RpcServer(address, threads=threads, cache=None)
    os.environ.pop("OMP_PROC_BIND", None)
    os.environ.update(before)
    with serving:
        yield


def compare(kind: str, runs: int, address: str) -> None:
    """Print both savings of each run, and the medians of their ratios."""
    server_threads, keeps_cores, request = SETTINGS[kind]
    ratios: list[tuple[float, float]] = []
    for _ in range(runs):
        with server(address, server_threads, keeps_cores=keeps_cores):
            command = [PROGRAM, "diagnose", "demo", "--rpc", address, *request, *FORM]
            output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        document = json.loads(output)
        tried = [one for one in document["remedies"] if one["tried"]]
        found = [one for one in tried if one["code"] == "gpu-layers" and one["measured_saved_s"]]
        if not found or not found[0]["saved_s"]:
            what = "; ".join(f"{one['code']}, {one['problem'] or 'measured'}" for one in tried)
            print(f"no placement was predicted and measured: {document['verdict']}, tried {what}", flush=True)
            continue
        predicted_s, measured_s = found[0]["saved_s"], found[0]["measured_saved_s"]
        wait_s, again_s = predicted_s + found[0]["predicted_wait_s"], found[0]["measured_base_wait_s"]
        ratios.append((predicted_s / measured_s, predicted_s / wait_s / (measured_s / again_s)))
        print(
            f"predicted {1e3 * predicted_s:.0f} ms of {wait_s:.2f} s ({predicted_s / wait_s:.1%}),"
            f" measured {1e3 * measured_s:.0f} ms of {again_s:.2f} s ({measured_s / again_s:.1%})",
            flush=True,
        )
    if not ratios:
        sys.exit(1)
    for name, values in zip(("saving", "share"), zip(*ratios, strict=True), strict=True):
        within = sum(abs(ratio - 1) <= 0.15 for ratio in values)
        print(f"{name}: median ratio {statistics.median(values):.2f}, {within} of {runs} within 15 %")


if __name__ == "__main__":
    kind, runs, port = (*sys.argv[1:], *("half", "5", "50052")[len(sys.argv) - 1 :])
    if kind not in SETTINGS or not runs.isdecimal():
        sys.exit(__doc__)
    compare(kind, int(runs), f"127.0.0.1:{port}")
