"""The forms of a diagnosis: what other programs rely on, and text that is harmless and fits."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
import sample_runs as sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from probes.errors import UsageError
from probes.records import Neighbour, Workload
from reports.diagnosis_report import (
    DiagnosisReport,
    Verified,
    build_diagnosis_report,
    diagnosis_of_run,
)
from reports.evidence import Evidence, OtherKernels, PlacementOption
from reports.facts import evidence_from
from reports.formats import DIAGNOSIS_FORMATS, FORMATS, TerminalStyle

EVIL = "=cmd|' /C calc'!A0 [red]evil\x1b[31m\x07\u202ename[/red]"
PLAIN = TerminalStyle(width=80, colour=False, unicode=True)


def workload(**changes: Any) -> Workload:
    return sample.workload(**{"start": "cold", "turns": 3, "source": EVIL, **changes})


def full(*, explain: bool = True) -> DiagnosisReport:
    """Everything at once: trials, turns, neighbours with odd names, all rules."""
    run = sample.run(
        sample.group(facts=sample.model(name=EVIL, quantization=EVIL)),
        neighbours=(Neighbour(name=EVIL, cpus=0.3),),
        warnings=(EVIL,),
    )
    trials = (
        Verified(
            code="prefix-cached",
            measured_wait_s=1.0,
            low_s=0.9,
            high_s=1.1,
            base_wait_s=7.0,
            problem=None,
        ),
        Verified(
            code="prompt-half",
            measured_wait_s=None,
            low_s=None,
            high_s=None,
            base_wait_s=7.0,
            problem=EVIL,
        ),
    )
    return diagnosis_of_run(run, workload(), verified=trials, explain=explain)


def text(form: str, report: DiagnosisReport | None = None, style: TerminalStyle = PLAIN) -> str:
    return DIAGNOSIS_FORMATS[form].render(report or full(), style)


def test_names_and_endings_are_those_of_a_profile() -> None:
    assert {name: one.endings for name, one in DIAGNOSIS_FORMATS.items()} == {
        name: one.endings for name, one in FORMATS.items() if not name.startswith("llama-bench-")
    }


# --- json ----------------------------------------------------------------------------------------


def test_json_has_the_agreed_keys_first_and_in_order() -> None:
    found = json.loads(text("json"))
    assert list(found)[:9] == [
        "schema_version",
        "verdict",
        "borderline",
        "contributing",
        "confidence",
        "phases",
        "evidence",
        "unknown",
        "remedies",
    ]
    assert {"sentence", "workload", "crossover_tokens", "ceilings", "warnings", "explain"} <= set(found)
    assert list(found["remedies"][0])[:5] == [
        "code",
        "predicted_wait_s",
        "saved_s",
        "measured_saved_s",
        "how",
    ]
    assert (found["schema_version"], found["verdict"], found["borderline"]) == (1, "prompt-bound", False)
    assert found["phases"]["load"] == pytest.approx(0.45)
    assert found["workload"]["turns"] == 3


def test_json_tells_trials_apart() -> None:
    by_code = {one["code"]: one for one in json.loads(text("json"))["remedies"]}
    cached, half, output = (by_code[code] for code in ("prefix-cached", "prompt-half", "output-half"))
    assert (cached["measured_saved_s"], cached["delivered"], cached["tried"]) == (6.0, True, True)
    assert (half["measured_saved_s"], half["delivered"], half["tried"]) == (None, None, True)
    assert (output["measured_saved_s"], output["problem"], output["tried"]) == (None, None, False)


def test_json_keeps_units_and_leaves_out_what_is_not_known() -> None:
    evidence = json.loads(text("json"))["evidence"]
    assert evidence["model_bytes"] == 96_595_200
    assert evidence["n_prompt"] == 2048
    assert evidence["gpu_present"] is False
    assert evidence["neighbours"][0]["cpus"] == 0.3
    assert "gpu_clock_hz" not in evidence
    assert None not in evidence.values()


def test_facts_that_are_records_have_words_and_keys_of_their_own() -> None:
    evidence = Evidence(
        n_prompt=100,
        prefill_s=2.0,
        placement_options=(
            PlacementOption(way="context", layers=20, setting=4096, decode_step_s=0.012, prefill_s=None),
        ),
        other_quantizations=(
            OtherKernels(
                name="Q3_K_M",
                step_now_s=0.008,
                step_then_s=0.006,
                prompt_token_now_s=0.003,
                prompt_token_then_s=0.0015,
            ),
        ),
        neighbours=(Neighbour(name="=other", cpus=1.5),),
    )
    report = build_diagnosis_report(None, evidence)
    found = json.loads(text("json", report))["evidence"]
    assert found["placement_options"][0] == {
        "way": "context",
        "layers": 20,
        "setting": 4096,
        "decode_step_s": 0.012,
        "prefill_s": None,
    }
    assert found["other_quantizations"][0]["step_then_s"] == 0.006
    assert found["neighbours"] == [{"name": "=other", "cpus": 1.5}]
    words = {row["code"]: row["value"] for row in rows(report) if row["kind"] == "evidence"}
    assert words["placement_options"] == "context for 20 layers, 12.0 ms a token"
    assert words["other_quantizations"] == "Q3_K_M 6.00 ms a token, 1.50 ms a prompt token"


def test_rules_are_explained_only_when_asked() -> None:
    assert "explain" not in json.loads(text("json", full(explain=False)))
    rules = {one["code"]: one for one in json.loads(text("json"))["explain"]}
    assert rules["phase-share"]["result"] == "fired"
    assert rules["phase-share"]["inputs"]["n_output"] == 100


def test_a_line_is_the_same_object() -> None:
    line = text("jsonl")
    assert line.count("\n") == 1
    assert json.loads(line) == json.loads(text("json"))


# --- csv -----------------------------------------------------------------------------------------


def rows(report: DiagnosisReport | None = None) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text("csv", report))))


def test_csv_rows_have_their_kind_value_and_unit() -> None:
    found = {(row["kind"], row["code"]): row for row in rows()}
    assert found["verdict", "prompt-bound"]["unit"] == "confidence"
    assert found["verdict", "prompt-bound"]["text"].startswith("Prompt-bound: ")
    assert found["phase", "load"] | {"text": ""} == {
        "kind": "phase",
        "code": "load",
        "value": "0.45",
        "unit": "s",
        "saved_s": "",
        "measured_saved_s": "",
        "text": "",
    }
    assert found["remedy", "prefix-cached"]["measured_saved_s"] == "6"
    assert found["remedy", "output-half"]["measured_saved_s"] == ""
    assert found["evidence", "model_bytes"]["value"] == "96595200"
    assert (found["evidence", "model_bytes"]["unit"], found["evidence", "model_bytes"]["text"]) == (
        "bytes",
        "header",
    )
    assert found["evidence", "gpu_present"]["value"] == "false"
    assert ("unknown", "gpu_clock_hz") in found


def test_no_csv_cell_starts_a_formula() -> None:
    for row in rows():
        for cell in row.values():
            assert not cell.startswith(("=", "+", "@", "\t"))
    names = next(row for row in rows() if row["code"] == "quantization")
    assert names["value"].startswith("'=cmd")


def test_a_wait_that_is_not_known_is_an_empty_cell() -> None:
    report = build_diagnosis_report(None, evidence_from({"decode_tok_s": 3.0}).evidence)
    found = {(row["kind"], row["code"]): row["value"] for row in rows(report)}
    assert found["total", "wait"] == ""
    assert found["total", "decode"] == "3"


# --- terminal and markdown -----------------------------------------------------------------------


@pytest.mark.parametrize("width", [40, 60, 80, 140])
@pytest.mark.parametrize("unicode", [True, False])
def test_every_line_fits_and_is_harmless(width: int, unicode: bool) -> None:
    page = text("terminal", style=TerminalStyle(width=width, colour=False, unicode=unicode))
    for line in page.splitlines():
        assert cell_len(line) <= width
    assert not any(sign in page for sign in "\x1b\x07\u202e")
    assert unicode or page.isascii()
    assert "[red]evil" in page


def test_colour_codes_are_ours_alone() -> None:
    page = text("terminal", style=TerminalStyle(width=100, colour=True, unicode=True))
    assert "\x1b[" in page
    assert "\x1b[31mname" not in page
    assert "\x07" not in page


def test_the_terminal_report_goes_from_the_answer_to_its_grounds_to_what_to_do() -> None:
    page = text("terminal")
    places = [
        page.index(part)
        for part in (
            "Prompt-bound: ",
            "The wait: 7.22 s, the load from disk included",
            "The request",
            "Phase diagram",
            "Turn by turn",
            "What the verdict rests on",
            "What would shorten the wait",
            "How to keep the beginning of the prompt",
            "Not known, so that",
            "To know before trusting",
            "Every rule",
            "Settings",
            "Machine",
        )
    ]
    assert places == sorted(places)


def test_markdown_tables_have_as_many_cells_as_columns() -> None:
    page = text("markdown")
    assert page.startswith("# Diagnosis: prompt-bound\n")
    width = 0
    for line in page.splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        bars = line.replace("\\|", "").count("|")
        assert width in (0, bars)
        width = bars
    assert "\x1b" not in page
    assert "\\[red\\]" in page
    assert page.count("```") == 2


SECONDS = ("prefill_s", "decode_s", "load_s", "sampling_s", "tokenize_s", "total_s")
RATES = ("prefill_tok_s", "decode_tok_s", "gpu_bandwidth_bytes_s", "memory_bandwidth_bytes_s")
COUNTS = ("n_prompt", "n_prompt_cached", "n_output", "model_bytes", "gpu_memory_bytes", "threads")


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.fixed_dictionaries(
        {},
        optional={name: st.floats(0, 1e7).map(lambda s: round(s, 6)) for name in SECONDS}
        | {name: st.floats(1e-3, 1e12) for name in RATES}
        | {name: st.integers(1, 10**7) for name in COUNTS},
    )
)
def test_any_facts_give_figures_or_gaps_and_no_error(facts: dict[str, float]) -> None:
    try:
        evidence = evidence_from(facts).evidence
    except UsageError:
        return
    report = build_diagnosis_report(None, evidence, explain=True)
    for form in DIAGNOSIS_FORMATS:
        page = text(form, report).lower()
        assert " nan" not in page
        assert " inf " not in page
    assert json.loads(text("json", report))["schema_version"] == 1
