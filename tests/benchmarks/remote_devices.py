"""Do the verdicts on remote devices follow the processors? The demo model, layers on a loopback server.

A server with more threads than the host must be advised for, one with fewer against. Needs two idle cores;
by hand: `python tests/benchmarks/remote_devices.py [PORT]`. Ends with exit code 1 where a verdict is the
wrong way round.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from probes.rpc_server import RpcServer

PROGRAM = Path(sys.executable).with_name("llmphase")
EXPECTED = {(1, 2): "Adding them helps.", (2, 1): "Keep layers off them."}
"""Threads of the host and of the server, and what must come of it."""
CELLS = ("--gpu-layers", "0,16,all", "-p", "0,128", "-n", "16", "-r", "5", "--no-repack", "--no-save")
FORM = ("--format", "json", "--quiet", "--budget", "5m")


def said_of_remote_devices(host_threads: int, server_threads: int, address: str) -> dict[str, str]:
    """That part of the report."""
    with RpcServer(address, threads=server_threads, cache=None):
        command = [PROGRAM, "profile", "demo", "--rpc", address, "-t", str(host_threads), *CELLS, *FORM]
        outcome = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    said: dict[str, str] = json.loads(outcome.stdout)["run"]["remote"]
    return said


def main() -> int:
    """Both ways round; the exit code."""
    address = f"127.0.0.1:{sys.argv[1] if len(sys.argv) > 1 else 50052}"
    wrong = 0
    for (host, server), expected in EXPECTED.items():
        said = said_of_remote_devices(host, server, address)
        wrong += said.get("advice") != expected
        print(f"host {host} threads, server {server}: {json.dumps(said, indent=2, ensure_ascii=False)}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
