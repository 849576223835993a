"""`llmphase diagnose` through its real processes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from program import PROGRAM, Command, scripted

EXACT = {"prefill_ns": 1_000_000, "slope_ns": 0, "decode_ns": 5_000_000, "depth_ns": 0, "sample_ns": 10_000}
"""1,000 tok/s prefill, 200 tok/s decode."""
QUICK = ("--no-ceilings", "--format", "json")


def diagnosed(llmphase: Command, *arguments: str | Path, code: int = 0, **options: Any) -> dict[str, Any]:
    outcome = llmphase("diagnose", *arguments, *QUICK, timeout=240, **options)
    assert outcome.returncode == code, (outcome.returncode, outcome.stderr)
    assert "Traceback" not in outcome.stderr
    document: dict[str, Any] = json.loads(outcome.stdout)
    return document


def test_a_long_prompt_and_a_short_answer_wait_for_the_prompt(llmphase: Command, tiny_llama: Path) -> None:
    # 1,000 prompt tokens take 1 s, 3 steps after the first token 15 ms
    found = diagnosed(llmphase, tiny_llama, "-p", "1000", "-n", "4", script=EXACT)
    assert found["schema_version"] == 1
    assert found["verdict"] == "prompt-bound"
    assert found["phases"]["prefill"] == pytest.approx(1.0)
    assert found["phases"]["decode"] == pytest.approx(0.015)
    half = next(remedy for remedy in found["remedies"] if remedy["code"] == "prompt-half")
    assert half["saved_s"] == pytest.approx(0.5, abs=0.02)
    assert set(half["how"]) == {"llmphase", "llama.cpp", "ollama", "lm-studio"}


def test_a_short_prompt_and_a_long_answer_wait_for_the_answer(llmphase: Command, tiny_llama: Path) -> None:
    found = diagnosed(llmphase, tiny_llama, "-p", "16", "-n", "200", script=EXACT)
    assert found["verdict"] == "generation-bound"
    assert found["phases"]["decode"] == pytest.approx(199 * 0.005)


def test_a_split_model_is_timed_part_by_part(llmphase: Command, tiny_llama: Path) -> None:
    # Two of four layers here, two there and the output, which take a tenth of that each: 2, 0.2 and 0.1 of
    # 2.3.
    script = EXACT | {"backend": "CUDA0", "buffers": ["CPU", "CUDA0"], "gpu_layers": 3}
    found = diagnosed(llmphase, tiny_llama, "-p", "64", "-n", "20", "-ngl", "3", script=script)
    assert found["verdict"] == "offload-bound"
    assert found["evidence"]["host_layers_share"] == pytest.approx(2 / 2.3)
    placed = next(remedy for remedy in found["remedies"] if remedy["code"] == "gpu-layers")
    # All four layers there: 0.4 and 0.1 of 2.3; the prompt's parts have the same proportions.
    assert placed["saved_s"] == pytest.approx((19 * 0.005 + 0.064) * (1 - 0.5 / 2.3), rel=0.01)


def test_a_split_model_whose_parts_can_not_be_timed_is_diagnosed_all_the_same(
    llmphase: Command, tiny_llama: Path
) -> None:
    script = EXACT | {
        "backend": "CUDA0",
        "buffers": ["CPU", "CUDA0"],
        "gpu_layers": 3,
        "fail_observed": "no room for another context",
    }
    found = diagnosed(llmphase, tiny_llama, "-p", "64", "-n", "20", "-ngl", "3", script=script)
    assert found["verdict"] == "offload-bound"
    assert "host_layers_share" not in found["evidence"]
    assert any("no room for another context" in warning["text"] for warning in found["warnings"])


def test_the_crossover_is_balanced(llmphase: Command, tiny_llama: Path) -> None:
    # 500 prompt tokens take 0.5 s, as 100 decode steps do
    found = diagnosed(llmphase, tiny_llama, "-p", "500", "-n", "101", script=EXACT)
    assert found["verdict"] == "balanced" or found["borderline"]


def test_a_cached_prefix_is_not_waited_for(llmphase: Command, tiny_llama: Path) -> None:
    found = diagnosed(llmphase, tiny_llama, "-p", "1000", "-n", "20", "--cached-prefix", "990", script=EXACT)
    assert found["verdict"] == "generation-bound"
    assert found["phases"]["prefill"] == pytest.approx(0.010, rel=0.2)


def test_a_load_from_disk_may_be_the_wait(llmphase: Command, tiny_llama: Path) -> None:
    slow = EXACT | {"tensors_ns": 5_000_000_000}
    assert (
        diagnosed(llmphase, tiny_llama, "-p", "16", "-n", "2", "--warm", script=slow)["verdict"]
        == "load-bound"
    )
    assert diagnosed(llmphase, tiny_llama, "-p", "16", "-n", "2", script=slow)["verdict"] != "load-bound"


def test_a_prompt_file_is_counted_with_the_models_vocabulary(
    llmphase: Command, tiny_llama: Path, tmp_path: Path
) -> None:
    (tmp_path / "prompt.txt").write_text("one two three four five six seven eight")
    (tmp_path / "prefix.txt").write_text("one two three other words")
    found = diagnosed(
        llmphase,
        tiny_llama,
        "--prompt",
        "prompt.txt",
        "--cached-prefix",
        "prefix.txt",
        "-n",
        "2",
        script=EXACT,
    )
    assert found["workload"]["prompt_tokens"] == 8
    assert found["workload"]["cached_tokens"] == 3
    (tmp_path / "system.txt").write_text("be brief")
    found = diagnosed(
        llmphase,
        tiny_llama,
        "--prompt",
        "prompt.txt",
        "--system",
        "system.txt",
        "--chat",
        "-n",
        "2",
        script=EXACT,
    )
    # <system> be brief, <user> and eight words, <answer>
    assert found["workload"]["prompt_tokens"] == 13


def test_a_saved_run_is_diagnosed_without_the_model(
    llmphase: Command, tmp_path: Path, tiny_llama: Path
) -> None:
    model = tmp_path / "gone.gguf"
    model.write_bytes(tiny_llama.read_bytes())
    assert llmphase("profile", model, "-p", "0,100,400,1000", script=EXACT).returncode == 0
    model.unlink()
    found = diagnosed(llmphase, "--run", "last", "-p", "2000", "-n", "11")
    assert found["verdict"] == "prompt-bound"
    # beyond what was measured, from the fit
    assert found["phases"]["prefill"] == pytest.approx(2.0, rel=0.05)
    assert found["phases"]["decode"] == pytest.approx(0.05, rel=0.05)


@pytest.mark.parametrize("form", ["terminal", "json", "jsonl", "csv", "markdown"])
def test_every_form_is_printed(llmphase: Command, tiny_llama: Path, form: str) -> None:
    outcome = llmphase(
        "diagnose", tiny_llama, "-p", "64", "-n", "8", "--no-ceilings", "--format", form, script=EXACT
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "bound" in outcome.stdout.lower()
    if form == "terminal":
        assert max(len(line) for line in outcome.stdout.splitlines()) <= 80


def test_explain_prints_every_rule(llmphase: Command, tiny_llama: Path) -> None:
    from reports.rules import RULES

    outcome = llmphase(
        "diagnose", tiny_llama, "-p", "64", "-n", "8", "--no-ceilings", "--explain", script=EXACT
    )
    assert [rule.code for rule in RULES if rule.code not in outcome.stdout] == []


def test_turns_of_a_chat_grow(llmphase: Command, tiny_llama: Path) -> None:
    outcome = llmphase(
        "diagnose", tiny_llama, "-p", "64", "-n", "8", "--turns", "3", "--no-ceilings", script=EXACT
    )
    assert outcome.returncode == 0, outcome.stderr
    # the third prompt holds 3 prompts and 2 answers: 3 * 64 + 2 * 8
    assert "208" in outcome.stdout


def test_remedies_are_tried(llmphase: Command, tiny_llama: Path) -> None:
    found = diagnosed(llmphase, tiny_llama, "-p", "1000", "-n", "4", "--verify", "1", script=EXACT)
    tried = [remedy for remedy in found["remedies"] if remedy["measured_saved_s"] is not None]
    assert len(tried) == 1
    alone = diagnosed(llmphase, tiny_llama, "-p", "1000", "-n", "4", "--verify", script=EXACT)
    assert sum(remedy["measured_saved_s"] is not None for remedy in alone["remedies"]) == 2
    assert tried[0]["measured_saved_s"] == pytest.approx(tried[0]["saved_s"], abs=0.1)


@pytest.mark.parametrize(("start", "loads"), [((), 2), (("--warm",), 6)])
def test_a_trial_loads_again_only_where_a_load_is_waited_for(
    llmphase: Command, tiny_llama: Path, data_folder: Path, start: tuple[str, ...], loads: int
) -> None:
    log = data_folder.parent / "loads"
    script = EXACT | {"log_loads": str(log)}
    request = (tiny_llama, "-p", "1000", "-n", "4", *start)
    diagnosed(llmphase, *request, script=script)
    alone = len(log.read_text())
    diagnosed(llmphase, *request, "--verify", "1", script=script)
    # the request as it is and as changed; with a load in the wait, each two more times
    assert len(log.read_text()) - 2 * alone == loads


def test_an_interrupted_trial_ends_the_trials_and_the_run_is_named(
    environment: dict[str, str], tiny_llama: Path
) -> None:
    script = {"prefill_ns": 1_500_000, "decode_ns": 2_000_000, "tensors_ns": 1_000_000}
    arguments = ("-p", "300", "-n", "4", "--verify", "3", "--no-ceilings", "--budget", "20s")
    with subprocess.Popen(
        [PROGRAM, "diagnose", tiny_llama, *arguments],
        env=environment | scripted(script, "sleeping"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = ""
        while "measuring" not in said.partition("Trying:")[2]:
            line = process.stderr.readline()
            assert line, said
            said += line
        process.send_signal(signal.SIGINT)
        said += process.stderr.read()
        process.wait(30)
    assert process.returncode == 130
    assert "saved as" in said
    assert said.count("Trying:") == 1
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        (("--fail-on", "prompt-bound,contended"), "prompt-bound"),
        (("--max-ttft", "500ms"), "first token"),
        (("--max-wait", "1s"), "wait"),
        (("--min-decode", "300"), "decode"),
    ],
)
def test_gates_not_met_end_with_1(
    llmphase: Command, tiny_llama: Path, gate: tuple[str, str], words: str
) -> None:
    outcome = llmphase("diagnose", tiny_llama, "-p", "1000", "-n", "4", "--no-ceilings", *gate, script=EXACT)
    assert outcome.returncode == 1, outcome.stderr
    assert words in outcome.stderr.splitlines()[-2] + outcome.stderr.splitlines()[-1]


def test_gates_that_are_met_end_with_0(llmphase: Command, tiny_llama: Path) -> None:
    gates = ("--fail-on", "load-bound", "--max-ttft", "2s", "--max-wait", "3s", "--min-decode", "100")
    diagnosed(llmphase, tiny_llama, "-p", "1000", "-n", "4", *gates, script=EXACT)


# Wrong use


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--prompt FILE"),
        (("--prompt", "absent.txt"), "absent.txt"),
        (("--prompt", "empty.txt"), "empty"),
        (("--prompt", "binary.bin"), "binary"),
        (("--prompt", "latin.txt"), "byte 4"),
        (("-p", "10", "-n", "0"), "--output-tokens"),
        (("-p", "0"), "--prompt-tokens"),
        (("-p", "9000"), "cut"),
        (("-p", "100", "-n", "10", "-c", "50"), "cut 60"),
        (("-p", "10", "--cached-prefix", "10"), "--cached-prefix"),
        (("-p", "10", "--cold", "--warm"), "--warm"),
        (("-p", "10", "--chat"), "--chat"),
        (("-p", "10", "--fail-on", "slow"), "--fail-on"),
        (("-p", "10", "--max-ttft", "soon"), "--max-ttft"),
        (("-p", "10", "--turns", "0"), "--turns"),
        (("--run", "last"), "--prompt"),
        (("--run", "last", "-p", "10"), "no run is saved"),
    ],
)
def test_wrong_use_is_one_line(
    llmphase: Command, tiny_llama: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "binary.bin").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "latin.txt").write_bytes("caf\u00e9 au lait".encode("latin-1"))
    model = () if "--run" in arguments else (tiny_llama,)
    outcome = llmphase("diagnose", *model, *arguments, script=EXACT)
    assert outcome.returncode == 2, (outcome.returncode, outcome.stderr)
    assert words.lower() in outcome.stderr.lower()
    assert outcome.stdout == ""
    assert "Traceback" not in outcome.stderr


def test_a_model_without_a_chat_template(llmphase: Command, tiny_llama: Path, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("hello there")
    script = EXACT | {"no_template": True}
    outcome = llmphase("diagnose", tiny_llama, "--prompt", "prompt.txt", "--chat", script=script)
    assert outcome.returncode == 3
    assert "--chat" in outcome.stderr


# The demo model, for real: sizes so generous that noise does not flip them.


@pytest.mark.engine
@pytest.mark.alone
class TestLive:
    """Verdicts on real runs."""

    def test_prompt_bound(self, llmphase: Command) -> None:
        found = diagnosed(llmphase, "demo", "-p", "300", "-n", "4", "--budget", "10s")
        assert found["verdict"] == "prompt-bound"

    def test_generation_bound(self, llmphase: Command) -> None:
        found = diagnosed(llmphase, "demo", "-p", "16", "-n", "100", "--budget", "10s")
        assert found["verdict"] == "generation-bound"

    def test_load_bound(self, llmphase: Command) -> None:
        found = diagnosed(llmphase, "demo", "-p", "4", "-n", "1", "--cold", "--budget", "20s")
        assert found["verdict"] == "load-bound"

    def test_cached_prefix(self, llmphase: Command) -> None:
        found = diagnosed(
            llmphase, "demo", "-p", "300", "-n", "20", "--cached-prefix", "290", "--budget", "10s"
        )
        assert found["verdict"] != "prompt-bound"

    def test_crossover(self, llmphase: Command) -> None:
        assert (
            llmphase("profile", "demo", "-p", "0,64,256", "-n", "8", "-r", "3", timeout=240).returncode == 0
        )
        first = diagnosed(llmphase, "--run", "last", "-p", "200", "-n", "10")
        crossing = first["crossover_tokens"]
        assert crossing > 1
        found = diagnosed(llmphase, "--run", "last", "-p", "200", "-n", str(crossing))
        assert found["verdict"] == "balanced" or found["borderline"]

    def test_more_threads_than_cores(self, llmphase: Command) -> None:
        import os

        threads = str(4 * (os.cpu_count() or 1))
        found = diagnosed(llmphase, "demo", "-p", "16", "-n", "4", "-t", threads, "--budget", "10s")
        assert found["verdict"] == "contended"

    def test_a_busy_neighbour_is_named(self, llmphase: Command) -> None:
        import os

        with busy_neighbours(os.cpu_count() or 1):
            outcome = llmphase(
                *("diagnose", "demo", "-t", "1", "-p", "16", "-n", "8", "--no-ceilings", "--budget", "10s"),
                timeout=240,
            )
        assert outcome.returncode == 0, outcome.stderr
        text = " ".join(outcome.stdout.split())
        assert "Contended:" in text
        # by name and share, not the Python that the machine's facts name in every report
        assert re.search(r"\(python[\w.]* [\d.]+ CPUs", text), text


@contextmanager
def busy_neighbours(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
