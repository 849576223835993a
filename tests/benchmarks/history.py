"""How long lists and histories of many saved runs take.

python tests/benchmarks/history.py [--runs 10000]

Generates that many runs in a folder of their own, then times the real command: the first `runs` and
`history`, which read every file and make the index, and later ones, which do not (wanted, at 10,000 runs:
a list in under 1 s, a history with its charts in under 3 s; medians of 5). CPU time stands beside the wall,
for on a machine that others use too the two differ.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parents[1]
LLMPHASE = Path(sys.executable).with_name("llmphase")
FIRST = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)


def generate(count: int, folder: Path) -> int:
    """Write the runs: an hour apart, three engine versions, the last one 8 % slower. Returns all bytes."""
    sys.path.insert(0, str(TESTS))
    import sample_runs as sample

    from probes.run_files import dump

    draw = random.Random(1)
    template = dump(
        sample.run(run_id="RUN-ID", started_at="STARTED-AT", engine=sample.engine(commit="COMMIT"))
    )
    slower = dump(
        sample.run(
            sample.group(speed=0.92),
            run_id="RUN-ID",
            started_at="STARTED-AT",
            engine=sample.engine(commit="COMMIT"),
        )
    )
    total = 0
    for index in range(count):
        moment = FIRST + datetime.timedelta(hours=index)
        commit = f"{3 * index // count:07x}"
        text = slower if 3 * index // count == 2 else template
        text = text.replace("STARTED-AT", f"{moment:%Y-%m-%dT%H:%M:%SZ}").replace("COMMIT", commit)
        run_id = f"{moment:%Y%m%dT%H%M%SZ}-{draw.randrange(16**6):06x}"
        total += (folder / f"{run_id}.json").write_text(text.replace("RUN-ID", run_id), encoding="ascii")
    return total


def timed(folder: Path, *arguments: str) -> tuple[float, float, str]:
    """Wall and CPU seconds of one command, and what it printed."""
    began, cpu_before = time.perf_counter(), os.times()
    outcome = subprocess.run(
        [LLMPHASE, *arguments],
        env=os.environ | {"LLMPHASE_DATA_DIR": str(folder), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    wall_s, cpu = time.perf_counter() - began, os.times()
    cpu_s = cpu.children_user + cpu.children_system - cpu_before.children_user - cpu_before.children_system
    return wall_s, cpu_s, outcome.stdout


def main() -> None:
    """Generate, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "runs").mkdir()
        total = generate(options.runs, folder / "runs")
        print(f"{options.runs:,} runs, {total / 2**20:.0f} MiB", flush=True)
        print(f"--version {said(timed(folder, '--version'))}", flush=True)
        for command in ("runs", "history"):
            print(f"{command:9} first {said(timed(folder, command))}", flush=True)
            later = [timed(folder, command) for _ in range(options.repetitions)]
            median = (statistics.median(one[i] for one in later) for i in (0, 1))
            lines = len(later[0][2].splitlines())
            print(f"{command:9} later {said((*median,))}, n {len(later)}, {lines:,} lines", flush=True)


def said(times: Sequence[object]) -> str:
    """Wall and CPU seconds in words."""
    return f"{times[0]:.2f} s wall, {times[1]:.2f} s CPU"


if __name__ == "__main__":
    main()
