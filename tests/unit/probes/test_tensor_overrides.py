"""What overrides move, on the header of a model with experts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
import sample_runs as sample
from tiny_models import N_EMBD, N_EXPERTS, N_FF, N_VOCAB, split_in_two, write_tiny_llama, write_tiny_moe

from probes.errors import UsageError
from probes.gguf_header import read_model_facts
from probes.memory_plan import layers_that_fit, plan_memory
from probes.placement_plan import Share, place
from probes.records import DeviceFacts, ModelFacts
from probes.tensor_overrides import compile_pattern, moved_weights

EXPERTS = 3 * N_EMBD * N_FF * N_EXPERTS * 2
"""Bytes of one layer's experts: up, gate and down in 16 bits."""
OUTPUT = N_EMBD * N_VOCAB * 2


@pytest.fixture(scope="module")
def moe(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    return read_model_facts(write_tiny_moe(tmp_path_factory.mktemp("moe") / "moe.gguf"))


def device(name: str, free: int | None = 2**30) -> DeviceFacts:
    return sample.device(name=name, kind="gpu", memory_free_bytes=free)


def shares(
    model: ModelFacts, overrides: Sequence[str], layers: int = -1, n_cpu_moe: int = 0
) -> dict[str, Share]:
    asked = sample.settings(override_tensor=tuple(overrides), n_cpu_moe=n_cpu_moe, tensor_split=(1.0, 0.0))
    devices = (device("GPU0"), device("RPC0"))
    placed = place(model, asked, devices, n_ctx=256, layers=layers, moved=moved_weights(model, asked))
    assert placed is not None
    return {share.device: share for share in placed}


def on_gpu(model: ModelFacts, overrides: Sequence[str], **changes: int) -> int:
    """Weights that the overrides take from the device that would hold everything else."""
    before, after = shares(model, (), **changes), shares(model, overrides, **changes)
    assert sum(s.weights_bytes for s in before.values()) == sum(s.weights_bytes for s in after.values())
    assert [s.kv_bytes for s in before.values()] == [s.kv_bytes for s in after.values()]
    assert [s.layers for s in before.values()] == [s.layers for s in after.values()]
    return before["GPU0"].weights_bytes - after["GPU0"].weights_bytes


@pytest.mark.parametrize(
    ("overrides", "taken"),
    [
        (("exps=CPU",), 2 * EXPERTS),
        ((r"blk\.1\.ffn_.*_exps=CPU",), EXPERTS),
        ((r"ffn_(up|gate)_exps\.weight$=cpu",), 2 * EXPERTS * 2 // 3),
        ((r"^exps=CPU",), 0),
        ((r"^output\.weight$=CPU",), OUTPUT),
        # The first that matches decides.
        ((r"blk\.0\..*_exps=GPU0", "exps=CPU"), EXPERTS),
        (("exps=CPU", r"blk\.0\..*_exps=GPU0"), 2 * EXPERTS),
        # What the host has already stays there, whatever is asked.
        (("token_embd=CPU",), 0),
        (("token_embd=GPU0",), -OUTPUT),
    ],
)
def test_what_matches_is_taken_from_its_layer(
    moe: ModelFacts, overrides: tuple[str, ...], taken: int
) -> None:
    assert on_gpu(moe, overrides) == taken


def test_they_come_before_the_experts_kept_on_the_host(moe: ModelFacts) -> None:
    assert on_gpu(moe, (r"blk\.0\..*_exps=GPU0",), n_cpu_moe=1) == -EXPERTS
    assert on_gpu(moe, ("exps=CPU",), n_cpu_moe=1) == EXPERTS


def test_a_layer_on_the_host_can_send_weights_to_a_device(moe: ModelFacts) -> None:
    assert on_gpu(moe, ("exps=GPU0",), layers=0) == -2 * EXPERTS


def test_a_servers_buffer_is_named_with_its_address(moe: ModelFacts) -> None:
    before, after = shares(moe, ()), shares(moe, ("exps=RPC0[10.0.0.2:50052]",))
    assert after["RPC0"].weights_bytes - before["RPC0"].weights_bytes == 2 * EXPERTS


def test_what_goes_to_a_device_without_layers_is_in_nobodys_plan(moe: ModelFacts) -> None:
    before, after = shares(moe, ()), shares(moe, ("exps=GPU7",))
    assert before["GPU0"].weights_bytes - after["GPU0"].weights_bytes == 2 * EXPERTS
    assert before["CPU"] == after["CPU"]


def test_a_tied_embedding_is_kept_once_where_it_was_sent(tmp_path: Path) -> None:
    tied = read_model_facts(write_tiny_llama(tmp_path / "tied.gguf", tied=True))
    usual, sent = shares(tied, ()), shares(tied, ("token_embd=CPU",))
    assert usual["GPU0"].weights_bytes - sent["GPU0"].weights_bytes == OUTPUT
    assert sent["CPU"].weights_bytes == usual["CPU"].weights_bytes
    assert shares(tied, ("token_embd=GPU0",))["GPU0"].weights_bytes == usual["GPU0"].weights_bytes


def test_all_parts_of_a_split_model_count(tmp_path: Path) -> None:
    whole = write_tiny_llama(tmp_path / "whole.gguf")
    parts = read_model_facts(split_in_two(whole)[0])
    asked = sample.settings(override_tensor=("ffn_down=CPU",))
    assert moved_weights(parts, asked) == moved_weights(read_model_facts(whole), asked)
    assert moved_weights(parts, asked)[0].n_bytes == 2 * N_EMBD * N_FF * 2


def test_without_overrides_no_file_is_read() -> None:
    assert moved_weights(sample.model(files=("/no/such/file",)), sample.settings()) == ()


def test_auto_places_more_layers_where_experts_stay_on_the_host(moe: ModelFacts) -> None:
    asked = sample.settings(n_ctx=256, override_tensor=("exps=CPU",))
    plan = plan_memory(moe, dataclasses.replace(asked, n_gpu_layers=-1), sample.machine(), [device("GPU0")])
    less = device("GPU0", plan.devices[0].need_bytes - EXPERTS)
    layers = layers_that_fit(moe, asked, [less])
    assert layers is not None
    assert layers < 3
    assert layers_that_fit(moe, asked, [less], moved_weights(moe, asked)) == 3


def test_a_smaller_quantization_moves_less_in_proportion(moe: ModelFacts) -> None:
    asked = sample.settings(n_ctx=256, n_gpu_layers=-1, override_tensor=("exps=CPU",))
    moved = moved_weights(moe, asked)
    room = sample.machine(memory_available_bytes=2**40)
    needed = plan_memory(moe, asked, room, [device("GPU0")], moved=moved).devices[0].need_bytes
    short = plan_memory(moe, asked, room, [device("GPU0", needed - 1)], moved=moved)
    assert (short.fits, short.fitting_quantization) == (False, "Q8_0")


@pytest.mark.parametrize(
    "pattern",
    [
        r"blk\.(1[0-9]|2[0-3])\.ffn_(up|down)_(ch|)exps", r"^output", r"(?:a|b)?", r"ffn(?!_norm)",
        r"a{2}b{1,}", r"[*+]+x", r"\{x\}", r"\[:digit:\]", r"[a\]]", r"\++", r".*?exps", r"(a)\1",
        r"\d\w\s\b",
    ],
)  # fmt: skip
def test_patterns_that_both_read_alike(pattern: str) -> None:
    assert compile_pattern(pattern).pattern == pattern


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(", "is no regular expression"),
        ("(?i)EXPS", "(?:...)"),
        ("(?<=blk)x", "(?:...)"),
        ("(?P<n>x)", "(?:...)"),
        (r"\Ablk", "use ^ and $"),
        ("a*+", "possessive"),
        ("a++b", "possessive"),
        ("x{,3}", "repeat such as {2}"),
        ("x{", "repeat such as {2}"),
        ("[]a]", r"write \]"),
        ("[^]a]", r"write \]"),
        ("[[:digit:]]+", "write 0-9"),
    ],
)
def test_patterns_that_the_engine_reads_otherwise(pattern: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        compile_pattern(pattern)
    assert caught.value.reason == "override-tensor"
    assert says in str(caught.value)
    assert "--override-tensor" in str(caught.value)
