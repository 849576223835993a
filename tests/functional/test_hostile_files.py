"""Damaged model files through the real command; the long run is `tests/benchmarks/fuzz_headers.py`."""

from __future__ import annotations

import json
import shlex
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from program import PROGRAM, TESTS, Command
from tiny_models import BOS, EOS, N_VOCAB, vocabulary, write_tiny_llama

CASES = 500
LIMIT_KIB = 512 * 1024
TOKENS = "tokenizer.ggml.tokens"


@pytest.mark.skipif(sys.platform == "win32", reason="commands are forked")
def test_damaged_files_are_refused_or_measured(environment: dict[str, str], tmp_path: Path) -> None:
    script = TESTS / "benchmarks" / "fuzz_headers.py"
    options = ["--cases", str(CASES), "--first", "1000000", "--measure-every", "25", "--engine-every", "0"]
    outcome = subprocess.run(
        [sys.executable, script, *options, "--json", "--folder", tmp_path / "kept"],
        env=environment,
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.stderr == ""
    figures = json.loads(outcome.stdout)
    assert figures["problems"] == []
    assert outcome.returncode == 0
    assert figures["cases"] == CASES
    assert figures["refused"] > CASES // 2
    assert figures["measured"]["scripted"]["0"] > 0
    assert figures["most_memory_bytes"] < 2**30


def measured(path: Path, environment: dict[str, str], *, limit_kib: int) -> subprocess.CompletedProcess[str]:
    """The real engine on that file, in a bounded address space: were the bound missing, the machine's memory
    would be the next."""
    command = shlex.join(map(str, [PROGRAM, "profile", path, "-p", "8", "-n", "2", "-r", "1", "--no-repack"]))
    return subprocess.run(
        ["bash", "-c", f"ulimit -v {limit_kib}; exec {command}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def _many_strings(path: Path) -> None:
    """Four arrays of sixteen million empty strings each: half a gigabyte of nothing."""
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 4))
        for index in range(4):
            file.write(_text(b"k%d" % index) + struct.pack("<IIQ", 9, 8, 1 << 24))
            file.seek(8 << 24, 1)
        file.truncate(file.tell())


def _many_numbers(path: Path) -> None:
    """Arrays that are short enough to be kept, and thousands of them."""
    numbers = struct.pack("<1024Q", *range(1 << 40, (1 << 40) + 1024))
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 8000))
        for index in range(8000):
            file.write(_text(b"k%d" % index) + struct.pack("<IIQ", 9, 10, 1024) + numbers)


def _long_keys(path: Path) -> None:
    """Each of them takes four bytes a character, for one that needs them."""
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 2000))
        for index in range(2000):
            key = "\U0001f600".encode() + b"%08d" % index + b"x" * 60_000
            file.write(_text(key) + struct.pack("<IB", 0, 1))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no limits on memory")
@pytest.mark.parametrize("write", [_many_strings, _many_numbers, _long_keys])
def test_headers_made_to_be_dear_cost_little(
    environment: dict[str, str], tmp_path: Path, write: Callable[[Path], None]
) -> None:
    path = tmp_path / "dear.gguf"
    write(path)
    command = shlex.join(map(str, [PROGRAM, "profile", path]))
    outcome = subprocess.run(
        ["bash", "-c", f"ulimit -v {LIMIT_KIB}; exec {command}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    assert outcome.returncode == 2, outcome.stderr
    assert "is damaged" in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1


# Vocabularies whose tokens are so long that the engine would fill all memory with them


@pytest.mark.parametrize(("tokens", "characters"), [(1, 1_000_000), (50, 5_000)])
def test_tokens_too_long_for_any_vocabulary_are_refused(
    llmphase: Command, tmp_path: Path, tokens: int, characters: int
) -> None:
    long = ["\u202e" * (characters + index) for index in range(tokens)]
    path = write_tiny_llama(tmp_path / "long.gguf", **{TOKENS: [*long, *vocabulary()[tokens:]]})
    outcome = llmphase("profile", path, timeout=30)
    assert outcome.returncode == 2
    assert "the tokens of its vocabulary are longer than any text" in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1


@pytest.mark.engine
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no limits on memory")
def test_the_longest_tokens_that_are_believed_cost_little(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """A few hundred MiB and seconds; a line of a thousand dashes as a token is honest."""
    tokens = [*vocabulary()[:-40], *("\u202e" * (800 + index) for index in range(38)), BOS, EOS]
    path = write_tiny_llama(tmp_path / "long.gguf", **{TOKENS: tokens})
    outcome = measured(path, environment, limit_kib=4 * LIMIT_KIB)
    assert outcome.returncode == 0, outcome.stderr


# Vocabularies that make next to nothing of text: no text would be long enough to measure with


def test_a_vocabulary_that_knows_no_text_is_no_hang(llmphase: Command, tiny_llama: Path) -> None:
    mute = {"mute_vocabulary": True}
    outcome = llmphase("profile", tiny_llama, "-p", "8,2000", "-n", "2", script=mute, timeout=30)
    assert outcome.returncode == 3
    words = outcome.stderr.splitlines()[-1]
    assert "nothing could be measured: tokenize: the model's vocabulary makes 1 tokens of" in words
    assert "--tokens random" in words
    options = ("-p", "8,2000", "-n", "2", "-r", "1", "--tokens", "random")
    assert llmphase("profile", tiny_llama, *options, script=mute, timeout=30).returncode == 0


@pytest.mark.engine
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no limits on memory")
def test_the_engine_with_such_a_vocabulary(environment: dict[str, str], tmp_path: Path) -> None:
    tokens = [*(f"zq{index:04d}" for index in range(N_VOCAB - 2)), BOS, EOS]
    path = write_tiny_llama(tmp_path / "mute.gguf", **{TOKENS: tokens, "tokenizer.ggml.merges": ["z q"]})
    outcome = measured(path, environment, limit_kib=8 * LIMIT_KIB)
    assert outcome.returncode == 3
    assert "the model's vocabulary makes 1 tokens of" in outcome.stderr.splitlines()[-1]
