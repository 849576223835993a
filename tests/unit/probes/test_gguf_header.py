"""Facts from model headers, and clear refusals of everything that is no whole model."""

from __future__ import annotations

import dataclasses
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes import architectures
from probes.errors import LlmphaseError, ModelFileError, UnmeasurableError
from probes.ggml_types import FILE_TYPES, GGML_TYPES
from probes.gguf_header import read_model_facts, require_decoder
from probes.model_sources import DEMO, resolve_models
from probes.records import ModelFacts
from probes.text import clean_text, show_path
from tests import tiny_models as tiny

F16, F32 = 2, 4
EMBEDDING_BYTES = tiny.N_EMBD * tiny.N_VOCAB * F16
EXPERT_BYTES = 3 * tiny.N_EMBD * tiny.N_FF * F16
"""Gate, up and down of one expert."""


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_tiny_llama(tmp_path_factory.mktemp("llama") / "llama.gguf")


def refusal(path: Path, error: type[LlmphaseError] = ModelFileError) -> LlmphaseError:
    """The error that reading a file ends with: always one printable line."""
    with pytest.raises(error) as caught:
        read_model_facts(path)
    message = str(caught.value)
    assert message.isprintable()
    assert message.endswith(".")
    return caught.value


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def header(*, version: int = 3, tensors: int = 0, keys: int = 0, body: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + body


ARCHITECTURE = string(b"general.architecture") + struct.pack("<I", 8) + string(b"llama")


# Facts of whole models.


def test_dense_model(llama: Path) -> None:
    facts = read_model_facts(llama)
    matrices = 2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 512  # q, output; k, v; feed forward
    assert facts.n_params == 2 * 256 * tiny.N_VOCAB + 2 * (matrices + 2 * 256) + 256
    assert facts.model_bytes == 2 * EMBEDDING_BYTES + 2 * (matrices * F16 + 2 * 256 * F32) + 256 * F32
    assert facts.bytes_per_token == facts.model_bytes - EMBEDDING_BYTES + tiny.N_EMBD * F16
    assert facts.kv_elements_per_token == 2 * 2 * (64 + 64)  # layers, KV heads, key and value
    assert facts.file_bytes == llama.stat().st_size
    assert facts.modified_at == llama.stat().st_mtime
    assert facts.bytes_by_type == {"F16": facts.model_bytes - 5 * 256 * F32, "F32": 5 * 256 * F32}
    expected = {
        "path": str(llama),
        "files": (str(llama),),
        "name": "Tiny llama",
        "architecture": "llama",
        "kind": "decoder",
        "attention": "full",
        "quantization": "F16",
        "n_layers": 2,
        "n_ctx_train": 8192,
        "n_vocab": tiny.N_VOCAB,
        "n_embd": 256,
        "n_experts": None,
        "n_experts_used": None,
        "sliding_window_tokens": None,
        "tied_output": False,
        "has_chat_template": False,
    }
    assert {key: getattr(facts, key) for key in expected} == expected
    require_decoder(facts)


def test_a_tied_embedding_is_read_whole_for_each_token(tmp_path: Path) -> None:
    facts = read_model_facts(tiny.write_tiny_llama(tmp_path / "tied.gguf", tied=True))
    assert facts.tied_output
    assert facts.bytes_per_token == facts.model_bytes


def test_of_experts_the_used_share_is_read(tmp_path: Path) -> None:
    facts = read_model_facts(tiny.write_tiny_moe(tmp_path / "moe.gguf"))
    assert (facts.n_experts, facts.n_experts_used) == (4, 2)
    unused = tiny.N_LAYERS * 2 * EXPERT_BYTES
    assert facts.bytes_per_token == facts.model_bytes - unused - EMBEDDING_BYTES + tiny.N_EMBD * F16


def test_sliding_window(tmp_path: Path) -> None:
    facts = read_model_facts(tiny.write_tiny_sliding_window(tmp_path / "window.gguf"))
    assert (facts.attention, facts.sliding_window_tokens) == ("sliding-window", 128)
    assert facts.layer_windowed == (True, False)
    assert facts.kv_elements_per_token == 2 * 2 * (64 + 64)


def test_a_window_that_the_engine_does_not_use_is_none(tmp_path: Path) -> None:
    path = tiny.write_encoder(
        tmp_path / "phi.gguf", architecture="phi3", **{"phi3.attention.sliding_window": 2048}
    )
    facts = read_model_facts(path)
    assert (facts.attention, facts.sliding_window_tokens) == ("full", None)


W, F = True, False


@pytest.mark.parametrize(
    ("architecture", "keys", "window", "windowed"),
    [
        # The engine's own pattern, the whole context last or first.
        ("gemma3", {"attention__sliding_window": 512}, 512, [W, W, W, W, W, F, W]),
        ("gpt-oss", {"attention__sliding_window": 128}, 128, [W, F, W, F, W, F, W]),
        ("cohere2moe", {"attention__sliding_window": 128}, 128, [F, W, W, W, F, W, W]),
        # A number in the file is the period, 0 for none that attends to everything.
        (
            "gemma3",
            {"attention__sliding_window": 512, "attention__sliding_window_pattern": 3},
            512,
            [W, W, F, W, W, F, W],
        ),
        ("olmo2", {"attention__sliding_window": 512, "attention__sliding_window_pattern": 0}, 512, [W] * 7),
        ("olmo2", {"attention__sliding_window": 512, "attention__sliding_window_pattern": 1}, 512, [F] * 7),
        # An array tells each layer, of any architecture.
        (
            "mimo2",
            {"attention__sliding_window": 512, "attention__sliding_window_pattern": [F, W, F, F, F, W, W]},
            512,
            [F, W, F, F, F, W, W],
        ),
        (
            "newer",
            {"attention__sliding_window": 512, "attention__sliding_window_pattern": [0, 1, 1, 1, 0, 1, 1]},
            512,
            [F, W, W, W, F, W, W],
        ),
        # Lengths that the engine knows.
        ("gemma2", {}, 4096, [W, F, W, F, W, F, W]),
        ("smallthinker", {"attention__sliding_window": 9}, 4096, [F, W, W, W, F, W, W]),
        ("llama4", {}, 8192, [W, W, W, F, W, W, W]),
        # Layers that guess ahead attend to everything.
        (
            "exaone-moe",
            {"attention__sliding_window": 128, "nextn_predict_layers": 2},
            128,
            [W, W, W, F, W, F, F],
        ),
        ("lfm2", {"attention__sliding_window": 128, "attention__sliding_window_pattern": 2}, 128, [W] * 7),
        # No window.
        ("gemma3", {}, None, []),
        ("gemma3", {"attention__sliding_window": 0}, None, []),
        ("smallthinker", {}, None, []),
        ("exaone4", {}, None, []),
        # Nothing that tells.
        ("newer", {"attention__sliding_window": 512}, 512, []),
        ("newer", {"attention__sliding_window": 512, "attention__sliding_window_pattern": 2}, 512, []),
        (
            "mimo2",
            {"attention__sliding_window": 512, "attention__sliding_window_pattern": [F, W]},
            512,
            [],
        ),
        (
            "gemma3",
            {"attention__sliding_window": 512, "attention__sliding_window_pattern": [W] * 2000},
            512,
            [],
        ),
        ("gemma3", {"attention__sliding_window": 512, "block_count": 2**32 - 1}, 512, []),
    ],
)
def test_which_layers_are_windowed(
    tmp_path: Path, architecture: str, keys: dict[str, Any], window: int | None, windowed: list[bool]
) -> None:
    described = {f"{architecture}.{key.replace('__', '.')}": value for key, value in keys.items()}
    path = tiny.write_encoder(
        tmp_path / "model.gguf", architecture=architecture, **{f"{architecture}.block_count": 7} | described
    )
    facts = read_model_facts(path)
    assert facts.sliding_window_tokens == window
    assert facts.layer_windowed == tuple(windowed)


def test_the_largest_exaone_has_a_window_that_its_file_need_not_name(tmp_path: Path) -> None:
    path = tiny.write_encoder(tmp_path / "large.gguf", architecture="exaone4", **{"exaone4.block_count": 64})
    facts = read_model_facts(path)
    assert (facts.sliding_window_tokens, facts.layer_windowed) == (4096, (W, W, W, F) * 16)


def test_recurrent_model_adds_nothing_to_a_cache(tmp_path: Path) -> None:
    facts = read_model_facts(tiny.write_tiny_recurrent(tmp_path / "mamba.gguf"))
    assert (facts.attention, facts.kv_elements_per_token) == ("recurrent", 0)


def test_hybrid_model_counts_its_attention_layers(tmp_path: Path) -> None:
    facts = read_model_facts(tiny.write_tiny_hybrid(tmp_path / "jamba.gguf"))
    assert (facts.attention, facts.kv_elements_per_token) == ("hybrid", 1 * 2 * (64 + 64))


def cache_facts(path: Path, architecture: str, **keys: Any) -> int | None:
    """KV elements of a header with the given keys; `__` stands for a dot."""
    described = {f"{architecture}.{key.replace('__', '.')}": value for key, value in keys.items()}
    return read_model_facts(
        tiny.write_encoder(path / "model.gguf", architecture=architecture, **described)
    ).kv_elements_per_token


@pytest.mark.parametrize(
    ("architecture", "keys", "expected"),
    [
        # Heads by layer: 4 + 2 + 0, sizes 256 / 8 = 32 for key and value.
        ("deci", {"attention__head_count": 8, "attention__head_count_kv": [4, 2, 0]}, 6 * 64),
        # Without KV heads there are as many as query heads.
        ("llama", {"attention__head_count": 8}, 3 * 8 * 64),
        # Latent attention: one shared key of 512 + 64, no value.
        (
            "deepseek2",
            {
                "attention__head_count": 8,
                "attention__head_count_kv": 1,
                "attention__key_length": 576,
                "attention__value_length": 512,
                "attention__key_length_mla": 192,
                "attention__value_length_mla": 128,
            },
            3 * 576,
        ),
        # The last of the three layers only guesses ahead.
        ("glm4moe", {"attention__head_count": 8, "nextn_predict_layers": 1}, 2 * 8 * 64),
        # Windowed layers with smaller heads: 2 x (16 + 16), and one layer of 32 + 32.
        (
            "mimo2",
            {
                "attention__head_count": 8,
                "attention__head_count_kv": 1,
                "attention__key_length": 32,
                "attention__value_length": 32,
                "attention__key_length_swa": 16,
                "attention__value_length_swa": 16,
                "attention__sliding_window_pattern": [True, False, True],
            },
            2 * 32 + 64,
        ),
        # The last two layers reuse the cache of the first.
        ("gemma4", {"attention__head_count": 8, "attention__shared_kv_layers": 2}, 8 * 64),
        # Not said, or another kind of cache.
        ("llama", {}, None),
        ("llama", {"attention__head_count": 8, "attention__head_count_kv": [4, 2]}, None),
        ("deepseek4", {"attention__head_count": 8}, None),
        ("llama", {"attention__head_count": 8, "block_count": 2**32 - 1}, None),
    ],
)
def test_kv_elements(tmp_path: Path, architecture: str, keys: dict[str, Any], expected: int | None) -> None:
    assert cache_facts(tmp_path, architecture, **{"block_count": 3} | keys) == expected


def test_the_layers_that_guess_ahead_are_not_read(tmp_path: Path) -> None:
    whole = read_model_facts(tiny.write_tiny_llama(tmp_path / "whole.gguf"))
    ahead = read_model_facts(
        tiny.write_tiny_llama(tmp_path / "ahead.gguf", **{"llama.nextn_predict_layers": 1})
    )
    layer = (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 512) * F16 + 2 * 256 * F32
    assert ahead.bytes_per_token == whole.bytes_per_token - layer


def test_quantization_without_file_type_is_the_commonest(tmp_path: Path) -> None:
    path = tiny.write_tiny_llama(tmp_path / "guess.gguf", **{"general.file_type": None})
    assert read_model_facts(path).quantization == "F16"


def test_chat_template_and_name_are_untrusted(tmp_path: Path) -> None:
    path = tiny.write_tiny_llama(
        tmp_path / "evil.gguf",
        **{
            "general.name": "\x1b[31mEvil\x1b]0;title\x07\u202e\nname\x00" + "x" * 5000,
            "tokenizer.chat_template": "{{ 'x' }}" * 200_000,
        },
    )
    facts = read_model_facts(path)
    assert facts.has_chat_template
    assert facts.name.startswith("Evil namexxx")
    assert len(facts.name) == 200


def test_names_that_are_no_text_can_be_read_and_shown(tmp_path: Path, llama: Path) -> None:
    try:
        path = write(tmp_path / os.fsdecode(b"caf\xe9.gguf"), llama.read_bytes())
    except OSError:
        pytest.skip("this file system takes UTF-8 names alone")
    facts = read_model_facts(path)
    assert os.fsencode(facts.path) == os.fsencode(path)
    show_path(facts.path).encode("utf-8")


def test_memory_stays_small_and_data_is_not_read(tmp_path: Path, llama: Path) -> None:
    content = bytearray(llama.read_bytes())
    path = write(tmp_path / "large.gguf", bytes(content))
    with path.open("r+b") as file:
        file.truncate(64 << 30)  # sparse: 64 GiB of tensor data that must not be touched
    tracemalloc.start()
    try:
        read_model_facts(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


# Split models.


def test_split_model_is_read_through_any_part(tmp_path: Path, llama: Path) -> None:
    whole = read_model_facts(llama)
    parts = tiny.split_in_two(write(tmp_path / "model.gguf", llama.read_bytes()))
    for part in parts:
        facts = read_model_facts(part)
        assert facts.files == tuple(str(path) for path in parts)
        assert facts.path == str(parts[0])
        assert facts.file_bytes == sum(path.stat().st_size for path in parts)
        same = ("model_bytes", "n_params", "bytes_per_token", "kv_elements_per_token", "bytes_by_type")
        assert all(getattr(facts, key) == getattr(whole, key) for key in same)


@pytest.mark.parametrize(("gone", "asked"), [(1, 0), (0, 1)])
def test_missing_part_is_named(tmp_path: Path, llama: Path, gone: int, asked: int) -> None:
    parts = tiny.split_in_two(write(tmp_path / "model.gguf", llama.read_bytes()))
    parts[gone].unlink()
    error = refusal(parts[asked])
    assert error.reason == "missing-part"
    assert parts[gone].name in str(error)


def test_renamed_part(tmp_path: Path, llama: Path) -> None:
    parts = tiny.split_in_two(write(tmp_path / "model.gguf", llama.read_bytes()))
    error = refusal(parts[0].rename(tmp_path / "mine.gguf"))
    assert error.reason == "renamed-part"
    assert "-00001-of-00002.gguf" in str(error)


def test_cut_part_is_the_one_named(tmp_path: Path, llama: Path) -> None:
    parts = tiny.split_in_two(write(tmp_path / "model.gguf", llama.read_bytes()))
    os.truncate(parts[1], parts[1].stat().st_size - 100_000)
    error = refusal(parts[0])
    assert error.reason == "truncated-file"
    assert parts[1].name in str(error)


# Files that are no model.


@pytest.mark.parametrize(
    ("content", "reason", "words"),
    [
        (b"", "empty-file", "is empty"),
        (b"hello there, this is text", "not-gguf", "not a GGUF file."),
        (b"PK\x03\x04" + bytes(100), "not-gguf", "zip archive"),
        (struct.pack("<Q", 60) + b'{"__metadata__":{}}', "not-gguf", "safetensors"),
        (b"<!DOCTYPE html><html>", "not-gguf", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "not-gguf", "git lfs pull"),
        (b"tjgg\x01\0\0\0", "not-gguf", "from before GGUF"),
        (b'{"error": "Repository not found"}', "not-gguf", "JSON"),
        (bytes(4096), "not-gguf", "reserved its space"),
        (b"GG", "not-gguf", "not a GGUF"),
        (b"GGUF", "truncated-header", "has 4 bytes"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "wrong-endianness", "big-endian"),
        (header(version=1), "unsupported-version", "version 1"),
        (header(version=4), "unsupported-version", "newer llmphase"),
        (header(keys=3, body=ARCHITECTURE), "truncated-header", "ends inside its header"),
        (header(keys=2, body=ARCHITECTURE + ARCHITECTURE), "corrupt-header", "appears twice"),
        (header(keys=1, body=string(b"k") + struct.pack("<IB", 99, 0)), "corrupt-header", "unknown type 99"),
        (header(keys=1, body=string(b"") + bytes(64)), "corrupt-header", "has 0 bytes"),
        (header(keys=0), "no-architecture", "architecture"),
    ],
)
def test_broken_files(tmp_path: Path, content: bytes, reason: str, words: str) -> None:
    error = refusal(write(tmp_path / "broken.gguf", content))
    assert error.reason == reason
    assert words in str(error)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(header(keys=2**63), id="keys"),
        pytest.param(header(tensors=2**63), id="tensors"),
        pytest.param(header(keys=1, body=struct.pack("<Q", 2**62)), id="key-length"),
        pytest.param(header(keys=1, body=string(b"k") + struct.pack("<IQ", 8, 2**63)), id="string-length"),
        pytest.param(
            header(keys=1, body=string(b"k") + struct.pack("<IIQ", 9, 8, 2**63)), id="array-of-strings"
        ),
        pytest.param(
            header(keys=1, body=string(b"k") + struct.pack("<IIQ", 9, 4, 2**62)), id="array-of-numbers"
        ),
        pytest.param(
            header(keys=1, body=string(b"k") + struct.pack("<IIQ", 9, 9, 5) + bytes(100)), id="nested-arrays"
        ),
        pytest.param(
            header(keys=1, body=string(b"k") + struct.pack("<IIQQ", 9, 8, 2, 2**40)), id="string-in-array"
        ),
        pytest.param(
            header(tensors=1, keys=1, body=ARCHITECTURE + string(b"t") + struct.pack("<I", 5) + bytes(99)),
            id="dimensions",
        ),
        pytest.param(
            header(
                tensors=1,
                keys=1,
                body=ARCHITECTURE + string(b"t") + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 0),
            ),
            id="elements",
        ),
    ],
)
def test_hostile_sizes_are_refused_at_once(tmp_path: Path, body: bytes) -> None:
    path = write(tmp_path / "hostile.gguf", body)
    with path.open("r+b") as file:
        file.truncate(max(len(body), 8 << 30))  # sparse: the file's size alone must not make it believable
    tracemalloc.start()
    try:
        error = refusal(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert error.reason in {"corrupt-header", "truncated-header", "truncated-file"}
    assert peak < 2 << 20


def array_of_strings(key: bytes, count: int) -> bytes:
    return string(key) + struct.pack("<IIQ", 9, 8, count) + bytes(8 * count)


@pytest.mark.parametrize(
    ("body", "keys", "words"),
    [
        # 4 Mi strings in all are passed over; of arrays of 8 KiB, 2,048 are kept.
        (array_of_strings(b"a", 3 << 20) + array_of_strings(b"b", 2 << 20), 2, "2,097,152 strings"),
        (
            b"".join(string(b"%d" % i) + struct.pack("<IIQ", 9, 10, 1024) + bytes(8192) for i in range(2049)),
            2049,
            "larger than 16 MiB",
        ),
    ],
    ids=["strings", "kept"],
)
def test_what_all_keys_together_may_cost_is_bounded(
    tmp_path: Path, body: bytes, keys: int, words: str
) -> None:
    error = refusal(write(tmp_path / "dear.gguf", header(keys=keys, body=body)))
    assert error.reason == "corrupt-header"
    assert words in str(error)


@pytest.mark.parametrize("offset", [0, 32, 1024 - 32, 1024 + 32, 1 << 62])
def test_tensors_follow_each_other(tmp_path: Path, offset: int) -> None:
    """As the engine wants them: the first, of 256 numbers of 4 bytes, ends at 1,024."""
    tensors = b"".join(
        string(name) + struct.pack("<IQIQ", 1, 256, 0, start) for name, start in ((b"a", 0), (b"b", offset))
    )
    body = ARCHITECTURE + tensors
    error = refusal(write(tmp_path / "odd.gguf", header(tensors=2, keys=1, body=body) + bytes(4096)))
    assert error.reason == "corrupt-header"
    assert "'b' is not where" in str(error)


@given(position=st.integers(0, 4000), value=st.binary(min_size=1, max_size=9))
@settings(max_examples=150, deadline=None)
def test_damaged_headers_never_end_in_another_error(llama: Path, position: int, value: bytes) -> None:
    damaged = llama.with_name("damaged.gguf")
    content = bytearray(llama.read_bytes())
    content[position : position + len(value)] = value
    damaged.write_bytes(content)
    try:
        read_model_facts(damaged)
    except ModelFileError as error:
        assert str(error).isprintable()  # noqa: PT017 (both outcomes are right)


@given(share=st.floats(0, 0.999))
@settings(max_examples=60, deadline=None)
def test_cut_files_are_always_refused(llama: Path, share: float) -> None:
    cut = write(llama.with_name("cut.gguf"), llama.read_bytes()[: int(llama.stat().st_size * share)])
    assert refusal(cut).reason in {"empty-file", "not-gguf", "truncated-header", "truncated-file"}


def test_cut_body_says_how_much_is_there(tmp_path: Path, llama: Path) -> None:
    content = llama.read_bytes()
    error = refusal(write(tmp_path / "cut.gguf", content[:-5000]))
    assert error.reason == "truncated-file"
    assert f"has {len(content) - 5000:,} of {len(content):,} bytes" in str(error)


@pytest.mark.parametrize(("number", "words"), [(31, "Q4_0_4_4"), (77, "unknown number format 77")])
def test_unknown_tensor_type_is_named(tmp_path: Path, number: int, words: str) -> None:
    tensor = string(b"blk.0.attn_q.weight") + struct.pack("<IQQIQ", 2, 256, 256, number, 0)
    error = refusal(write(tmp_path / "type.gguf", header(tensors=1, keys=1, body=ARCHITECTURE + tensor)))
    assert error.reason == "unknown-tensor-type"
    assert words in str(error)
    assert "blk.0.attn_q.weight" in str(error)


@pytest.mark.parametrize("suffix", [".part", ".incomplete", ".crdownload", ".downloadInProgress", "-partial"])
def test_file_still_downloading(tmp_path: Path, llama: Path, suffix: str) -> None:
    half = llama.read_bytes()[:100_000]
    error = refusal(write(tmp_path / f"model.gguf{suffix}", half))
    assert error.reason == "still-downloading"
    assert "model.gguf when complete" in str(error)
    for name in ("model.gguf", "absent.gguf"):  # the target itself, there already or not yet
        write(tmp_path / f"{name}{suffix}", half)
        if name == "model.gguf":
            write(tmp_path / name, half)
        error = refusal(tmp_path / name)
        assert error.reason == "still-downloading"
        assert f"{name}{suffix}" in str(error)


def test_folder_and_missing_file_and_pipe(tmp_path: Path) -> None:
    assert refusal(tmp_path).reason == "is-folder"
    assert refusal(tmp_path / "none.gguf").reason == "missing-file"
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.gguf")
        assert refusal(tmp_path / "pipe.gguf").reason == "not-a-file"


def test_unreadable_file(tmp_path: Path, llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "secret.gguf", llama.read_bytes())

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    error = refusal(path, UnmeasurableError)
    assert error.reason == "unreadable"
    assert "Permission denied" in str(error)


def test_messages_hold_no_control_characters(tmp_path: Path) -> None:
    error = refusal(tmp_path / "a\x1b[2Jb\nc\u202ed.gguf")
    assert "ab cd.gguf" in str(error)


# Kinds of models that can not be profiled.


@pytest.mark.parametrize(
    ("writer", "kind"),
    [
        (tiny.write_vocabulary_only, "vocabulary"),
        (tiny.write_projector, "projector"),
        (tiny.write_adapter, "adapter"),
        (tiny.write_encoder, "encoder"),
    ],
)
def test_no_decoder(tmp_path: Path, writer: Callable[[Path], Path], kind: str) -> None:
    facts = read_model_facts(writer(tmp_path / "file.gguf"))
    assert facts.kind == kind
    with pytest.raises(ModelFileError) as caught:
        require_decoder(facts)
    assert caught.value.reason == f"{kind}-model"
    assert facts.architecture in str(caught.value)


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        ("dream", "diffusion"),
        ("llada-moe", "diffusion"),
        ("t5", "encoder-decoder"),
        ("t5encoder", "encoder"),
        ("nomic-bert", "encoder"),
        ("eagle3", "adapter"),
    ],
)
def test_architectures_without_decode(tmp_path: Path, architecture: str, kind: str) -> None:
    facts = read_model_facts(tiny.write_encoder(tmp_path / "file.gguf", architecture=architecture))
    assert facts.kind == kind


def test_importance_matrix(tmp_path: Path) -> None:
    assert refusal(tiny.write_importance_matrix(tmp_path / "imatrix.gguf")).reason == "imatrix-file"


def test_refusal_shows_clean_names(llama: Path) -> None:
    evil = dataclasses.replace(read_model_facts(llama), kind="encoder", path="\x1b[31mred\n.gguf")
    with pytest.raises(ModelFileError) as caught:
        require_decoder(evil)
    assert str(caught.value).isprintable()


# Tables.


def test_architecture_lists_name_each_once() -> None:
    lists = (
        architectures.RECURRENT,
        architectures.HYBRID,
        architectures.DIFFUSION,
        architectures.ENCODERS,
        architectures.ENCODER_DECODERS,
        architectures.COMPANIONS,
        architectures.PROJECTORS,
    )
    names = [name for names in lists for name in names]
    assert len(names) == len(set(names))


# Text.


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("plain, äöü 日本 🙂", "plain, äöü 日本 🙂"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred\x9d0;t\x9c", "red"),
        ("\x1bPsecret\x1b\\shown", "shown"),
        ("a\r\nb\tc\u2028d", "a  b c d"),
        ("\u202eevil\u2066\u200b\ufeff", "evil"),
        ("\x00\x07\x08x\x7f", "x"),
        ("caf\udce9", "caf\ufffd"),
        ("unfinished \x1b[", "unfinished"),
        ("unfinished \x1b]0;never closed", "unfinished"),
    ],
)
def test_clean_text(raw: str, clean: str) -> None:
    assert clean_text(raw) == clean


@given(st.text(st.characters()), st.integers(3, 50))
def test_clean_text_is_one_printable_line_within_its_limit(raw: str, limit: int) -> None:
    clean = clean_text(raw, limit)
    assert len(clean) <= limit
    assert not any(character in clean for character in "\x1b\n\r\t\x9b\u202e")
    clean.encode("utf-8")
    assert clean_text(clean, limit) == clean


# Against the engine.


def engine_view(path: str) -> dict[str, Any]:
    """What the engine says of a model file."""
    import ctypes

    import llama_cpp

    model = llama_cpp.llama_model_load_from_file(os.fsencode(path), llama_cpp.llama_model_default_params())
    assert model
    try:
        description = ctypes.create_string_buffer(256)
        llama_cpp.llama_model_desc(model, description, 256)
        return {
            "model_bytes": llama_cpp.llama_model_size(model),
            "n_params": llama_cpp.llama_model_n_params(model),
            "n_layers": llama_cpp.llama_model_n_layer(model),
            "n_embd": llama_cpp.llama_model_n_embd(model),
            "n_ctx_train": llama_cpp.llama_model_n_ctx_train(model),
            "n_vocab": llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model)),
            "sliding_window_tokens": llama_cpp.llama_model_n_swa(model) or None,
            "description": description.value.decode(),
            "recurrent": llama_cpp.llama_model_is_recurrent(model),
            "hybrid": llama_cpp.llama_model_is_hybrid(model),
        }
    finally:
        llama_cpp.llama_model_free(model)


def assert_engine_agrees(facts: ModelFacts) -> None:
    view = engine_view(facts.path)
    description = view.pop("description")
    assert description.startswith(f"{facts.architecture} ")
    assert description.endswith(f" {facts.quantization}")
    assert view.pop("recurrent") == (facts.attention == "recurrent")
    assert view.pop("hybrid") == (facts.attention == "hybrid")
    assert {key: getattr(facts, key) for key in view} == view


@pytest.mark.engine
@pytest.mark.parametrize("name", tiny.TINY_MODELS)
def test_facts_agree_with_the_engine(tmp_path: Path, name: str) -> None:
    assert_engine_agrees(read_model_facts(tiny.TINY_MODELS[name](tmp_path / f"{name}.gguf")))


@pytest.mark.engine
def test_facts_of_the_demo_agree_with_the_engine() -> None:
    assert_engine_agrees(read_model_facts(resolve_models([DEMO], environment={})[0].path))


@pytest.mark.engine
def test_file_type_labels_agree_with_the_engine() -> None:
    import ctypes

    from llama_cpp import llama_cpp

    function = llama_cpp._lib.llama_ftype_name
    function.restype = ctypes.c_char_p
    assert {number: function(number).decode() for number in FILE_TYPES} == FILE_TYPES


@pytest.mark.engine
def test_type_table_agrees_with_the_engine() -> None:
    import ctypes

    from llama_cpp._ggml import libggml as ggml

    ggml.ggml_type_name.restype = ctypes.c_char_p
    ggml.ggml_type_size.restype = ctypes.c_size_t
    ggml.ggml_blck_size.restype = ctypes.c_int64
    for number, known in GGML_TYPES.items():
        assert ggml.ggml_type_name(number).decode().upper() == known.name
        assert ggml.ggml_blck_size(number) == known.block_elements
        assert ggml.ggml_type_size(number) == known.block_bytes
