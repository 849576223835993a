"""Wrong use of `llmphase profile`: one clear line, the documented exit code, never a traceback."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from program import Command
from tiny_models import (
    split_in_two,
    write_encoder,
    write_projector,
    write_tiny_llama,
    write_vocabulary_only,
)

Make = Callable[[Path], Path]


def refused(llmphase: Command, *arguments: str | Path, code: int = 2, **extra: str) -> str:
    """The one line on standard error of a command that must be refused."""
    outcome = llmphase("profile", *arguments, script={}, **extra)
    assert outcome.returncode == code, (outcome.returncode, outcome.stderr, outcome.stdout)
    assert outcome.stdout == ""
    lines = outcome.stderr.strip().splitlines()
    assert lines, "nothing was said"
    assert "Traceback" not in outcome.stderr
    return lines[-1]


def cut(path: Path, share: float) -> Path:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    return path


def text_file(path: Path) -> Path:
    path.write_text("this is no model\n")
    return path


def empty_file(path: Path) -> Path:
    path.touch()
    return path


def truncated_body(path: Path) -> Path:
    return cut(write_tiny_llama(path), 0.9)


def truncated_header(path: Path) -> Path:
    return cut(write_tiny_llama(path), 0.0005)


def other_byte_order(path: Path) -> Path:
    write_tiny_llama(path)
    data = bytearray(path.read_bytes())
    data[4:8] = data[4:8][::-1]
    path.write_bytes(data)
    return path


def other_version(path: Path) -> Path:
    write_tiny_llama(path)
    data = bytearray(path.read_bytes())
    data[4:8] = (99).to_bytes(4, "little")
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (text_file, "GGUF"),
        (empty_file, "empty"),
        (truncated_body, "cut short"),
        (truncated_header, "cut"),
        (other_byte_order, "endian"),
        (other_version, "99"),
        (write_vocabulary_only, "vocabulary"),
        (write_projector, "projector"),
        (write_encoder, "embedding"),
    ],
)
def test_files_that_are_no_usable_model(forked: Command, tmp_path: Path, make: Make, words: str) -> None:
    line = refused(forked, make(tmp_path / "model.gguf"))
    assert words.lower() in line.lower()
    assert "model.gguf" in line


def test_a_file_still_downloading(forked: Command, tmp_path: Path) -> None:
    path = truncated_body(tmp_path / "model.gguf.part")
    assert "download" in refused(forked, path)


def test_a_missing_part_of_a_split_is_named(forked: Command, tmp_path: Path) -> None:
    parts = split_in_two(write_tiny_llama(tmp_path / "model.gguf"))
    parts[1].unlink()
    assert parts[1].name in refused(forked, parts[0])


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root may read everything")
def test_an_unreadable_file(forked: Command, tiny_llama: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_llama.read_bytes())
    path.chmod(0)
    assert "permission" in refused(forked, path, code=3).lower()


def test_no_such_file(llmphase: Command) -> None:
    assert "absent.gguf" in refused(llmphase, "absent.gguf")


def test_a_folder_without_models(forked: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no model file" in refused(forked, tmp_path / "empty")


def test_an_unknown_ollama_name(forked: Command) -> None:
    assert "no-such" in refused(forked, "ollama:no-such")


@pytest.mark.parametrize(
    "lengths",
    [
        "",
        "-5",
        "12,x",
        "8-4",
        "1e3",
        "0-100*2",
        "8-64*1",
        "0.5",
        "99999999999",
        "0-99999999",
        "１２",
        "٣",
        "9" * 5000,
        "1-" + "9" * 5000,
    ],
)
def test_malformed_lengths(forked: Command, tiny_llama: Path, lengths: str) -> None:
    assert "--prompt-tokens" in refused(forked, tiny_llama, f"--prompt-tokens={lengths}")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--output-tokens", "0"),
        ("--output-tokens", "-3"),
        ("--threads", "0"),
        ("--threads", "100000"),
        ("--batch", "0"),
        ("--ubatch", "-1"),
        ("--repetitions", "0"),
        ("--precision", "0%"),
        ("--precision", "nan"),
        ("--precision", "abc"),
        ("--precision", "3%%"),
        ("--budget", "0.0001ms"),
        ("--budget", "9" * 5000),
        ("--gpu-layers", "9" * 5000),
        ("--budget", "0s"),
        ("--budget", "soon"),
        ("--budget", "9999h"),
        ("--flash-attn", "maybe"),
        ("--type-k", "q9_9"),
        ("--gpu-layers", "-7"),
        ("--gpu-layers", "some"),
        ("--load-mode", "fast"),
        ("--tokens", "emoji"),
        ("--like", "other"),
        ("--format", "xml"),
        ("--ctx", "8"),
        ("--seed", "-1"),
    ],
)
def test_options_out_of_range_are_named(forked: Command, tiny_llama: Path, option: str, value: str) -> None:
    assert option in refused(forked, tiny_llama, f"{option}={value}")


def test_quantized_v_cache_needs_flash_attention(forked: Command, tiny_llama: Path) -> None:
    assert "--type-v" in refused(forked, tiny_llama, "-ctv", "q8_0", "-fa", "off")


def test_an_output_that_can_not_be_written_is_found_before_measuring(
    forked: Command, tiny_llama: Path, tmp_path: Path, data_folder: Path
) -> None:
    assert "--output" in refused(forked, tiny_llama, "-o", tmp_path / "no" / "such" / "folder.csv")
    assert "--output" in refused(forked, tiny_llama, "-o", tmp_path)
    assert "ending" in refused(forked, tiny_llama, "-o", tmp_path / "report.xyz")
    assert not data_folder.exists()


def test_lengths_above_memory_are_refused_with_the_numbers(forked: Command, tmp_path: Path) -> None:
    huge = write_tiny_llama(tmp_path / "wide.gguf", **{"llama.block_count": 2})
    line = refused(forked, huge, "-p", "16000000", code=3)
    assert "GiB" in line
    assert "--ctx" in line or "context" in line


def test_lengths_above_the_training_context_are_warned_of(llmphase: Command, tiny_llama: Path) -> None:
    outcome = llmphase("profile", tiny_llama, "-p", "9000", "-n", "2", script={"prefill_ns": 1000})
    assert outcome.returncode == 0
    assert "trained for" in outcome.stderr
    assert "trained for" in " ".join(outcome.stdout.split())


def test_paths_that_no_system_takes(forked: Command, tiny_llama: Path) -> None:
    long = "a" * 300
    assert "--output" in refused(forked, tiny_llama, "-o", f"{long}.csv")
    assert "too long" in refused(forked, long, code=3)
    for command in ("runs", "report"):
        outcome = forked(command, LLMPHASE_DATA_DIR=f"/{long}")
        assert "Traceback" not in outcome.stderr
        assert outcome.returncode in (0, 2, 3)


def test_control_characters_of_paths_stay_off_the_terminal(forked: Command, tiny_llama: Path) -> None:
    line = refused(forked, tiny_llama, "-o", "/none\x1b[31m\n/b.csv")
    assert "\x1b" not in line
    assert "--output" in line


@pytest.mark.parametrize("change", [("open_ns", 10**400), ("open_ns", -5), ("model_bytes", 10**25)])
def test_run_files_with_impossible_numbers(
    forked: Command, tiny_llama: Path, data_folder: Path, change: tuple[str, int]
) -> None:
    assert forked("profile", tiny_llama, "-p", "8", "-r", "1", script={}).returncode == 0
    path = next((data_folder / "runs").glob("*.json"))
    name, number = change
    path.write_text(re.sub(rf'"{name}": ?\d+', f'"{name}": {number}', path.read_text()))
    outcome = forked("report", "last")
    assert outcome.returncode == 2, outcome.stderr
    assert name in outcome.stderr


@pytest.mark.parametrize("columns", ["0", "abc", "-5", "²", "1", "99999999999"])
def test_odd_widths_are_borne(llmphase: Command, tiny_llama: Path, columns: str) -> None:
    assert llmphase("profile", tiny_llama, "-p", "8", "-r", "1", script={}, COLUMNS=columns).returncode == 0


def test_help_is_printed_in_any_encoding(llmphase: Command) -> None:
    for arguments in (("--help",), ("profile", "--help")):
        assert llmphase(*arguments, PYTHONIOENCODING="ascii").returncode == 0


def test_an_unknown_option_is_told(llmphase: Command) -> None:
    outcome = llmphase("profile", "--no-such-option")
    assert outcome.returncode == 2
    assert "--no-such-option" in outcome.stderr


@pytest.mark.parametrize("name", ["nothing", "last", "last~5", "../../etc/passwd", "20990101T000000Z-abcdef"])
def test_runs_that_are_not_there(forked: Command, name: str) -> None:
    outcome = forked("report", name)
    assert outcome.returncode == 2
    assert "Traceback" not in outcome.stderr
    assert len(outcome.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"schema_version": 99}', "\x00\x01", '{"schema_version": "1"}']
)
def test_run_files_that_are_broken(forked: Command, tmp_path: Path, content: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(content)
    outcome = forked("report", path)
    assert outcome.returncode in (2, 3)
    assert "Traceback" not in outcome.stderr
    assert "run.json" in outcome.stderr
