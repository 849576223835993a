"""What the program costs beside the engine.

python tests/benchmarks/overhead.py step      Python's own cost of a decode step (at most 20 µs)
python tests/benchmarks/overhead.py command   wall of the command over time in engine calls (at most 1.15),
                                              the parent's share of a core meanwhile (at most 1 %)
python tests/benchmarks/overhead.py start     --version and --help over `import typer` (1.5 and 2.5)
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

LLMPHASE = Path(sys.executable).with_name("llmphase")
TESTS = Path(__file__).parent.parent


def step(steps: int = 200_000) -> None:
    """Time the loop around an engine whose calls take no time, minus nothing: the loop is the cost."""
    sys.path.insert(0, str(TESTS))
    from probes.clock import MonotonicClock
    from probes.walk import time_steps

    def run(_batch: int) -> None:
        return

    began_ns = time.perf_counter_ns()
    time_steps(run, MonotonicClock().now_ns, range(steps))
    print(f"decode step: {(time.perf_counter_ns() - began_ns) / steps / 1000:.2f} µs of Python (n {steps:,})")


def command(rounds: int = 3) -> None:
    """Profile the demo at default settings and compare wall time with time in engine calls."""
    ratios, shares = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            wall_s, parent_share = _watched(folder)
            run = json.loads(next(Path(folder, "runs").glob("*.json")).read_text())
        engine_s = sum(engine_ns(group) for group in run["groups"]) / 1e9
        ratios.append(wall_s / engine_s)
        shares.append(parent_share)
        print(
            f"wall {wall_s:.1f} s, engine {engine_s:.1f} s, parent {parent_share:.2%} of a core", flush=True
        )
    ratio, share = statistics.median(ratios), statistics.median(shares)
    print(f"command: wall over engine {ratio:.3f}, parent {share:.2%} of a core (n {rounds})")


def engine_ns(group: dict[str, Any]) -> int:
    """Time inside engine calls, as the saved run has it."""
    stages = ("open_ns", "tensors_ns", "context_ns", "first_touch_ns")
    phases = ("tokenize_ns", "prefill_ns", "decode_ns", "sampling_ns")
    return int(
        sum(each["engine_ns"] for each in group["passes"])
        + sum(load[stage] for load in group["loads"] for stage in stages)
        + sum(request[phase] for request in group["requests"] for phase in phases)
        + sum(sample["duration_ns"] for kind in ("tokenize", "sampling") for sample in group[kind])
    )


def _watched(folder: str) -> tuple[float, float]:
    """Wall seconds of the command, and its CPU share between the second and the last look at it."""
    began = time.monotonic()
    process = subprocess.Popen(
        [LLMPHASE, "profile", "demo"],
        env=os.environ | {"LLMPHASE_DATA_DIR": folder},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    parent = psutil.Process(process.pid)
    looks: list[tuple[float, float]] = []
    while process.poll() is None:
        if list(Path(folder).glob("runs/*.json")):
            times = parent.cpu_times()
            looks.append((time.monotonic(), times.user + times.system))
        time.sleep(0.5)
    wall_s = time.monotonic() - began
    measuring = looks[1:-4]  # the last seconds render the report
    (first_s, first_cpu_s), (last_s, last_cpu_s) = measuring[0], measuring[-1]
    return wall_s, (last_cpu_s - first_cpu_s) / (last_s - first_s)


def start(rounds: int = 15) -> None:
    """Median wall of process starts, in turn."""
    commands = {
        "import typer": [sys.executable, "-c", "import typer"],
        "--version": [str(LLMPHASE), "--version"],
        "--help": [str(LLMPHASE), "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command_line in commands.items():
            began = time.monotonic()
            subprocess.run(command_line, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.monotonic() - began)
    base = statistics.median(times["import typer"])
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name}: {median * 1000:.0f} ms, {median / base:.2f} of import typer (n {rounds})")


if __name__ == "__main__":
    kinds = {"step": step, "command": command, "start": start}
    if len(sys.argv) != 2 or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    kinds[sys.argv[1]]()
