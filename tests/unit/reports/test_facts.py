"""A facts file is read strictly: a bad value is refused by name, a plain slip is put right and said."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.facts import FACT_KEYS, FactsError, evidence_from, facts_of, read_facts


def test_facts_become_evidence_with_their_source() -> None:
    read = evidence_from(
        {"model_bytes": 4_000_000_000, "gpu_bandwidth_bytes_s": 1e12, "n_layers": 32, "load_s": None},
        estimated=("n_layers",),
    )
    assert read.notes == ()
    assert read.evidence.model_bytes == 4_000_000_000
    assert read.evidence.load_s is None
    assert read.evidence.sources == {
        "model_bytes": "reported",
        "gpu_bandwidth_bytes_s": "data sheet",
        "n_layers": "estimated",
    }


def test_written_facts_read_back_the_same() -> None:
    facts = {
        "model_bytes": 5,
        "unified_memory": False,
        "backend": "cuda",
        "n_prompt": 10,
        "prefill_s": 2.0,
        "usable_cpus": 1.5,
        "decode_tok_s_at_depth": [[0, 30.0], [4096, 9.5]],
    }
    written = facts_of(evidence_from(facts).evidence)
    assert written == facts
    assert read_facts(json.dumps(written)).evidence == evidence_from(facts).evidence


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ({"prefill_s": -1}, "prefill_s"),
        ({"n_prompt": 1.5}, "n_prompt"),
        ({"n_prompt": True}, "n_prompt"),
        ({"n_prompt": "many"}, "n_prompt"),
        ({"decode_s": float("inf")}, "decode_s"),
        ({"decode_s": 10**400}, "decode_s"),
        ({"decode_s": 1e-300}, "decode_s"),
        ({"gpu_utilization": 97}, "0.97"),
        ({"model_bytes": 0}, "model_bytes"),
        ({"decode_tok_s": 0}, "decode_tok_s"),
        ({"flash_attn": "on"}, "flash_attn"),
        ({"backend": 3}, "backend"),
        ({"decode_tok_s_at_depth": [[0]]}, "decode_tok_s_at_depth"),
        ({"decode_tok_s_at_depth": [[5, 1.0], [5, 2.0]]}, "twice"),
        ({"prefil_s": 1.0}, "did you mean prefill_s"),
        ({"n_prompt": 5, "n_prompt_cached": 6}, "n_prompt_cached"),
        ({"layers_on_gpu": 34, "layers_total": 33}, "layers_on_gpu"),
        ({"gpu_present": False, "layers_on_gpu": 3}, "layers_on_gpu"),
    ],
)
def test_what_can_not_be_is_refused_by_name(facts: dict[str, object], named: str) -> None:
    with pytest.raises(FactsError, match=named) as caught:
        evidence_from(facts)
    assert caught.value.reason == "bad-facts"
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[1]", "object"),
        ("{", "JSON"),
        ('{"load_s": NaN}', "NaN"),
        ('{"load_s": 1, "load_s": 2}', "twice"),
        ('{"a\\u001b[31m": 1}', "no known fact"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_text_that_is_no_facts_file(text: str, named: str) -> None:
    with pytest.raises(FactsError, match=named) as caught:
        read_facts(text)
    assert "\x1b" not in str(caught.value)


def test_a_rate_over_cached_tokens_is_put_right() -> None:
    # 97 of 1000 tokens were evaluated in half a second: 194 tok/s, not 2000.
    read = evidence_from({"n_prompt": 1000, "n_prompt_cached": 903, "prefill_s": 0.5, "prefill_tok_s": 2000})
    assert read.evidence.prefill_tok_s == pytest.approx(194)
    assert len(read.notes) == 1
    assert "prefill_tok_s" in read.notes[0]


@pytest.mark.parametrize("rate", [9.0, 10.0])
def test_both_ways_to_count_steps_are_accepted(rate: float) -> None:
    read = evidence_from({"n_output": 10, "decode_s": 1.0, "decode_tok_s": rate})
    assert read.notes == ()
    assert read.evidence.decode_tok_s == rate


def test_a_total_below_its_parts_is_left_out() -> None:
    read = evidence_from({"prefill_s": 5.0, "decode_s": 6.0, "total_s": 3.0})
    assert read.evidence.total_s is None
    assert "total_s" in read.notes[0]
    assert "total_s" not in read.evidence.sources


def test_more_usable_than_logical_cpus_is_put_right() -> None:
    read = evidence_from({"usable_cpus": 12, "logical_cpus": 8})
    assert read.evidence.usable_cpus == 8


def test_untrusted_words_are_cleaned() -> None:
    assert evidence_from({"gpu_name": "RTX\x1b[31m\u202e 1"}).evidence.gpu_name == "RTX[31m 1"


@given(
    st.dictionaries(
        st.sampled_from(FACT_KEYS),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())),
    )
)
def test_any_values_give_evidence_or_a_named_refusal(facts: dict[str, object]) -> None:
    try:
        evidence = evidence_from(facts).evidence
    except FactsError as error:
        message = str(error)
    else:
        assert set(evidence.sources) <= set(facts)
        return
    assert any(key in message for key in facts)
