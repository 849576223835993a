"""The real engine: the demo model, and tiny models of every kind of memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import sample_runs as sample
from program import Command
from tiny_models import TINY_MODELS

from probes.llama_engine import LlamaEngine

pytestmark = pytest.mark.engine

SETTINGS = sample.settings(n_gpu_layers=0, n_ctx=1280, n_batch=512, n_ubatch=128, repack=False)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One tiny model file of each kind."""
    folder = tmp_path_factory.mktemp("tiny")
    return {name: write(folder / f"{name}.gguf") for name, write in TINY_MODELS.items()}


def profiled(llmphase: Command, model: str | Path, *arguments: str) -> dict[str, Any]:
    outcome = llmphase("profile", model, *arguments, "--format", "json", timeout=300)
    assert outcome.returncode == 0, outcome.stderr
    document: dict[str, Any] = json.loads(outcome.stdout)
    return document


def saved_group(data_folder: Path) -> dict[str, Any]:
    run = json.loads(next((data_folder / "runs").glob("*.json")).read_text())
    group: dict[str, Any] = run["groups"][0]
    return group


@pytest.mark.parametrize("kind", list(TINY_MODELS))
def test_every_kind_of_model_is_walked(
    llmphase: Command, models: dict[str, Path], data_folder: Path, kind: str
) -> None:
    document = profiled(
        llmphase, models[kind], "-p", "0,100,512,700", "-n", "4", "-r", "3", "--ubatch", "256"
    )
    for phase, lengths in (("prefill", {100, 512, 700}), ("decode", {0, 100, 512, 700})):
        found = [row for row in document["rows"] if row["phase"] == phase]
        assert {row["prompt_tokens"] for row in found} == lengths
        assert {(row["status"], row["samples"]) for row in found} <= {("ok", 3), ("ok", 2)}
        assert all(row["median_s"] > 0 for row in found)
    group = saved_group(data_folder)
    assert group["resolved"]["cache_cut"] == ("remove" if kind in ("llama", "moe") else "state")
    assert group["resolved"]["n_gpu_layers"] == 0
    assert len(group["loads"]) == 3
    assert 50 < group["requests"][0]["prompt_tokens"] < 200


def test_the_demo_model_end_to_end(llmphase: Command, data_folder: Path) -> None:
    document = profiled(llmphase, "demo", "-p", "0,64,600", "-n", "8", "-r", "2")
    rows = document["rows"]
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["phase"] for row in rows} == {
        "load",
        "context",
        "tokenize",
        "prefill",
        "decode",
        "sampling",
        "ttft",
    }
    assert {(row["architecture"], row["quantization"], row["layers_total"]) for row in rows} == {
        ("llama", "Q4_1", 31)
    }
    assert {row["n_gpu_layers"] for row in rows} == {0}
    group = saved_group(data_folder)
    weights = sum(place["model_bytes"] for place in group["resolved"]["placements"])
    assert weights >= 96_000_000
    # ttft = tokenize + prefill + one draw, never less than the prefill that is in it
    prefill = next(row for row in rows if row["phase"] == "prefill" and row["prompt_tokens"] == 600)
    ttft = next(row for row in rows if row["phase"] == "ttft" and row["prompt_tokens"] == 600)
    assert ttft["min_s"] > prefill["min_s"]
    request = group["requests"][0]
    parts = sum(request[f"{name}_ns"] for name in ("tokenize", "prefill", "decode", "sampling"))
    assert 0 <= request["wall_ns"] - parts < 0.2 * request["wall_ns"]


@pytest.mark.alone
def test_a_cold_load_is_told_from_a_warm_one(llmphase: Command, data_folder: Path) -> None:
    document = profiled(llmphase, "demo", "-p", "16", "-n", "2", "-r", "1", "--cold")
    loads = saved_group(data_folder)["loads"]
    states = [load["cache_state"] for load in loads]
    if "unknown" in states:
        pytest.skip("this system does not tell what is in its page cache")
    assert states == ["cold", "cold", "warm", "warm"]
    assert {row["cache_state"] for row in document["rows"] if row["phase"] == "load"} == {"cold", "warm"}


def test_random_tokens_and_other_settings_reach_the_engine(
    llmphase: Command, models: dict[str, Path], data_folder: Path
) -> None:
    cells = ["-p", "64", "-n", "2", "-r", "1", "--tokens", "random", "-c", "2048"]
    sizes = ["-t", "1", "-tb", "2", "-b", "128", "-ub", "64"]
    kinds = ["-fa", "off", "-ctk", "q8_0", "--load-mode", "none"]
    profiled(llmphase, models["llama"], *cells, *sizes, *kinds)
    resolved = saved_group(data_folder)["resolved"]
    assert (resolved["threads"], resolved["threads_batch"]) == (1, 2)
    assert (resolved["n_batch"], resolved["n_ubatch"], resolved["n_ctx"]) == (128, 64, 2048)
    assert resolved["flash_attn"] == "disabled"
    assert resolved["chunk_tokens"] == 64


# Cutting back: what the walk does to the cache must leave the model as it was.


def evaluate(engine: LlamaEngine, ranges: Sequence[tuple[int, int]]) -> None:
    for start, count in ranges:
        engine.run(engine.batch(start, count, logits=True))


@pytest.fixture
def open_engine() -> Callable[[Path], LlamaEngine]:
    """Open a model and lay tokens ready."""

    def open_model(path: Path) -> LlamaEngine:
        engine = LlamaEngine()
        engine.open_model(str(path), SETTINGS, lambda _share: None)
        engine.open_context(SETTINGS)
        engine.set_tokens(engine.random_tokens(1200, seed=1))
        return engine

    return open_model


@pytest.mark.parametrize("kind", list(TINY_MODELS))
def test_a_cut_back_cache_goes_on_as_if_nothing_had_been(
    models: dict[str, Path], open_engine: Callable[[Path], LlamaEngine], kind: str
) -> None:
    engine = open_engine(models[kind])
    chunks = [(start, 128) for start in range(0, 768, 128)]
    engine.clear()
    evaluate(engine, [*chunks, (768, 100)])
    fresh = engine.last_logits()
    engine.clear()
    evaluate(engine, chunks)
    engine.save(768)
    # A tail and decode steps that together reach further than a sliding window's spare cells.
    evaluate(engine, [(768, 127), *((895 + step, 1) for step in range(40))])
    engine.restore(768)
    evaluate(engine, [(768, 100)])
    # A restored cache may hold its cells in another order, so that sums round otherwise.
    rounding = 1e-3 * max(map(abs, fresh))
    assert engine.last_logits() == pytest.approx(fresh, abs=rounding)
    engine.close()
