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
import dataclasses
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


@dataclasses.dataclass(frozen=True)
class Rates:
    """Tokens per second of one cell: the median and the best of the repetitions."""

    median: float
    best: float


def our_rates(rows: list[dict[str, Any]], phase: str, prompt: int) -> Rates:
    """Of a cell of ours."""
    row = next(
        row
        for row in rows
        if row["phase"] == phase and row["prompt_tokens"] == prompt and row["status"] == "ok"
    )
    rate = float(row["tokens_per_s"])
    return Rates(median=rate, best=rate * row["median_s"] / row["min_s"])


def their_rates(rows: list[dict[str, Any]], kind: str) -> Rates:
    """Of a test of llama-bench, from its samples: its average gives way to a single slow one."""
    samples = next(row["samples_ts"] for row in rows if row[kind])
    return Rates(median=statistics.median(samples), best=max(samples))


def fidelity(model: Path, options: argparse.Namespace) -> None:
    """Print the ratio of each pair, the median of the ratios, and the best rates over the best: what other
    guests of the host take slows single repetitions and never speeds one up. The order inside a pair
    alternates."""
    prompt, output, repack = str(options.prompt_tokens), str(options.output_tokens), not options.no_repack
    common = ("-n", output, "-r", "3", "-t", options.threads)
    mine: dict[str, list[Rates]] = {"prefill": [], "decode": []}
    theirs: dict[str, list[Rates]] = {"prefill": [], "decode": []}

    def run_theirs() -> None:
        rows = llama_bench(model, "-p", prompt, *common, repack=repack)
        theirs["prefill"].append(their_rates(rows, "n_prompt"))
        theirs["decode"].append(their_rates(rows, "n_gen"))

    def run_ours() -> None:
        rows = ours(model, "--like", "llama-bench", "-p", f"0,{prompt}", *common, repack=repack)
        mine["prefill"].append(our_rates(rows, "prefill", options.prompt_tokens))
        mine["decode"].append(our_rates(rows, "decode", 0))

    for index in range(options.pairs):
        for run in (run_theirs, run_ours) if index % 2 == 0 else (run_ours, run_theirs):
            run()
        pair = {phase: mine[phase][-1].median / theirs[phase][-1].median for phase in mine}
        print(f"pair {index + 1}: prefill {pair['prefill']:.3f}, decode {pair['decode']:.3f}", flush=True)
    for phase, name in (("prefill", f"prefill {prompt}"), ("decode", "decode at depth 0")):
        ratios = [a.median / b.median for a, b in zip(mine[phase], theirs[phase], strict=True)]
        best = max(rate.best for rate in mine[phase]) / max(rate.best for rate in theirs[phase])
        spread = f"min {min(ratios):.3f}, max {max(ratios):.3f}, n {options.pairs}"
        print(f"{name}: median {statistics.median(ratios):.3f} ({spread}); best over best {best:.3f}")


def cost(model: Path, options: argparse.Namespace) -> None:
    """Print wall times of both tools for the same cells and repetitions, and their ratio."""
    ratios = []
    common, repack = ("-r", "3", "-t", options.threads), not options.no_repack
    for index in range(options.pairs):
        began = time.monotonic()
        llama_bench(model, "-p", COST_LENGTHS, "-n", "0", *common, repack=repack)
        llama_bench(model, "-p", "0", "-n", "32", "-d", COST_LENGTHS, *common, repack=repack)
        theirs = time.monotonic() - began
        began = time.monotonic()
        ours(model, "-p", COST_LENGTHS, "-n", "32", *common, "--budget", "1h", repack=repack)
        mine = time.monotonic() - began
        ratios.append(theirs / mine)
        print(
            f"round {index + 1}: llama-bench {theirs:.1f} s, llmphase {mine:.1f} s, {ratios[-1]:.2f}",
            flush=True,
        )
    print(f"cost: median {statistics.median(ratios):.2f} (n {options.pairs})")


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("fidelity", "cost"))
    parser.add_argument("--model", default=None, help="GGUF file (default: the demo)")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--prompt-tokens", type=int, default=512, help="of fidelity")
    parser.add_argument("--output-tokens", type=int, default=128, help="of fidelity")
    parser.add_argument("--threads", default=str(os.cpu_count()))
    parser.add_argument("--no-repack", action="store_true")
    options = parser.parse_args()
    if "LLAMA_BENCH" not in os.environ:
        sys.exit("set LLAMA_BENCH to the llama-bench binary")
    model = Path(options.model) if options.model else demo_model()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, {options.threads} threads, {model.name}")
    run = fidelity if options.what == "fidelity" else cost
    run(model, options)


def demo_model() -> Path:
    """The demo model's file."""
    from probes.model_sources import resolve_models

    return resolve_models(["demo"], environment=os.environ)[0].path


if __name__ == "__main__":
    main()
