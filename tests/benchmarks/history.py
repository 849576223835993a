"""How long lists and histories of many saved runs take.

python tests/benchmarks/history.py [--runs 10000]

Generates that many runs in a folder of their own, then times the real command: the first `runs` and
`history`, which read every file and make the index, and later ones, which do not (wanted, at 10,000 runs:
a list in under 1 s, a history with its charts in under 3 s; medians of 5).
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
    template = dump(sample.run(run_id="RUN-ID", started_at="STARTED-AT", engine=sample.engine(commit="COMMIT")))
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


def timed(folder: Path, *arguments: str) -> tuple[float, str]:
    """Seconds of one command, and what it printed."""
    began = time.perf_counter()
    outcome = subprocess.run(
        [LLMPHASE, *arguments],
        env=os.environ | {"LLMPHASE_DATA_DIR": str(folder), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return time.perf_counter() - began, outcome.stdout


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
        print(f"{'start of the program alone':28} {timed(folder, '--version')[0]:6.2f} s", flush=True)
        for command in (("runs",), ("history",)):
            first, printed = timed(folder, *command)
            lines = len(printed.splitlines())
            later = statistics.median(timed(folder, *command)[0] for _ in range(options.repetitions))
            print(f"{command[0]:8} first {first:6.2f} s, later {later:6.2f} s ({lines:,} lines)", flush=True)


if __name__ == "__main__":
    main()
