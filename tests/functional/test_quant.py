"""`llmphase profile --quant`: files made by the real quantizer, most of them timed on the scripted engine."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from program import PROGRAM, Command, scripted
from tiny_models import write_tiny_llama, write_tiny_moe

from probes.gguf_header import read_model_facts
from probes.inquiries import weight_matrices
from probes.matrix_shapes import matrix_shapes
from probes.quantized_models import make_variants

CELLS = ("-p", "0,64", "-n", "4", "-r", "3")


@pytest.fixture
def variants(environment: dict[str, str], tmp_path: Path) -> Path:
    """The folder that the command keeps variants in."""
    environment["LLMPHASE_CACHE_DIR"] = str(tmp_path / "cache")
    return tmp_path / "cache" / "quantized"


def kinds(folder: Path) -> list[str]:
    return sorted(path.name.split(".")[1] for path in folder.glob("*.gguf"))


def test_variants_are_measured_and_compared(llmphase: Command, tiny_llama: Path, variants: Path) -> None:
    outcome = llmphase(
        *("profile", tiny_llama, "--quant", "f16, Q8_0,q4_k", *CELLS, "--format", "json"), script={}
    )
    assert outcome.returncode == 0, outcome.stderr
    document = json.loads(outcome.stdout)
    labels = list(dict.fromkeys(row["quantization"] for row in document["rows"]))
    assert labels == ["F16", "Q8_0", "Q4_K - Medium"]
    assert {row["made_from"] for row in document["rows"] if row["quantization"] != "F16"} == {"F16"}
    comparison = document["run"]["quantizations"][0]["comparisons"][0]
    assert [one["label"] for one in comparison["variants"]] == ["F16", "Q8_0", "Q4_K_M"]
    # The scripted engine decodes at one speed whatever it reads.
    assert comparison["line"] is None
    assert "does not take longer where it reads more" in comparison["line_reason"]
    assert kinds(variants) == ["Q4_K_M", "Q8_0"]
    assert "Making Q8_0 of Tiny llama." in outcome.stderr


def test_the_second_time_nothing_is_made(llmphase: Command, tiny_llama: Path, variants: Path) -> None:
    arguments = ("profile", tiny_llama, "--quant", "Q8_0", *CELLS)
    first = llmphase(*arguments, script={})
    assert "Making Q8_0" in first.stderr
    written = [path.stat().st_mtime_ns for path in variants.glob("*.gguf")]
    second = llmphase(*arguments, script={})
    assert second.returncode == 0
    assert "Making" not in second.stderr
    assert [path.stat().st_mtime_ns for path in variants.glob("*.gguf")] == written
    # Without a name, what was profiled last is the source, not the variant.
    unnamed = llmphase("profile", *CELLS, "--format", "json", script={})
    assert {row["quantization"] for row in json.loads(unnamed.stdout)["rows"]} == {"F16"}


def test_files_that_the_user_names_are_compared_too(
    llmphase: Command, tiny_llama: Path, variants: Path
) -> None:
    llmphase("profile", tiny_llama, "--quant", "Q8_0", *CELLS, script={})
    own = next(variants.glob("*.gguf"))
    outcome = llmphase("profile", tiny_llama, own, *CELLS, script={})
    assert outcome.returncode == 0, outcome.stderr
    assert "Quantizations of Tiny llama" in outcome.stdout
    assert "importance matrix" not in outcome.stdout  # nobody made it for this run
    assert max(len(line) for line in outcome.stdout.splitlines()) <= 80


def test_speed_is_true_and_quality_is_not(llmphase: Command, tiny_llama: Path, variants: Path) -> None:
    llmphase("profile", tiny_llama, "--quant", "Q8_0", *CELLS, script={})
    quantized = next(variants.glob("*.gguf"))
    refused = llmphase("profile", quantized, "--quant", "Q4_0", *CELLS, script={})
    assert refused.returncode == 2
    assert "quantized already (Q8_0)" in refused.stderr
    assert refused.stderr.count("\n") == 1
    outcome = llmphase("profile", quantized, "--quant", "Q8_0,Q4_0", "--requantize", *CELLS, script={})
    assert outcome.returncode == 0, outcome.stderr
    text = " ".join(outcome.stdout.split())
    assert "Made from quantized weights (--requantize): Q4_0. Their speed is that of the type" in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--quant", "Q5_K_X"), "did you mean Q5_K_S?"),
        (("--quant", ""), "is no quantization"),
        (("--quant", "Q8_0,,Q4_0"), "is no quantization"),
        (("--quant", "\x1b[31m"), "there are F32, F16, BF16, Q8_0"),
        (("--requantize",), "--requantize needs --quant"),
        (("--quant", "IQ1_S"), "needs an importance matrix"),
        (("--quant", "Q8_0", "-p", "x"), "is no number"),
        (("--quant", "Q8_0", "-n", "0"), "--output-tokens"),
    ],
)
def test_wrong_use_is_one_clear_line(
    llmphase: Command, tiny_llama: Path, variants: Path, options: tuple[str, ...], said: str
) -> None:
    outcome = llmphase("profile", tiny_llama, *options, script={})
    assert outcome.returncode == 2
    assert said in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert "\x1b" not in outcome.stderr
    assert outcome.stdout == ""
    assert kinds(variants) == []


def test_a_cache_without_room_is_refused(llmphase: Command, tiny_llama: Path, variants: Path) -> None:
    outcome = llmphase("profile", tiny_llama, "--quant", "Q8_0", script={}, LLMPHASE_QUANT_CACHE_SIZE="100K")
    assert outcome.returncode == 2
    assert "LLMPHASE_QUANT_CACHE_SIZE" in outcome.stderr
    assert kinds(variants) == []


def run_limited(arguments: tuple[Any, ...], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The command where no file may grow beyond 300 KiB, as on a disk that fills up."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    return subprocess.run(
        [PROGRAM, *arguments],
        env=environment | scripted({}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=limit,
    )


def test_a_disk_that_fills_up_leaves_no_half_file(
    environment: dict[str, str], tiny_llama: Path, variants: Path
) -> None:
    outcome = run_limited(("profile", tiny_llama, "--quant", "Q8_0", *CELLS), environment)
    assert outcome.returncode == 3
    assert "Q8_0 of Tiny llama can not be made: the engine can not quantize this model" in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert [path.name for path in variants.iterdir()] == ["making.lock"]


def start(environment: dict[str, str], *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [PROGRAM, *arguments],
        env=environment | scripted({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_programs_at_once_make_each_file_once(
    environment: dict[str, str], tiny_llama: Path, variants: Path
) -> None:
    programs = [
        start(environment, "profile", tiny_llama, "--quant", "Q8_0,Q4_K_M,Q6_K", *CELLS) for _ in range(2)
    ]
    told = [program.communicate(timeout=60)[1] for program in programs]
    assert [program.returncode for program in programs] == [0, 0], told
    assert kinds(variants) == ["Q4_K_M", "Q6_K", "Q8_0"]
    assert list(variants.glob("*.half")) == []
    assert sum(text.count("Making Q6_K of") for text in told) == 1


def test_an_interruption_keeps_what_is_whole_and_nothing_else(
    environment: dict[str, str], tmp_path: Path, variants: Path
) -> None:
    model = write_tiny_moe(tmp_path / "moe.gguf")
    program = start(environment, "profile", model, "--quant", "Q8_0,IQ3_S", *CELLS)
    deadline = time.monotonic() + 30
    while not list(variants.glob("*.IQ3_S.*.half")) and time.monotonic() < deadline:
        time.sleep(0.02)
    program.send_signal(signal.SIGINT)
    _, told = program.communicate(timeout=30)
    assert program.returncode == 130
    assert "interrupted" in told
    assert "Traceback" not in told
    assert kinds(variants) == ["Q8_0"]
    assert list(variants.glob("*.half")) == []


def test_a_killed_program_leaves_nothing_that_is_used(
    environment: dict[str, str], tmp_path: Path, variants: Path, llmphase: Command
) -> None:
    model = write_tiny_moe(tmp_path / "moe.gguf")
    program = start(environment, "profile", model, "--quant", "IQ3_S", *CELLS)
    deadline = time.monotonic() + 30
    while not list(variants.glob("*.half")) and time.monotonic() < deadline:
        time.sleep(0.02)
    program.kill()
    program.communicate(timeout=30)
    assert len(list(variants.glob("*.half"))) == 1
    outcome = llmphase("profile", model, "--quant", "Q8_0", *CELLS, script={})
    assert outcome.returncode == 0, outcome.stderr
    assert kinds(variants) == ["Q8_0"]
    assert list(variants.glob("*.half")) == []


@pytest.mark.engine
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K_M", "Q3_K_M", "Q2_K"])
def test_the_engine_plans_the_very_matrices_that_it_makes(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    monkeypatch.setenv("LLMPHASE_CACHE_DIR", str(tmp_path / "cache"))
    source = read_model_facts(tiny_llama)
    own, planned = weight_matrices(source, [kind])
    assert (own.quantization, own.shapes) == (None, matrix_shapes(source))
    (made,) = make_variants(source, [kind], requantize=False, threads=1, progress=lambda _making: None)
    assert planned.quantization == kind
    assert planned.shapes == matrix_shapes(made)


@pytest.mark.engine
def test_a_quantization_that_the_engine_does_not_make_is_left_out(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    source = read_model_facts(write_tiny_llama(broken))
    cut = broken.read_bytes()
    broken.write_bytes(cut.replace(b"llama", b"lhama"))
    assert [one.quantization for one in weight_matrices(source, ["Q4_K_M"])] == [None]


@pytest.mark.engine
def test_the_real_engine_runs_what_it_made(llmphase: Command, tmp_path: Path, variants: Path) -> None:
    model = write_tiny_llama(tmp_path / "tiny.gguf")
    outcome = llmphase(
        *("profile", model, "--quant", "F16,Q8_0,Q4_K_M", "--no-repack", *CELLS, "--format", "json")
    )
    assert outcome.returncode == 0, outcome.stderr
    rows = json.loads(outcome.stdout)["rows"]
    assert {row["status"] for row in rows} == {"ok"}
    bytes_read = {row["quantization"]: row["bytes_per_token"] for row in rows}
    assert bytes_read["F16"] > bytes_read["Q8_0"] > bytes_read["Q4_K - Medium"]
    assert kinds(variants) == ["Q4_K_M", "Q8_0"]
