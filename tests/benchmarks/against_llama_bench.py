"""How our figures and our cost stand against llama-bench, built from the same llama.cpp sources.

    LLAMA_BENCH=path/to/llama-bench python tests/benchmarks/against_llama_bench.py fidelity
    LLAMA_BENCH=path/to/llama-bench python tests/benchmarks/against_llama_bench.py cost

The binary is built from the `vendor/llama.cpp` folder of llama-cpp-python's source archive:

    cmake -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build --target llama-bench

fidelity: prefill and depth-0 decode rates, ours over llama-bench's, in alternating pairs of the same
    settings and repetitions (wanted: median 0.98 to 1.02).
cost: wall time of llama-bench for a list of lengths and of decode at each as depth, over ours for the
    same cells and repetitions (wanted: at least 2.5).
`--no-repack` compares both without the engine's repacked weight layout.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LLMPHASE = Path(sys.executable).with_name("llmphase")
COST_LENGTHS = "128,256,512,1024,2048,4096"


def llama_bench(model: Path, *arguments: str, repack: bool) -> list[dict[str, Any]]:
    """Run llama-bench and return its rows."""
    command = [os.environ["LLAMA_BENCH"], "-m", str(model), "-o", "json", *arguments]
    command += [] if repack else ["--repack", "0"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows: list[dict[str, Any]] = json.loads(output[output.index("[") :])
    return rows


def ours(model: Path, *arguments: str, repack: bool) -> list[dict[str, Any]]:
    """Run `llmphase profile` and return its rows."""
    command = [str(LLMPHASE), "profile", str(model), "--quiet", "--no-save", "--format", "json", *arguments]
    command += [] if repack else ["--no-repack"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows: list[dict[str, Any]] = json.loads(output)["rows"]
    return rows


def our_rate(rows: list[dict[str, Any]], phase: str, prompt: int) -> float:
    """Tokens per second of one cell."""
    return next(
        float(row["tokens_per_s"])
        for row in rows
        if row["phase"] == phase and row["prompt_tokens"] == prompt and row["status"] == "ok"
    )


def their_rate(rows: list[dict[str, Any]], kind: str) -> float:
    """Median over llama-bench's repetitions: its own average gives way to a single slow one."""
    return statistics.median(next(row["samples_ts"] for row in rows if row[kind]))


def fidelity(model: Path, pairs: int, threads: str, *, repack: bool) -> None:
    """Print the ratio of each pair and the medians; the order inside a pair alternates."""
    ratios: dict[str, list[float]] = {"prefill 512": [], "decode at depth 0": []}
    for index in range(pairs):
        theirs: list[dict[str, Any]] = []
        mine: list[dict[str, Any]] = []
        for tool in ("theirs", "mine") if index % 2 == 0 else ("mine", "theirs"):
            if tool == "theirs":
                theirs = llama_bench(model, "-p", "512", "-n", "128", "-r", "3", "-t", threads, repack=repack)
            else:
                mine = ours(model, "--like", "llama-bench", "-r", "3", "-t", threads, repack=repack)
        prefill = our_rate(mine, "prefill", 512) / their_rate(theirs, "n_prompt")
        decode = our_rate(mine, "decode", 0) / their_rate(theirs, "n_gen")
        ratios["prefill 512"].append(prefill)
        ratios["decode at depth 0"].append(decode)
        print(f"pair {index + 1}: prefill {prefill:.3f}, decode {decode:.3f}", flush=True)
    for name, values in ratios.items():
        spread = f"min {min(values):.3f}, max {max(values):.3f}, n {pairs}"
        print(f"{name}: median {statistics.median(values):.3f} ({spread})")


def cost(model: Path, rounds: int, threads: str, *, repack: bool) -> None:
    """Print wall times of both tools for the same cells and repetitions, and their ratio."""
    ratios = []
    for index in range(rounds):
        began = time.monotonic()
        common = ("-r", "3", "-t", threads)
        llama_bench(model, "-p", COST_LENGTHS, "-n", "0", *common, repack=repack)
        llama_bench(model, "-p", "0", "-n", "32", "-d", COST_LENGTHS, *common, repack=repack)
        theirs = time.monotonic() - began
        began = time.monotonic()
        ours(model, "-p", COST_LENGTHS, "-n", "32", "-r", "3", "-t", threads, "--budget", "1h", repack=repack)
        mine = time.monotonic() - began
        ratios.append(theirs / mine)
        print(
            f"round {index + 1}: llama-bench {theirs:.1f} s, llmphase {mine:.1f} s, {ratios[-1]:.2f}",
            flush=True,
        )
    print(f"cost: median {statistics.median(ratios):.2f} (n {rounds})")


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("fidelity", "cost"))
    parser.add_argument("--model", default=None, help="GGUF file (default: the demo)")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", default=str(os.cpu_count()))
    parser.add_argument("--no-repack", action="store_true")
    options = parser.parse_args()
    if "LLAMA_BENCH" not in os.environ:
        sys.exit("set LLAMA_BENCH to the llama-bench binary")
    model = Path(options.model) if options.model else demo_model()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, {options.threads} threads, {model.name}")
    run = fidelity if options.what == "fidelity" else cost
    run(model, options.pairs, options.threads, repack=not options.no_repack)


def demo_model() -> Path:
    """The demo model's file."""
    from probes.model_sources import resolve_models

    return resolve_models(["demo"], environment=os.environ)[0].path


if __name__ == "__main__":
    main()
