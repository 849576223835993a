"""How well what is predicted holds.

python tests/benchmarks/predictions.py lengths    fitted on 3 lengths, 6 others between and up to 2x beyond
                                                  (wanted: median error 5 %, worst 15 %)
python tests/benchmarks/predictions.py remedies   predicted against measured saving of remedies that can be
                                                  tried here (wanted: within 10 points of the wait)

A saving is a share of the wait at its own time: trials take turns with the request as it is.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from probes.records import Run
from probes.run_files import RunStore
from reports import measured
from reports.phases import fit_phases

LLMPHASE = Path(sys.executable).with_name("llmphase")
FITTED = (128, 512, 1024)
HELD_OUT = (192, 256, 384, 768, 1536, 2048)
OUTPUT_TOKENS = 64
REQUESTS = (
    ("--prompt-tokens", "400", "--output-tokens", "16"),
    ("--prompt-tokens", "64", "--output-tokens", "120"),
    ("--prompt-tokens", "200", "--output-tokens", "40", "--threads", "1"),
    ("--prompt-tokens", "500", "--output-tokens", "8", "--ubatch", "64"),
)
"""Bound by the prompt, by the answer, by too few threads, by too small micro-batches."""


def profiled(repetitions: int) -> Run:
    """One run of the demo over all lengths, fitted and held out, in the same passes."""
    lengths = ",".join(str(n) for n in sorted((*FITTED, *HELD_OUT)))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [
                LLMPHASE,
                "profile",
                "demo",
                "-p",
                lengths,
                "-n",
                "16",
                "-r",
                str(repetitions),
                "--budget",
                "20m",
            ],
            env=os.environ | {"LLMPHASE_DATA_DIR": folder},
            check=True,
            capture_output=True,
        )
        return RunStore(Path(folder) / "runs").load("last")


def lengths(repetitions: int = 5) -> None:
    """Print the error of each held-out prediction of prefill, decode and the whole wait."""
    group = profiled(repetitions).groups[0]
    kept = tuple(cell for cell in group.cells if cell.prompt_tokens in FITTED)
    model = fit_phases(dataclasses.replace(group, cells=kept))
    errors: dict[str, list[float]] = {"prefill": [], "decode": [], "wait": []}
    for cell in group.cells:
        if cell.prompt_tokens not in HELD_OUT:
            continue
        prefill, decode = measured.prefill(cell), measured.decode(cell)
        guessed_prefill = model.prefill_s(cell.prompt_tokens)
        guessed_decode = model.decode_s_per_token(measured.depth_tokens(cell))
        if not (prefill and decode and guessed_prefill and guessed_decode):
            sys.exit(f"{cell.prompt_tokens} tokens: nothing measured or predicted")
        truth = (prefill.summary.median, decode.summary.median)
        guess = (guessed_prefill.value_s, guessed_decode.value_s)
        waits = [p + OUTPUT_TOKENS * d for p, d in (truth, guess)]
        found = {
            "prefill": guess[0] / truth[0] - 1,
            "decode": guess[1] / truth[1] - 1,
            "wait": waits[1] / waits[0] - 1,
        }
        print(
            cell.prompt_tokens, " ".join(f"{name} {error:+.1%}" for name, error in found.items()), flush=True
        )
        for name, error in found.items():
            errors[name].append(abs(error))
    for name, values in errors.items():
        print(
            f"{name}: median error {statistics.median(values):.1%}, worst {max(values):.1%} (n {len(values)})"
        )


def remedies() -> None:
    """Print predicted beside measured savings, in points of the wait."""
    errors = []
    for request in REQUESTS:
        output = subprocess.run(
            [
                LLMPHASE,
                "diagnose",
                "demo",
                *request,
                "--verify",
                "8",
                "--no-save",
                "--format",
                "json",
                "--quiet",
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for remedy in json.loads(output)["remedies"]:
            if remedy["measured_saved_s"] is None or remedy["saved_s"] is None:
                continue
            before_s = remedy["saved_s"] + remedy["predicted_wait_s"]
            again_s = remedy["measured_base_wait_s"]
            predicted, got = remedy["saved_s"] / before_s, remedy["measured_saved_s"] / again_s
            errors.append(100 * abs(predicted - got))
            print(
                f"{' '.join(request)}: {remedy['code']}: predicted {predicted:.1%} of the wait,"
                f" measured {got:.1%}, {100 * (predicted - got):+.1f} points"
                f" (the wait itself: {before_s:.3f} s, then {again_s:.3f} s)",
                flush=True,
            )
    print(
        f"remedies: median {statistics.median(errors):.1f}, worst {max(errors):.1f} points (n {len(errors)})"
    )


if __name__ == "__main__":
    kinds = {"lengths": lengths, "remedies": remedies}
    if len(sys.argv) != 2 or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    kinds[sys.argv[1]]()
