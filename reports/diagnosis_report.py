"""The diagnosis of one request turned into all that a renderer or a gate needs.

Pure: the same evidence gives the same report. A fresh run, a saved one, another tool's log and a facts file
all come through here; without a run there is no model, no machine and no ceiling to speak of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from probes.records import Run, Workload
from reports import diagnosis_sections as sections
from reports.advice import Advice, Verified, advise, remedies_table, savings_sentence, ways
from reports.ceilings import CeilingReport, PhaseShare, assess
from reports.charts import Share
from reports.diagnosis import Explained, diagnose
from reports.evidence import Evidence
from reports.logged import Logged
from reports.notices import Notice
from reports.parts import Facts, Table
from reports.phase_diagram import PhaseMap, calibrated, phase_map
from reports.phases import PhaseModel, fit_phases
from reports.remedies import Remedy, futile, remedies
from reports.remedies.base import USUAL_OUTPUT_TOKENS
from reports.report import Report, build_report
from reports.rules import Verdict
from reports.run_evidence import run_evidence
from reports.turns import Turn, turns_of, turns_table
from reports.waits import Waits, waits_of

__all__ = ["DiagnosisReport", "Measured", "Verified", "build_diagnosis_report", "diagnosis_of_run"]

_WALK_OUTPUT = "output-tokens"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the run that the evidence comes from says about itself."""

    run_id: str | None
    started_at: str | None
    llmphase_version: str | None
    origin: str
    """The three in one sentence."""
    model_name: str
    model_subtitle: str
    settings: Facts
    machine: Facts
    notices: tuple[Notice, ...]
    """What to know before trusting the figures."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisReport:
    """Everything that a diagnosis says. Seconds and tokens per second; None: not known."""

    verdict: Verdict
    is_borderline: bool
    contributing: tuple[Verdict, ...]
    confidence: float
    """0 to 1."""
    ttft_s: float | None
    """Time to the first token: the load where it is part of this wait, tokenizing, prefill and one draw."""
    wait_s: float | None
    """The whole wait, the load where it is part of it; None unless prefill and decode are known."""
    decode_tok_s: float | None
    phases: Mapping[str, float]
    """Seconds of each known part of the wait."""
    crossover_tokens: int | None
    """The shortest answer that takes as long to write as this prompt to read."""
    workload: Workload | None
    """The request as it was asked for; None for evidence without a run."""
    evidence: Evidence
    unknown: tuple[str, ...]
    """Facts that some rule could not do without."""
    advice: tuple[Advice, ...]
    """Remedies by seconds saved, with their trials."""
    futile: tuple[str, ...]
    """What will not help."""
    ceilings: tuple[PhaseShare, ...]
    """Of each phase the measured cell nearest to the request; empty where no ceiling was measured."""
    turns: tuple[Turn, ...]
    """Of a chat; empty for a single request."""
    explain: tuple[Explained, ...]
    """Every rule, where that was asked for."""
    measured: Measured | None
    """None for evidence without a run."""
    logged: Logged | None = None
    """Of evidence from a log or a facts file."""

    headline: tuple[str, ...]
    """The answer: what one waits for, then what saves most."""
    standing: tuple[str, ...]
    """How sure that is, what else is true, what would change it."""
    wait_parts: tuple[Share, ...]
    wait_title: str
    request: Facts | None
    phase_map: PhaseMap | None
    turns_table: Table | None
    evidence_table: Table | None
    ceiling_sentences: tuple[str, ...]
    remedies_table: Table | None
    ways: tuple[Facts, ...]
    """How to apply the first remedies."""
    unknown_sentence: str
    rules_table: Table | None

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What to know before trusting the figures."""
        return tuple(notice for origin in (self.measured, self.logged) if origin for notice in origin.notices)

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """The remedies alone, in order."""
        return tuple(one.remedy for one in self.advice)


def diagnosis_of_run(
    run: Run,
    workload: Workload | None = None,
    verified: Sequence[Verified] = (),
    explain: bool = False,
    *,
    index: int = 0,
    defaulted: Collection[str] = (),
) -> DiagnosisReport:
    """The diagnosis of a request on a load group of a run; `workload` defaults to the run's own."""
    asked = dataclasses.replace(run, workload=workload) if workload else run
    model = fit_phases(run.groups[index])
    evidence = run_evidence(asked, index, model=model)
    return build_diagnosis_report(
        asked,
        evidence,
        index=index,
        model=model,
        verified=verified,
        explain=explain,
        defaulted=defaulted,
    )


def build_diagnosis_report(
    run: Run | None,
    evidence: Evidence,
    *,
    index: int = 0,
    model: PhaseModel | None = None,
    verified: Sequence[Verified] = (),
    explain: bool = False,
    defaulted: Collection[str] = (),
) -> DiagnosisReport:
    """The report on this evidence.

    `run` is what it comes from, None for a log or facts; `model` is the fit of its group `index`. `defaulted`
    has the names of `Workload` fields that took a default.
    """
    diagnosis = diagnose(evidence)
    waits = waits_of(evidence)
    costs = calibrated(evidence, model, waits)
    around = phase_map(evidence, costs)
    crossover = around.crossover_tokens(around.evaluated_tokens) if around else None
    advice = advise(remedies(evidence, model), verified)
    workload = run.workload if run else None
    turns = turns_of(workload, costs) if workload else ()
    found = assess(run.groups[index], run.ceilings) if run and run.ceilings else None
    ttft_s, wait_s = _ttft_s(evidence, waits), _wait_s(waits)
    explained = diagnosis.explain if explain else ()
    savings = savings_sentence(advice, waits.total_s, diagnosis.verdict)
    return DiagnosisReport(
        verdict=diagnosis.verdict,
        is_borderline=diagnosis.is_borderline,
        contributing=diagnosis.contributing,
        confidence=diagnosis.confidence,
        ttft_s=ttft_s,
        wait_s=wait_s,
        decode_tok_s=_decode_tok_s(evidence),
        phases=waits.parts,
        crossover_tokens=crossover,
        workload=workload,
        evidence=evidence,
        unknown=diagnosis.unknown,
        advice=advice,
        futile=futile(evidence),
        ceilings=_ceilings(found, evidence),
        turns=turns,
        explain=explained,
        measured=_measured(build_report(run), index, found) if run else None,
        headline=(sections.answer(diagnosis), *([savings] if savings else [])),
        standing=sections.standing(diagnosis, crossover),
        wait_parts=sections.wait_shares(waits),
        wait_title=sections.wait_title(evidence, wait_s, ttft_s),
        request=sections.request_facts(
            evidence,
            source=workload.source if workload else None,
            turns=workload.turns if workload else 1,
            defaulted=defaulted,
        ),
        phase_map=around,
        turns_table=turns_table(turns, workload, evidence.n_ctx) if workload else None,
        evidence_table=sections.evidence_table(diagnosis.numbers),
        ceiling_sentences=sections.ceiling_sentences(found, diagnosis, evidence),
        remedies_table=remedies_table(
            advice, assumed_tokens=USUAL_OUTPUT_TOKENS if evidence.n_output is None else None
        ),
        ways=ways(advice, diagnosis.verdict),
        unknown_sentence=sections.unknown_sentence(diagnosis.unknown),
        rules_table=sections.rules_table(explained),
    )


def _ttft_s(evidence: Evidence, waits: Waits) -> float | None:
    """None without prefill, or without a load that is part of the wait; tokenizing and the first draw count
    as far as they are known."""
    if waits.prefill_s is None or (evidence.start in ("warm", "cold") and waits.load_s is None):
        return None
    draw = (waits.sampling_s or 0.0) / max(evidence.n_output or 1, 1)
    return (waits.load_s or 0.0) + (waits.tokenize_s or 0.0) + waits.prefill_s + draw


def _wait_s(waits: Waits) -> float | None:
    return None if waits.prefill_s is None or waits.decode_s is None else waits.total_s


def _decode_tok_s(evidence: Evidence) -> float | None:
    step_s = evidence.decode_step_s
    return None if step_s is None else 1 / step_s


def _ceilings(found: CeilingReport | None, evidence: Evidence) -> tuple[PhaseShare, ...]:
    if found is None:
        return ()
    of_phases = (sections.nearest(shares, evidence.n_prompt) for shares in (found.prefill, found.decode))
    return tuple(one for one in of_phases if one is not None)


def _measured(profile: Report, index: int, found: CeilingReport | None) -> Measured:
    """The parts of the profile report that a diagnosis shows too; the walk's output length, beside the
    request's own, would mislead."""
    model = profile.models[index]
    kept = tuple(fact for fact in model.settings.facts if fact.name != _WALK_OUTPUT)
    over = found.notices if found else ()
    return Measured(
        run_id=profile.run_id,
        started_at=profile.started_at,
        llmphase_version=profile.llmphase_version,
        origin=profile.origin,
        model_name=model.name,
        model_subtitle=model.subtitle,
        settings=dataclasses.replace(model.settings, facts=kept),
        machine=profile.machine,
        notices=(*(n for n in profile.notices if n.group in (None, index)), *over),
    )
