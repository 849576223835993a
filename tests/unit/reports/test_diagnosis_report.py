"""What a diagnosis says: the answer, the gates' figures, trials, turns, and that a gap never becomes a
number."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import sample_runs as sample
from sample_runs import workload
from simple_phases import SIMPLE

from probes.records import DeviceCeiling, KernelRate
from reports.diagnosis_report import (
    DiagnosisReport,
    Verified,
    build_diagnosis_report,
    diagnosis_of_run,
)
from reports.facts import evidence_from
from reports.phase_diagram import Calibrated
from reports.request_costs import ModelCosts
from reports.rules import RULES
from reports.turns import turns_of, turns_table


def report(prompt: int = 2048, output: int = 100, **changes: Any) -> DiagnosisReport:
    return diagnosis_of_run(sample.run(), workload(prompt, output, **changes))


def of_facts(**facts: Any) -> DiagnosisReport:
    return build_diagnosis_report(None, evidence_from(facts).evidence)


def trial(code: str, wait_s: float | None, *, base_s: float | None = 7.0, problem: str = "") -> Verified:
    return Verified(
        code=code,
        measured_wait_s=wait_s,
        low_s=None,
        high_s=None,
        base_wait_s=base_s,
        problem=problem or None,
    )


def tried(*trials: Verified) -> DiagnosisReport:
    return diagnosis_of_run(sample.run(), workload(), verified=trials)


# --- the answer ----------------------------------------------------------------------------------


def test_the_answer_comes_first_then_what_saves_most() -> None:
    answer, savings = report().headline
    assert answer == "Prompt-bound: reading the prompt takes 5.98 s of 6.77 s (88 %)."
    assert savings.startswith("What saves most: keep the beginning of the prompt in the cache")
    assert savings.count("; then ") == 1


def test_a_borderline_verdict_says_so_and_by_how_much() -> None:
    # 512 tokens take 1.22 s; 131 tokens take 130 steps of 6.94 ms, 0.90 s: a lead of 0.32 of 2.14 s.
    said = report(512, 131)
    assert (said.verdict, said.is_borderline) == ("prompt-bound", True)
    assert said.headline[0].startswith("Prompt-bound, borderline: reading the prompt")
    assert said.standing[0] == "Borderline: the two longest parts differ by 15 % of the wait."
    assert "Also true: generation-bound." in said.standing


def test_balanced_is_borderline_by_its_name() -> None:
    assert report(512, 176).headline[0].startswith("Balanced: ")


def test_what_would_change_it_names_the_crossover_of_the_map() -> None:
    said = report()
    # 5.98 s over steps of 7.83 ms at depth 2,048 and up to 8.3 ms later: some 742 steps.
    assert said.crossover_tokens == pytest.approx(743, abs=3)
    assert f"from about {said.crossover_tokens} output tokens on." in " ".join(said.standing)


def test_where_the_offload_is_the_cause_layers_come_first_even_untold() -> None:
    said = of_facts(
        prefill_s=7.9,
        decode_s=0.6,
        n_prompt=3000,
        n_output=20,
        gpu_present=True,
        layers_on_gpu=20,
        layers_total=33,
        model_bytes=8 * 10**9,
    )
    assert said.verdict == "offload-bound"
    first = "First place more layers on the device (at most 8.50 s: only a trial tells). What saves most:"
    assert said.headline[1].startswith(first)
    assert said.ways[0].title == "How to place more layers on the device"
    assert len(said.ways) == 3


# --- figures for gates ---------------------------------------------------------------------------


def test_the_first_token_waits_for_the_load_where_it_is_part_of_the_wait() -> None:
    # Tokenizing 4.097 ms, prefill 5.9756 s * 1.001, one draw of 93.5 us; a cold load of 450 ms.
    first = 0.004097 + 5.9756 * 1.001 + 93.5e-6
    assert report().ttft_s == pytest.approx(first, rel=1e-4)
    assert report(start="cold").ttft_s == pytest.approx(first + 0.450, rel=1e-3)
    cold, loaded = report(start="cold").wait_s, report().wait_s
    assert cold is not None
    assert loaded is not None
    assert cold - loaded == pytest.approx(0.450, abs=2e-3)


def test_decode_keeps_its_own_rate() -> None:
    # Steps at depth 2,048 to 2,146 take 6.6 ms + 0.6 us * 2,097 = 7.86 ms.
    assert report().decode_tok_s == pytest.approx(1 / 7.86e-3, rel=0.01)


def test_half_a_wait_is_no_wait() -> None:
    only_answer = of_facts(decode_s=4.0, n_output=41)
    assert (only_answer.wait_s, only_answer.ttft_s) == (None, None)
    # 40 steps in 4 s.
    assert only_answer.decode_tok_s == pytest.approx(10.0)
    assert only_answer.wait_parts == ()
    only_prompt = of_facts(prefill_s=2.0, n_prompt=100)
    assert (only_prompt.wait_s, only_prompt.ttft_s) == (None, 2.0)


def test_a_load_that_was_not_timed_leaves_the_first_token_unknown() -> None:
    run = sample.run(dataclasses.replace(sample.group(), loads=()))
    said = diagnosis_of_run(run, workload(start="cold"))
    assert said.ttft_s is None
    assert "the load not measured" in said.wait_title


def test_nothing_known_is_an_answer_too() -> None:
    said = of_facts()
    assert said.verdict == "unknown"
    (answer,) = said.headline
    assert answer.startswith("Unknown: the facts do not tell what the wait consists of; missing: n_prompt, ")
    assert (said.ttft_s, said.wait_s, said.decode_tok_s, said.phase_map) == (None, None, None, None)
    assert said.standing == ()
    assert said.unknown_sentence.startswith("Not known, so that some rules could not tell: ")


@pytest.mark.parametrize("index", [0, 1])
def test_a_troubled_run_is_told_as_far_as_it_goes(index: int) -> None:
    said = diagnosis_of_run(sample.troubled_run(), workload(900), index=index, explain=True)
    assert said.measured
    codes = {notice.code for notice in said.measured.notices}
    assert "unfinished" in codes
    # Noise is the first group's alone.
    assert ("noise" in codes) is (index == 0)


def test_a_run_cut_short_before_the_first_request_is_told() -> None:
    group = sample.group(cells=(), loads=(), tokenize=(), sampling=(), requests=())
    assert diagnosis_of_run(sample.run(group), workload()).verdict == "unknown"


# --- trials --------------------------------------------------------------------------------------


def test_a_measured_saving_goes_before_a_predicted_one() -> None:
    said = tried(trial("prefix-cached", 1.0), trial("prompt-half", 6.9))
    by_code = {one.remedy.code: one for one in said.advice}
    # 7.0 s before, 1.0 s after.
    assert by_code["prefix-cached"].measured_saved_s == pytest.approx(6.0)
    assert by_code["prefix-cached"].is_delivered is True
    assert by_code["prompt-half"].is_delivered is False
    codes = [one.remedy.code for one in said.advice]
    # 0.1 s measured ranks behind 0.4 s predicted for half the answer, though 3.4 s were predicted.
    assert codes.index("output-half") < codes.index("prompt-half")
    assert "(6.00 s measured)" in said.headline[1]
    assert [one.code for one in said.remedies] == codes


def test_half_of_the_predicted_saving_is_delivered_and_less_is_not() -> None:
    predicted = next(one for one in report().remedies if one.code == "output-half").saved_s
    assert predicted
    for share, delivered in ((0.51, True), (0.49, False)):
        said = tried(trial("output-half", 7.0 - share * predicted))
        (found,) = [one for one in said.advice if one.verified]
        assert found.is_delivered is delivered


def test_a_failed_remedy_is_said_and_not_recommended() -> None:
    said = tried(trial("prefix-cached", 7.5))
    assert "cache" not in said.headline[1]
    assert said.remedies_table
    (row,) = [row for row in said.remedies_table.rows if row[-1] == "prefix-cached"]
    assert row[3] == "500 ms (7.1 %) slower !"
    assert any(
        "7.50 s measured" in note and note.endswith("7.00 s before; it did not deliver.")
        for note in said.remedies_table.notes
    )
    assert all("keep the beginning" not in way.title for way in said.ways)


def test_without_a_prediction_what_one_notices_counts() -> None:
    # 3 % of 7 s are 0.21 s.
    for after, delivered in ((6.7, True), (6.9, False)):
        said = tried(trial("cache-type", after))
        (found,) = [one for one in said.advice if one.verified]
        assert found.is_delivered is delivered


@pytest.mark.parametrize("change", [{"wait_s": None, "problem": "memory: 3 GiB free"}, {"base_s": None}])
def test_a_trial_that_was_not_possible_has_no_figure(change: dict[str, Any]) -> None:
    said = tried(trial("prefix-cached", **({"wait_s": 1.0} | change)))
    (found,) = [one for one in said.advice if one.verified]
    assert found.measured_saved_s is None
    assert found.is_delivered is None
    assert said.remedies_table
    (row,) = [row for row in said.remedies_table.rows if row[-1] == "prefix-cached"]
    assert row[3] == "failed"
    why = change.get("problem", "the wait before or after was not measured")
    assert any(f"could not be measured, {why}." in note for note in said.remedies_table.notes)


def test_without_trials_there_is_no_column_for_them() -> None:
    table = report().remedies_table
    assert table
    assert [column.title for column in table.columns] == ["change", "wait then", "saves", "code"]


# --- turns ---------------------------------------------------------------------------------------


SIMPLE_COSTS = Calibrated(costs=ModelCosts(model=SIMPLE), prefill_factor=1.0, decode_factor=1.0)


def test_a_growing_history_is_read_again_without_a_cache() -> None:
    first, second, third = turns_of(workload(100, 11, turns=3), SIMPLE_COSTS)
    assert (first.prompt_tokens, second.prompt_tokens, third.prompt_tokens) == (100, 211, 322)
    assert (first.uncached_s, first.cached_s, first.decode_s) == pytest.approx((1.0, 1.0, 1.0))
    # 211 tokens read, or the 100 new ones.
    assert (second.uncached_s, second.cached_s) == pytest.approx((2.11, 1.0))
    # 1 + 2.11 + 3.22 of prefill and 3 of decode, against 3 and 3.
    assert (third.uncached_total_s, third.cached_total_s) == pytest.approx((9.33, 6.0))


def test_a_cached_prefix_shortens_the_first_turn() -> None:
    first, _ = turns_of(workload(100, 11, turns=2, cached_tokens=90), SIMPLE_COSTS)
    assert (first.uncached_s, first.cached_s) == pytest.approx((1.0, 0.1))


def test_the_turn_that_leaves_the_context_is_named() -> None:
    asked = workload(100, 11, turns=3)
    table = turns_table(turns_of(asked, SIMPLE_COSTS), asked, n_ctx=222)
    assert table
    # Turn 2 ends at 222 tokens, turn 3 at 333.
    assert "From turn 3 on the history is longer than the context of 222 tokens" in table.notes[1]
    assert table.notes[0].startswith("Predicted. Over 3 turns a prefix cache saves 3.33 s of 9.33 s;")


def test_of_many_turns_some_are_shown_with_both_ends() -> None:
    asked = workload(100, 11, turns=500)
    table = turns_table(turns_of(asked, SIMPLE_COSTS), asked, n_ctx=None)
    assert table
    assert len(table.rows) == 12
    assert (table.rows[0][0], table.rows[-1][0]) == ("1", "500")


def test_a_single_request_has_no_turns() -> None:
    assert report().turns == ()
    assert report().turns_table is None
    assert len(report(turns=4).turns) == 4


# --- what it rests on ----------------------------------------------------------------------------


def test_evidence_has_value_unit_and_source() -> None:
    table = report().evidence_table
    assert table
    assert ("prefill_s", "5.98 s", "measured") in table.rows
    assert ("n_output", "100", "reported") in table.rows


def test_every_rule_is_explained_when_asked() -> None:
    assert report().rules_table is None
    said = diagnosis_of_run(sample.run(), workload(), explain=True)
    assert said.rules_table
    assert [row[0] for row in said.rules_table.rows] == [rule.code for rule in RULES]
    by_code = {row[0]: row for row in said.rules_table.rows}
    assert by_code["phase-share"][1] == "fired"
    assert "prefill_s 5.98 s" in by_code["phase-share"][2]
    assert by_code["clock-low"][1] == "abstained"


def ceiling() -> DeviceCeiling:
    def rate(name: str, batch: int, seconds: float) -> KernelRate:
        return KernelRate(
            rows=1000,
            columns=1000,
            batch=batch,
            weight_type=name,
            seconds=seconds,
            weight_bytes=625_000,
        )

    return sample.ceiling(
        compute_flops_s=200e9,
        operation_s=None,
        rates=(rate("Q4_1", 1, 625_000 / 20e9), rate("Q4_1", 512, 2e6 * 512 / 200e9)),
        unknown={"operation_s": "not asked"},
    )


def test_both_phases_stand_beside_their_ceilings() -> None:
    said = diagnosis_of_run(sample.run(ceilings=(ceiling(),)), workload(2000))
    assert {share.phase for share in said.ceilings} == {"prefill", "decode"}
    # The nearest measured prompt.
    assert {share.prompt_tokens for share in said.ceilings} == {2048}
    assert said.ceiling_sentences[0].startswith("At 2,048 prompt tokens: Decode runs at ")
    assert "of at most" in said.ceiling_sentences[1]
    assert "Left out of the ceilings: CPU: operation_s: not asked." in said.ceiling_sentences


def test_without_ceilings_nothing_is_said_of_them() -> None:
    assert report().ceilings == ()
    assert report().ceiling_sentences == ()


def test_what_took_a_default_is_marked_and_the_walks_answer_is_not_shown() -> None:
    said = diagnosis_of_run(sample.run(), workload(source="chat.txt"), defaulted=("output_tokens",))
    assert said.request
    marked = {fact.name: fact.is_default for fact in said.request.facts}
    assert marked == {"prompt": False, "from": False, "cached": False, "output": True, "start": False}
    assert said.measured
    assert "output-tokens" not in {fact.name for fact in said.measured.settings.facts}


def test_the_runs_own_workload_is_asked_about_unless_another_is_given() -> None:
    run = sample.run(workload=workload(16, 200))
    assert diagnosis_of_run(run).verdict == "generation-bound"
    assert diagnosis_of_run(run, workload()).verdict == "prompt-bound"


def test_what_will_not_help_is_said() -> None:
    assert report(2048, 2).futile == (
        "Nothing about the length of the answer will help: writing it is a small part of the wait.",
    )
