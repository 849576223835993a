"""Facts that contradict one another are named and put right where it is plain which is right."""

from __future__ import annotations

import pytest

from reports.facts import evidence_from, lenient_evidence


def test_a_prompt_faster_than_one_reading_of_the_weights_has_no_rate() -> None:
    # 4 GB at 1000 GB/s take 4 ms; 843 tokens in 1 ms were not evaluated.
    read = evidence_from(
        {
            "bytes_per_token": 4_000_000_000,
            "gpu_bandwidth_bytes_s": 1e12,
            "n_prompt": 843,
            "prefill_s": 0.001,
            "prefill_tok_s": 843_000,
        }
    )
    assert read.evidence.prefill_tok_s is None
    assert "cached" in read.notes[0]


def test_a_prompt_faster_than_a_tenth_of_a_token_has_no_rate() -> None:
    # 9 steps in 0.9 s: 100 ms each; the prompt took 3 ms.
    read = evidence_from({"n_prompt": 97, "prefill_s": 0.003, "n_output": 10, "decode_s": 0.9})
    assert len(read.notes) == 1
    assert "one generated token" in read.notes[0]


def test_a_rate_over_the_whole_wait_is_put_right() -> None:
    # 101 tokens in 20 s are 5.05 tok/s; without the prompt's 10 s, 100 steps in 10 s are 10.
    read = evidence_from({"n_output": 101, "total_s": 20.0, "prefill_s": 10.0, "decode_tok_s": 5.05})
    assert read.evidence.decode_tok_s == pytest.approx(10)
    assert "whole wait" in read.notes[0]


def test_an_honest_rate_stays() -> None:
    read = evidence_from({"n_output": 101, "total_s": 20.0, "prefill_s": 10.0, "decode_tok_s": 10.1})
    assert read.evidence.decode_tok_s == pytest.approx(10.1)
    assert read.notes == ()


@pytest.mark.parametrize(
    ("facts", "absent"),
    [
        ({"prefill_s": float("nan"), "decode_s": 1.0}, "prefill_s"),
        ({"n_prompt": -5, "decode_s": 1.0}, "n_prompt"),
        ({"n_prompt": 5, "n_prompt_cached": 9}, "n_prompt_cached"),
        ({"layers_on_gpu": 40, "layers_total": 33}, "layers_on_gpu"),
        ({"prefill_s": 5.0, "decode_s": 6.0, "total_s": 3.0}, "total_s"),
        ({"decode_tok_s": 0.0, "decode_s": 1.0}, "decode_tok_s"),
    ],
)
def test_of_a_log_what_can_not_be_is_left_out_and_named(facts: dict[str, object], absent: str) -> None:
    read = lenient_evidence(facts, {})
    assert getattr(read.evidence, absent) is None
    assert absent in read.notes[0]
    assert absent not in read.evidence.sources


def test_facts_of_a_log_say_so() -> None:
    read = lenient_evidence(
        {"prefill_s": 1.0, "bytes_per_token": 5, "start": "loaded"}, {"bytes_per_token": "estimated"}
    )
    assert read.evidence.sources == {"prefill_s": "log", "bytes_per_token": "estimated", "start": "log"}
