"""Prefill from the walk against fresh runs: is what one pass gives for many lengths what each alone takes?

python tests/benchmarks/walk_against_fresh.py [demo|recurrent] [ROUNDS]

Each length is also evaluated alone, on an empty cache in a process of its own; walk and fresh runs take turns
within each round, and the ratio is taken within the round. Wanted: 0.98 to 1.02 at every length. One thread:
it waits for no other where other work runs.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from probes.gguf_header import read_model_facts
from probes.model_sources import resolve_models
from probes.records import ModelFacts
from probes.self_test import Bench, plain_settings
from reports import stats

LENGTHS = (100, 600, 1200)
"""None, one and two whole chunks before the tail."""
CHUNK_TOKENS = 512
STEPS = 4
ROUNDS = 8


def demo(_: Path) -> ModelFacts:
    """The demo model."""
    return read_model_facts(resolve_models(["demo"], environment=os.environ, last_profiled=None)[0].path)


def recurrent(folder: Path) -> ModelFacts:
    """A generated mamba: its cache can not be cut, its state is saved and restored instead."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tiny_models import write_tiny_recurrent

    return read_model_facts(write_tiny_recurrent(folder / "mamba.gguf"))


def compare(model: ModelFacts, rounds: int) -> None:
    """Print the median ratio at each length, with its interval."""
    settings = plain_settings(1, chunk_tokens=CHUNK_TOKENS, n_ctx=LENGTHS[-1] + 2 * STEPS)
    pairs: dict[int, list[tuple[int, int]]] = {length: [] for length in LENGTHS}
    with contextlib.ExitStack() as stack:
        walk, *fresh = (Bench(stack, model, settings, LENGTHS[-1] + STEPS) for _ in range(1 + len(LENGTHS)))
        for number in range(rounds + 1):
            walked = walk.walk(LENGTHS, STEPS, number)
            for length, bench in zip(LENGTHS, fresh, strict=True):
                alone = bench.walk((length,), 1, number)[length]
                if number:  # the first round warms up
                    pairs[length].append((walked[length].prefill_ns, alone.prefill_ns))
    for length, times in pairs.items():
        found = stats.summarize([walk_ns / fresh_ns for walk_ns, fresh_ns in times])
        interval = "" if found.ci_low is None else f" ({found.ci_low:.3f} to {found.ci_high:.3f})"
        best = min(walk_ns for walk_ns, _ in times) / min(fresh_ns for _, fresh_ns in times)
        print(
            f"{model.name}, {length} tokens: walk over fresh {found.median:.3f}{interval},"
            f" fastest over fastest {best:.3f} (n {found.n})",
            flush=True,
        )


if __name__ == "__main__":
    kinds = {"demo": demo, "recurrent": recurrent}
    names = [word for word in sys.argv[1:] if word in kinds] or list(kinds)
    counts = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    if len(sys.argv) - 1 != len([word for word in sys.argv[1:] if word in kinds]) + len(counts):
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as made:
        for name in names:
            compare(kinds[name](Path(made)), counts[0] if counts else ROUNDS)
