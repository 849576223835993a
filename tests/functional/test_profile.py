"""`llmphase profile` through its real processes, on a scripted engine whose every cost is known."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from program import PROGRAM, Command, scripted

Rows = Callable[..., list[dict[str, Any]]]

EXACT = {"prefill_ns": 1_000_000, "slope_ns": 0, "decode_ns": 5_000_000, "depth_ns": 0}
"""1,000 tok/s prefill, 200 tok/s decode, the same at every depth."""


def pick(rows: list[dict[str, Any]], phase: str, prompt: int | None = None) -> dict[str, Any]:
    found = [row for row in rows if row["phase"] == phase and prompt in (None, row["prompt_tokens"])]
    assert found, (phase, prompt)
    return found[0]


def test_every_phase_has_the_scripted_cost(rows: Rows, tiny_llama: Path) -> None:
    found = rows(tiny_llama, "-p", "0,100,1000", "-n", "4", script=EXACT)
    prefill = pick(found, "prefill", 1000)
    assert prefill["median_s"] == pytest.approx(1.0)
    assert prefill["tokens_per_s"] == pytest.approx(1000.0)
    assert prefill["samples"] >= 3
    assert pick(found, "prefill", 100)["median_s"] == pytest.approx(0.1)
    decode = pick(found, "decode", 0)
    assert decode["depth_tokens"] == 0
    assert decode["median_s"] == pytest.approx(0.005)
    assert decode["tokens_per_s"] == pytest.approx(200.0)
    # open 20 + tensors 100 + context 10 + first touch 5 ms
    assert pick(found, "load")["median_s"] == pytest.approx(0.135)
    assert pick(found, "context")["median_s"] == pytest.approx(0.010)
    assert pick(found, "tokenize", 100)["median_s"] == pytest.approx(0.002)
    # tokenize 2 + prefill 100 + one draw with the default chain 0.1 ms
    assert pick(found, "ttft", 100)["median_s"] == pytest.approx(0.1021)
    assert {row["status"] for row in found} == {"ok"}


def test_decode_gets_slower_with_depth(rows: Rows, tiny_llama: Path) -> None:
    found = rows(tiny_llama, "-p", "0,1000", "-n", "3", script=EXACT | {"depth_ns": 1000})
    # three steps at depths 1000, 1001, 1002: 5 ms + 1 µs * 1001 on average
    assert pick(found, "decode", 1000)["median_s"] == pytest.approx(0.006001)


def test_repetitions_are_exact(rows: Rows, tiny_llama: Path) -> None:
    found = rows(tiny_llama, "-p", "64", "-n", "2", "-r", "5", script=EXACT)
    assert pick(found, "prefill", 64)["samples"] == 5


def test_a_first_pass_that_stands_apart_is_kept_and_not_counted(
    rows: Rows, tiny_llama: Path, data_folder: Path
) -> None:
    found = rows(tiny_llama, "-p", "64", "-r", "6", script=EXACT | {"first_pass_factor": 3.0})
    row = pick(found, "prefill", 64)
    assert row["samples"] == 5
    assert row["max_s"] == pytest.approx(0.064)
    saved = json.loads(next((data_folder / "runs").glob("*.json")).read_text())
    samples = saved["groups"][0]["cells"][0]["samples"]
    assert [sample["tail_ns"] for sample in samples] == [192_000_000] + [64_000_000] * 5


def test_recurrent_models_are_walked_by_saving_their_state(rows: Rows, tiny_llama: Path) -> None:
    found = rows(tiny_llama, "-p", "100,700,1400", "-n", "2", script=EXACT | {"recurrent": True})
    assert pick(found, "prefill", 1400)["median_s"] == pytest.approx(1.4)


def test_terminal_report_answers_first(llmphase: Command, tiny_llama: Path) -> None:
    outcome = llmphase("profile", tiny_llama, "-p", "0,128,1000", script=EXACT)
    assert outcome.returncode == 0
    answer = " ".join(outcome.stdout.split("\n\n")[0].split())
    # 1,000 prompt tokens take 1 s, 255 steps after the first token 1.275 s, 256 draws 25.6 ms,
    # tokenizing 2 ms
    assert "At 1,000 prompt and 256 output tokens you wait 2.30" in answer
    assert "1.00 s (43 %) reading the prompt, 1.28 s (55 %) writing the answer" in answer
    assert max(len(line) for line in outcome.stdout.splitlines()) <= 80
    assert "\x1b" not in outcome.stdout


@pytest.mark.parametrize("width", [60, 80, 140])
def test_reports_fit_the_width(llmphase: Command, tiny_llama: Path, width: int) -> None:
    outcome = llmphase("profile", tiny_llama, script=EXACT, COLUMNS=str(width))
    assert outcome.returncode == 0
    assert max(len(line) for line in outcome.stdout.splitlines()) <= width


def test_reports_are_ascii_where_the_encoding_is(llmphase: Command, tiny_llama: Path) -> None:
    outcome = llmphase("profile", tiny_llama, script=EXACT, PYTHONIOENCODING="ascii")
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.isascii()
    assert "?" not in outcome.stdout


def test_quiet_csv_prints_nothing_but_csv(llmphase: Command, tiny_llama: Path) -> None:
    outcome = llmphase("profile", tiny_llama, "-p", "64", "--quiet", "--format", "csv", script=EXACT)
    assert outcome.returncode == 0
    assert outcome.stderr == ""
    table = list(csv.DictReader(io.StringIO(outcome.stdout)))
    assert {row["phase"] for row in table} >= {"load", "prefill", "decode", "ttft"}


@pytest.mark.parametrize("ending", ["csv", "json", "jsonl", "md", "txt"])
def test_output_files_take_their_form_from_the_ending(
    llmphase: Command, tiny_llama: Path, tmp_path: Path, ending: str
) -> None:
    target = tmp_path / f"report.{ending}"
    outcome = llmphase("profile", tiny_llama, "-p", "64", "-o", target, script=EXACT)
    assert outcome.returncode == 0
    again = llmphase("report", "last", "-o", tmp_path / f"again.{ending}")
    assert again.returncode == 0, again.stderr
    assert target.read_text() == (tmp_path / f"again.{ending}").read_text()
    assert list(tmp_path.glob(".llmphase-*")) == []


def test_progress_lines_are_plain_where_stderr_is_no_terminal(llmphase: Command, tiny_llama: Path) -> None:
    outcome = llmphase("profile", tiny_llama, "-p", "64", "-r", "3", script=EXACT)
    assert "\x1b" not in outcome.stderr
    assert "\r" not in outcome.stderr
    assert "prompts of 64 tokens, 32 output tokens" in outcome.stderr
    assert "pass 1" in outcome.stderr


def test_noise_of_native_libraries_stays_off_stdout(llmphase: Command, tiny_llama: Path) -> None:
    script = EXACT | {"print_noise": True}
    outcome = llmphase("profile", tiny_llama, "-p", "64", "--format", "json", script=script)
    assert outcome.returncode == 0
    json.loads(outcome.stdout)


def test_several_models_are_compared(rows: Rows, tiny_llama: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.gguf"
    second.write_bytes(tiny_llama.read_bytes())
    found = rows(tiny_llama, second, "-p", "64", script=EXACT)
    assert len([row for row in found if row["phase"] == "prefill"]) == 2


# The budget


def test_what_does_not_fit_the_budget_is_a_row(llmphase: Command, tiny_llama: Path) -> None:
    # 400 tokens cost 0.4 s, 5,000 would cost 5 s
    script = {"prefill_ns": 1_000_000, "decode_ns": 1_000_000, "tensors_ns": 1_000_000}
    began = time.monotonic()
    outcome = llmphase(
        "profile", tiny_llama, "-p", "100,200,400,5000", "-n", "4", "--budget", "3s", "--format", "json",
        script=script, engine="sleeping",
    )  # fmt: skip
    took = time.monotonic() - began
    assert outcome.returncode == 0, outcome.stderr
    rows = json.loads(outcome.stdout)["rows"]
    far = pick(rows, "prefill", 5000)
    assert far["status"] == "predicted"
    assert far["reason"].startswith("budget")
    assert far["median_s"] == pytest.approx(5.0, rel=0.2)
    assert far["ci_low_s"] <= far["median_s"] <= far["ci_high_s"]
    assert took < 30  # nine passes over the 5,000 tokens would take 45 s


def test_without_lengths_to_predict_from_a_row_is_skipped(llmphase: Command, tiny_llama: Path) -> None:
    outcome = llmphase(
        "profile", tiny_llama, "-p", "100,9000", "-n", "2", "--budget", "1s", "--format", "json",
        script={"prefill_ns": 1_000_000, "tensors_ns": 1_000_000}, engine="sleeping",
    )  # fmt: skip
    rows = json.loads(outcome.stdout)["rows"]
    assert pick(rows, "prefill", 9000)["status"] == "skipped"
    assert pick(rows, "prefill", 9000)["reason"].startswith("budget: ")
    assert pick(rows, "prefill", 9000)["median_s"] is None


def test_what_could_not_be_timed_beside_is_a_row_without_a_time(llmphase: Command, tiny_llama: Path) -> None:
    """Without a time for sampling there is none to the first token."""
    outcome = llmphase(
        "profile", tiny_llama, "-p", "8", "-n", "2", "-r", "1", "--format", "json",
        LLMPHASE_ENGINE="failing_engine:create", LLMPHASE_FAIL="sample=decode",
    )  # fmt: skip
    row = pick(json.loads(outcome.stdout)["rows"], "ttft", 8)
    assert (row["status"], row["reason"]) == ("skipped", "unmeasured: no ttft samples")


# Failures


def test_an_engine_failure_costs_its_cell(llmphase: Command, tiny_llama: Path) -> None:
    outcome = llmphase(
        "profile",
        tiny_llama,
        "-p",
        "100,700,1200",
        "--format",
        "json",
        script=EXACT | {"fail_at_position": 512},
    )
    assert outcome.returncode == 0, outcome.stderr
    rows = json.loads(outcome.stdout)["rows"]
    assert pick(rows, "prefill", 100)["status"] == "ok"
    failed = pick(rows, "prefill", 700)
    assert failed["status"] == "failed"
    assert "scripted" in failed["reason"]


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGKILL"])
def test_a_crash_costs_its_cell(llmphase: Command, tiny_llama: Path, name: str) -> None:
    script = EXACT | {"crash_at_position": 512, "crash_signal": name}
    outcome = llmphase("profile", tiny_llama, "-p", "100,700,1200", "--format", "json", script=script)
    assert outcome.returncode == 0, outcome.stderr
    assert "Traceback" not in outcome.stderr
    rows = json.loads(outcome.stdout)["rows"]
    assert pick(rows, "prefill", 100)["status"] == "ok"
    for length in (700, 1200):
        assert pick(rows, "prefill", length)["status"] == "failed"
        assert name in pick(rows, "prefill", length)["reason"]


def test_a_crash_in_a_repacked_layout_is_measured_again_without_it(
    llmphase: Command, tiny_llama: Path
) -> None:
    script = EXACT | {"crash_at_position": 0, "crash_only_repacked": True, "buffers": ["AMX", "CPU"]}
    outcome = llmphase("profile", tiny_llama, "-p", "0,100", "--format", "json", script=script)
    assert outcome.returncode == 0, outcome.stderr
    row = pick(json.loads(outcome.stdout)["rows"], "prefill", 100)
    assert row["status"] == "ok"
    assert "recorded" in row["warnings"]
    assert "--no-repack" in llmphase("report").stdout


def test_a_line_that_is_no_message_is_an_error_of_the_worker(llmphase: Command, tiny_llama: Path) -> None:
    script = EXACT | {"garbage_at_position": 0}
    outcome = llmphase("profile", tiny_llama, "-p", "100", "--format", "json", script=script)
    assert "Traceback" not in outcome.stderr
    assert outcome.returncode == 3
    assert "protocol" in outcome.stderr


@pytest.mark.parametrize("stage", ["fail_load", "fail_context"])
def test_a_load_that_fails_says_why(llmphase: Command, tiny_llama: Path, stage: str) -> None:
    outcome = llmphase("profile", tiny_llama, "-p", "100", script=EXACT | {stage: "it will not: reasons"})
    assert outcome.returncode == 3
    assert "it will not: reasons" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_an_engine_that_can_not_be_loaded_says_what_to_do(llmphase: Command, tiny_llama: Path) -> None:
    outcome = llmphase("profile", tiny_llama, LLMPHASE_ENGINE="no_such_module:engine")
    assert outcome.returncode == 3
    assert "no_such_module" in outcome.stderr
    assert "Traceback" not in outcome.stderr


# Interruptions


def start(environment: dict[str, str], *arguments: str | Path, **script: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [PROGRAM, "profile", *arguments],
        env=environment | scripted(script, "sleeping"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_cell(data_folder: Path) -> dict[str, Any]:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for path in (data_folder / "runs").glob("*.json"):
            saved: dict[str, Any] = json.loads(path.read_text())
            if any(cell["samples"] for group in saved["groups"] for cell in group["cells"]):
                return saved
        time.sleep(0.05)
    raise AssertionError("no cell was saved")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_saves_and_names_what_was_measured(
    environment: dict[str, str], data_folder: Path, tiny_llama: Path, number: signal.Signals
) -> None:
    process = start(environment, tiny_llama, "-p", "50,6000", "-n", "2", prefill_ns=2_000_000)
    saved = wait_for_cell(data_folder)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"1 of 2 cells are measured, saved as {saved['run_id']}" in errors
    assert "Traceback" not in errors
    final = json.loads((data_folder / "runs" / f"{saved['run_id']}.json").read_text())
    assert final["finished"] is False


def test_the_worker_ends_when_the_parent_is_killed(
    environment: dict[str, str], data_folder: Path, tiny_llama: Path
) -> None:
    process = start(environment, tiny_llama, "-p", "50,6000", "-n", "2", prefill_ns=2_000_000)
    wait_for_cell(data_folder)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        process.kill()
        process.communicate()
        pytest.skip("this system does not list child processes")
    workers = [int(word) for word in children.read_text().split()]
    assert workers
    process.kill()
    process.communicate()
    end = time.monotonic() + 5
    while any(_is_running(worker) for worker in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(_is_running(worker) for worker in workers)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return state != "Z"


def test_a_closed_pipe_ends_quietly(environment: dict[str, str], tiny_llama: Path) -> None:
    with subprocess.Popen(
        [PROGRAM, "profile", tiny_llama, "-p", "64", "--quiet"],
        env=environment | scripted(EXACT),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(60)
    assert b"Traceback" not in errors
    assert b"BrokenPipe" not in errors


# Saving


def test_a_full_folder_costs_the_saving_alone(llmphase: Command, tiny_llama: Path, data_folder: Path) -> None:
    data_folder.mkdir()
    (data_folder / "runs").write_text("in the way")
    outcome = llmphase("profile", tiny_llama, "-p", "64", "--format", "json", script=EXACT)
    assert outcome.returncode == 0
    assert "was not saved" in outcome.stderr
    json.loads(outcome.stdout)


@pytest.mark.parametrize(
    "command", [("report",), ("runs",), ("doctor",), ("profile", "demo", "-p", "8", "-r", "1")]
)
def test_standard_output_that_is_full_or_closed_is_one_line(
    llmphase: Command, environment: dict[str, str], tiny_llama: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    assert llmphase("profile", tiny_llama, "-p", "8", "-r", "1", script=EXACT).returncode == 0
    line = " ".join([str(PROGRAM), *(str(tiny_llama) if word == "demo" else word for word in command)])
    for redirection, codes in ((">/dev/full", {3}), (">&-", {0}), ("| true", {0})):
        shell = f"{line} {redirection}" + ("; exit ${PIPESTATUS[0]}" if "|" in redirection else "")
        outcome = subprocess.run(
            ["bash", "-c", shell],
            env=environment | scripted(EXACT),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in outcome.stderr, (shell, outcome.stderr)
        assert outcome.returncode in codes, (shell, outcome.returncode, outcome.stderr)
        if command[0] == "profile":
            assert "Run saved as" in outcome.stderr


def test_a_broken_standard_error_does_not_end_the_measurement(
    environment: dict[str, str], tiny_llama: Path, tmp_path: Path
) -> None:
    for redirection in ("2>&-", "2>/dev/full", "2> >(head -1 >/dev/null)"):
        outcome = subprocess.run(
            ["bash", "-c", f"{PROGRAM} profile {tiny_llama} -p 0,64 -r 2 --format csv {redirection}"],
            env=environment | scripted(EXACT),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert outcome.returncode == 0
        assert "prefill" in outcome.stdout


def test_a_file_that_is_a_model_is_not_written_over(
    llmphase: Command, tiny_llama: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model.csv"
    model.write_bytes(tiny_llama.read_bytes())
    outcome = llmphase("profile", model, "-p", "8", "-o", model, script=EXACT)
    assert outcome.returncode == 2
    assert model.read_bytes() == tiny_llama.read_bytes()


def test_an_interruption_without_a_saved_run_prints_what_there_is(
    environment: dict[str, str], tiny_llama: Path
) -> None:
    process = start(environment, tiny_llama, "-p", "50,6000", "-n", "2", "--no-save", prefill_ns=2_000_000)
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "1 of 2 cells are measured, not saved" in errors
    assert "50" in output


def test_a_mistake_in_the_worker_is_told_by_its_name(llmphase: Command, tiny_llama: Path) -> None:
    outcome = llmphase("profile", tiny_llama, "-p", "8", script={"no_such_setting": 1})
    assert outcome.returncode == 3
    assert "no_such_setting" in outcome.stderr


def test_no_save_leaves_nothing(llmphase: Command, tiny_llama: Path, data_folder: Path) -> None:
    assert llmphase("profile", tiny_llama, "-p", "64", "--no-save", script=EXACT).returncode == 0
    assert not data_folder.exists()
