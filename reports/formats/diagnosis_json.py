"""A diagnosis as one JSON object, laid out or on one line.

Seconds, tokens, bytes and shares as they are stored; what is not known is null or, in `evidence`, absent.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from reports.advice import Advice
from reports.ceilings import PhaseShare
from reports.diagnosis import Explained
from reports.diagnosis_report import DiagnosisReport
from reports.fact_text import plain_facts, plain_value
from reports.formats import TerminalStyle
from reports.logged import Logged, LoggedRequest
from reports.notices import Notice
from reports.text import clean

SCHEMA_VERSION = 1
"""Of this object. Keys may be added without raising it."""


def render(report: DiagnosisReport, style: TerminalStyle) -> str:
    """The object over many lines."""
    del style
    return json.dumps(document(report), indent=2, allow_nan=False) + "\n"


def render_line(report: DiagnosisReport, style: TerminalStyle) -> str:
    """The object on one line."""
    del style
    return json.dumps(document(report), allow_nan=False) + "\n"


def document(report: DiagnosisReport) -> Mapping[str, Any]:
    """`{"schema_version": 1, "verdict": ...}`. A figure that is no number is not known."""
    found: Mapping[str, Any] = _finite(
        {
            "schema_version": SCHEMA_VERSION,
            "verdict": report.verdict,
            "borderline": report.is_borderline,
            "contributing": list(report.contributing),
            "confidence": report.confidence,
            "phases": dict(report.phases),
            "evidence": plain_facts(report.evidence),
            "unknown": list(report.unknown),
            "remedies": [_remedy(one) for one in report.advice],
            "sentence": " ".join(clean(sentence, limit=2000) for sentence in report.headline),
            "workload": _workload(report),
            "ttft_s": report.ttft_s,
            "wait_s": report.wait_s,
            "decode_tok_s": report.decode_tok_s,
            "crossover_tokens": report.crossover_tokens,
            "ceilings": {share.phase: _ceiling(share) for share in report.ceilings},
            "futile": list(report.futile),
            "turns": [dataclasses.asdict(turn) for turn in report.turns],
            "sources": dict(report.evidence.sources),
            "warnings": [_notice(one) for one in report.notices],
            "run": _run(report),
            "log": _log(report.logged),
        }
        | ({"explain": [_rule(one) for one in report.explain]} if report.explain else {})
    )
    return found


def _workload(report: DiagnosisReport) -> dict[str, Any]:
    evidence, asked = report.evidence, report.workload
    return {
        "prompt_tokens": evidence.n_prompt,
        "cached_tokens": evidence.n_prompt_cached,
        "output_tokens": evidence.n_output,
        "start": evidence.start,
        "turns": asked.turns if asked else None,
        "source": clean(asked.source) if asked else None,
    }


def _remedy(advice: Advice) -> dict[str, Any]:
    remedy, trial = advice.remedy, advice.verified
    return {
        "code": remedy.code,
        "predicted_wait_s": remedy.predicted_wait_s,
        "saved_s": remedy.saved_s,
        "measured_saved_s": advice.measured_saved_s,
        "how": {tool: clean(text) for tool, text in remedy.how.items()},
        "title": clean(remedy.title),
        "low_s": remedy.low_s,
        "high_s": remedy.high_s,
        "saved_share": remedy.saved_share,
        "at_most_s": remedy.at_most_s,
        "basis": clean(remedy.basis),
        "cost": clean(remedy.cost),
        "tried": trial is not None,
        "measured_base_wait_s": trial.base_wait_s if trial else None,
        "measured_wait_s": trial.measured_wait_s if trial else None,
        "measured_low_s": trial.low_s if trial else None,
        "measured_high_s": trial.high_s if trial else None,
        "delivered": advice.is_delivered,
        "problem": clean(trial.problem) if trial and trial.problem else None,
    }


def _ceiling(share: PhaseShare) -> dict[str, Any]:
    return {
        "share": share.share,
        "measured_tok_s": share.measured_tokens_s,
        "allowed_tok_s": share.allowed_tokens_s,
        "prompt_tokens": share.prompt_tokens,
        "reason": share.reason,
    }


def _notice(notice: Notice) -> dict[str, Any]:
    return {"code": notice.code, "text": clean(notice.text, limit=600)}


def _run(report: DiagnosisReport) -> dict[str, Any] | None:
    run = report.measured
    if run is None:
        return None
    return {
        "run_id": run.run_id,
        "started_at": run.started_at,
        "llmphase_version": run.llmphase_version,
        "model_name": run.model_name,
    }


def _log(logged: Logged | None) -> dict[str, Any] | None:
    if logged is None:
        return None
    return {
        "source": logged.source,
        "request": logged.number,
        "n_requests": logged.n_requests,
        "requests": [_request(one) for one in logged.requests],
        "trend": [clean(sentence, limit=600) for sentence in logged.trend],
    }


def _request(one: LoggedRequest) -> dict[str, Any]:
    evidence = one.evidence
    return {
        "number": one.number,
        "source": one.source,
        "label": clean(one.label),
        "line": one.line,
        "verdict": one.verdict,
        "confidence": one.confidence,
        "wait_s": one.wait_s or None,
        "prompt_tokens": evidence.n_prompt,
        "cached_tokens": evidence.n_prompt_cached,
        "output_tokens": evidence.n_output,
        "load_s": evidence.load_s,
        "prefill_s": evidence.prefill_s,
        "decode_s": evidence.decode_s,
        "prefill_tok_s": evidence.prefill_tok_s,
        "decode_tok_s": evidence.decode_tok_s,
        "notes": [clean(note, limit=600) for note in one.notes],
    }


def _rule(one: Explained) -> dict[str, Any]:
    return {
        "code": one.rule.code,
        "stage": one.rule.stage,
        "question": one.rule.question,
        "result": one.result,
        "why": clean(one.text, limit=600),
        "inputs": {number.name: plain_value(number.value) for number in one.inputs},
    }


def _finite(value: Any) -> Any:
    """JSON has no infinity and no not-a-number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value
