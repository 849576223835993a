"""Every request judged, the longest wait in full, and what changes from one to the next."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sample_runs as sample

from reports.diagnosis_report import DiagnosisReport
from reports.evidence import Evidence
from reports.formats import DIAGNOSIS_FORMATS, TerminalStyle
from reports.log_evidence import Given, facts_evidence, request_evidence
from reports.log_report import build_facts_report, build_log_report
from reports.log_trend import trend
from reports.logs import read_log

STYLE = TerminalStyle(width=80, colour=False, unicode=True)
EVIL = "=cmd|' /C calc'!A0 [red]evil\x1b[31m\u202e"


def request(
    prompt: int = 100, cached: int = 0, output: int = 11, *, tok_s: float = 10.0, prompt_tok_s: float = 100.0
) -> dict[str, Any]:
    """A reply of llama-server: `tok_s` over the steps after the first token."""
    return {
        "id": EVIL,
        "timings": {
            "cache_n": cached,
            "prompt_n": prompt - cached,
            "prompt_ms": 1000 * (prompt - cached) / prompt_tok_s,
            "predicted_n": output,
            "predicted_ms": 1000 * (output - 1) / tok_s,
        },
    }


def report(*requests: dict[str, Any], given: Given | None = None, before: str = "") -> DiagnosisReport:
    text = before + "\n".join(json.dumps(one) for one in requests)
    built = build_log_report(read_log(text.splitlines()), given or Given())
    assert built is not None
    return built


def ollama(**facts: Any) -> dict[str, Any]:
    return {"done": True, "eval_count": 11, "eval_duration": 10**9, **facts}


def test_the_request_that_waited_longest_is_diagnosed() -> None:
    # 1 + 1 s, 10 + 1 s, 1 + 1 s
    found = report(request(), request(1000), request())
    assert found.logged is not None
    assert found.logged.number == 2
    assert found.verdict == "prompt-bound"
    assert [one.verdict for one in found.logged.requests] == ["balanced", "prompt-bound", "balanced"]
    assert found.wait_s == pytest.approx(11)


def test_a_growing_chat_that_misses_its_cache() -> None:
    found = report(request(100), request(200), request(400), request(800))
    assert found.logged is not None
    growth = " ".join(found.logged.trend)
    # Of each prompt the part of the one before was read again: 100 + 200 + 400 tokens at 100 tok/s.
    assert "3 of 3 requests" in growth
    assert "700 tokens again, 7.00 s" in growth
    assert "grows from 100 to 800 tokens" in growth


def test_a_cache_that_holds_is_said_too() -> None:
    found = report(request(100), request(200, 100), request(300, 200))
    assert found.logged is not None
    assert "The cache holds: all 2 requests" in found.logged.trend[0]


def test_decode_that_falls_with_the_context_and_without_it() -> None:
    deep = report(*(request(1000 * n, tok_s=40 / n) for n in (1, 2, 3)))
    assert deep.logged is not None
    assert "while the context grows" in " ".join(deep.logged.trend)
    hot = report(
        request(tok_s=40), request(tok_s=40), request(tok_s=40), request(tok_s=15), request(tok_s=15)
    )
    assert hot.logged is not None
    (slower,) = [text for text in hot.logged.trend if text.startswith("Decode")]
    assert "after request 3" in slower
    assert "does not grow" in slower


def test_noise_is_no_trend() -> None:
    assert trend([Evidence(decode_tok_s=rate) for rate in (40, 41, 38, 40)]) == ()
    assert trend([Evidence(decode_tok_s=40)]) == ()


def test_cached_tokens_counted_as_evaluated_are_named() -> None:
    # 800 tokens in 8 s, then 843 in a tenth of that: the count includes what was cached.
    found = report(
        ollama(prompt_eval_count=800, prompt_eval_duration=8 * 10**9),
        ollama(prompt_eval_count=843, prompt_eval_duration=8 * 10**8),
    )
    assert found.logged is not None
    assert "counted as read all the same" in " ".join(found.logged.trend)
    assert found.logged.requests[1].evidence.prefill_tok_s is None


def test_a_load_for_each_request_is_named() -> None:
    found = report(
        *(ollama(load_duration=12 * 10**9, prompt_eval_count=20, prompt_eval_duration=10**8) for _ in "12")
    )
    assert found.verdict == "load-bound"
    assert found.evidence.repeat_load_s == pytest.approx(12)
    assert found.logged is not None
    assert "loaded in 2 of 2 requests" in " ".join(found.logged.trend)


def test_tests_of_a_benchmark_have_no_before_and_after() -> None:
    rows = [{"pp": 128, "tg": 16, "pl": 1, "t_pp": 0.4, "t_tg": seconds} for seconds in (0.1, 0.4)]
    found = report(*rows)
    assert found.logged is not None
    assert found.logged.trend == ()


def test_a_device_given_beside_the_log_is_the_roof_as_the_sheet_has_it() -> None:
    before = "print_info: file size = 4.00 GiB\nprint_info: n_expert = 0\n"
    before += "load_tensors: offloaded 33/33 layers to GPU\n"
    # 4 GiB read 10 times a second are 43 GB/s of 936
    found = report(request(), given=Given(gpu_name="RTX 3090"), before=before)
    assert found.evidence.sources["gpu_name"] == "reported"
    assert found.evidence.sources["gpu_bandwidth_bytes_s"] == "data sheet"
    (sheet,) = [notice for notice in found.notices if notice.code == "data-sheet"]
    assert "936 GB/s" in sheet.text
    assert "nothing was measured" in sheet.text
    assert "data sheet" in " ".join(found.ceiling_sentences)
    assert found.verdict == "offload-bound"


def test_a_header_beside_the_log_is_used_unless_it_is_another_models() -> None:
    model = sample.model()
    loaded = f"load_tensors: offloaded 0/{(model.n_layers or 0) + 1} layers to GPU\n"
    found = report(request(), given=Given(model=model), before=loaded)
    assert found.evidence.bytes_per_token == model.bytes_per_token
    assert found.evidence.sources["bytes_per_token"] == "header"
    other = report(request(), given=Given(model=model), before="load_tensors: offloaded 0/99 layers to GPU\n")
    assert other.evidence.bytes_per_token is None
    assert "its header is not used" in " ".join(notice.text for notice in other.notices)


def test_placement_alone_is_a_verdict() -> None:
    built = build_log_report(
        read_log(["load_tensors: offloaded 10/33 layers to GPU"]), Given(gpu_name="RTX 3090")
    )
    assert built is not None
    assert built.verdict == "offload-bound"
    assert build_log_report(read_log(["nothing of interest"]), Given()) is None


def test_what_is_not_told_is_said() -> None:
    codes = {notice.code: notice.text for notice in report(ollama()).notices}
    assert "n_prompt" in codes["log-not-told"] or "Where the weights lie" in codes["log-not-told"]
    texts = " ".join(notice.text for notice in report(ollama()).notices)
    assert "Not found in the log: load_s, n_prompt, prefill_s, total_s." in texts


def test_a_log_never_raises_for_what_it_says() -> None:
    log = read_log([json.dumps(ollama(eval_count="many", prompt_eval_count=-3, prompt_eval_duration=[1]))])
    read = request_evidence(log.requests[0], Given())
    assert read.evidence.n_prompt is None
    assert any("n_prompt" in note for note in read.notes)


@pytest.mark.parametrize("form", DIAGNOSIS_FORMATS)
def test_every_form_holds_the_requests_and_no_trap(form: str) -> None:
    found = report(request(100), request(200), request(400))
    text = DIAGNOSIS_FORMATS[form].render(found, STYLE)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "grows from 100 to 400" in text.replace("\n", " ").replace("\\", "")
    if form == "terminal":
        assert all(len(line) <= 80 for line in text.splitlines())
    if form == "json":
        document = json.loads(text)
        assert [one["prompt_tokens"] for one in document["log"]["requests"]] == [100, 200, 400]
        assert document["run"] is None
        assert document["log"]["request"] == 3


def test_facts_with_a_device_and_a_bandwidth_beside_them() -> None:
    read = facts_evidence('{"decode_tok_s": 5.0}', Given(gpu_name="RTX 3090", memory_bandwidth_bytes_s=50e9))
    assert read.evidence.gpu_bandwidth_bytes_s == 936e9
    assert read.evidence.memory_bandwidth_bytes_s == 50e9
    found = build_facts_report(read)
    assert found.logged is not None
    assert found.logged.source == "facts"
