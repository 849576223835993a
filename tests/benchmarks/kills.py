"""Kills workers, then whole programs, at random moments, and counts what is lost.

python tests/benchmarks/kills.py [--workers 200] [--programs 30] [--seed 1]

Sweeps on the scripted engine, in real processes. Workers are killed by SIGKILL, SIGSEGV or SIGABRT, several
in one sweep; programs by SIGKILL, and their runs are then resumed. Wanted: no cell that was finished and
saved is lost, no process outlives its program (by more than 2 s), no run file is half written, each cell
without figures has its reason, and no traceback. Exit code 1 otherwise. Linux alone; about ten minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from killing import WORKER_END_S, Tally, kill_programs, kill_workers  # noqa: E402
from tiny_models import write_tiny_llama  # noqa: E402


def last(tallies: Iterator[Tally], began: float) -> Tally:
    """Run all sweeps; the tally of them all."""
    tally = Tally()
    for tally in tallies:
        done = f"{tally.kills + tally.program_kills} kills, {time.monotonic() - began:.0f} s"
        print(f"\r{done}", end="", file=sys.stderr, flush=True)
    print("\r\x1b[K", end="", file=sys.stderr)
    return tally


def show(what: str, tally: Tally) -> None:
    kills = tally.kills + tally.program_kills
    print(f"{kills} {what} killed, {tally.finished_cells} times a cell had been finished and saved before:")
    print(
        f"  {tally.lost_cells} finished cells lost, {tally.half_files} half files, {tally.orphans} orphans,"
    )
    print(f"  {tally.without_reason} cells without figures and reason, {tally.tracebacks} tracebacks")
    for problem in tally.problems:
        print(f"  {problem}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--programs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_tiny_llama(folder / "tiny.gguf")
        environment = {"PATH": os.environ["PATH"], "HOME": name, "PYTHONPATH": str(TESTS)}
        workers = last(kill_workers(environment, model, folder / "a", given.workers, given.seed), began)
        show("workers", workers)
        programs = last(kill_programs(environment, model, folder / "b", given.programs, given.seed), began)
        show("programs", programs)
        slowest = max(programs.worker_ends_s, default=0.0)
        print(f"  their workers ended within {slowest:.2f} s; each run was completed by --resume")
    return 0 if workers.is_clean and programs.is_clean and slowest <= WORKER_END_S else 1


if __name__ == "__main__":
    sys.exit(main())
