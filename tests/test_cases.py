"""Verdicts on cases: those kept here, and public reports where `LLMPHASE_CASES` names their file.

A case is one JSON line: `observed` in the keys of a facts file, `acceptable` verdicts, and for public reports
how far to trust a label. `healthy` is printed as `generation-bound`, others as `unknown`.
"""

from __future__ import annotations

import collections
import importlib
import json
import os
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from reports import diagnosis, rules
from reports.diagnosis import Diagnosis, diagnose
from reports.facts import evidence_from

OWN = Path(__file__).with_name("diagnosis_cases.jsonl")
PRINTED = {"healthy": "generation-bound", "other": "unknown"}
TRUSTED = 0.7
WANTED = 0.9
SURE = 0.8


def read_cases(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


@pytest.fixture(scope="module")
def reported() -> list[dict[str, Any]]:
    path = os.environ.get("LLMPHASE_CASES")
    if not path:
        pytest.skip("LLMPHASE_CASES names no file of public reports")
    return read_cases(Path(path))


def judged(case: dict[str, Any]) -> Diagnosis:
    return diagnose(evidence_from(case["observed"], estimated=case.get("estimated", ())).evidence)


def is_right(case: dict[str, Any], verdict: str) -> bool:
    return verdict in {PRINTED.get(name, name) for name in case["acceptable"]}


def is_hard(case: dict[str, Any]) -> bool:
    """The label can be trusted and the facts suffice."""
    return case["confidence"] >= TRUSTED and not case["underdetermined"]


def share_right(cases: list[dict[str, Any]]) -> float:
    hard = [case for case in cases if is_hard(case)]
    return sum(is_right(case, judged(case).verdict) for case in hard) / len(hard)


@pytest.mark.parametrize("case", read_cases(OWN), ids=lambda case: case["why"])
def test_own_case(case: dict[str, Any]) -> None:
    said = judged(case)
    assert is_right(case, said.verdict), said.sentence


def confusion(cases: list[dict[str, Any]]) -> str:
    """Labels down, verdicts across; a label whose verdict has another name says so."""
    pairs = collections.Counter((case["verdict"], judged(case).verdict) for case in cases)
    said = sorted({verdict for _, verdict in pairs})
    lines = [" " * 18 + "".join(f"{verdict:>18}" for verdict in said)]
    for true in sorted({label for label, _ in pairs}):
        lines.append(f"{true:18}" + "".join(f"{pairs[true, verdict] or '.':>18}" for verdict in said))
    return "\n".join(lines)


def test_public_reports_are_named_right(
    reported: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Prints the table of labels against verdicts: of all cases, then of those that count."""
    hard = [case for case in reported if is_hard(case)]
    share = share_right(reported)
    with capsys.disabled():
        print(f"\n\nAll {len(reported)} cases\n{confusion(reported)}")
        print(f"\n{len(hard)} trusted ones, {share:.0%} right\n{confusion(hard)}")
    assert share >= WANTED


def test_no_wrong_verdict_is_given_as_sure(reported: list[dict[str, Any]]) -> None:
    wrong = [case for case in reported if not is_right(case, judged(case).verdict)]
    sure = {case["id"]: judged(case).confidence for case in wrong if judged(case).confidence > SURE}
    assert sure == {}


def thresholds() -> Iterator[tuple[ModuleType, str, float]]:
    """Every numeric constant of the rules and of the decision, as `module, name, value`."""
    names = [f"reports.rules.{found.name}" for found in pkgutil.iter_modules(rules.__path__)]
    for module in [*map(importlib.import_module, names), diagnosis]:
        for name, value in vars(module).items():
            if name.isupper() and isinstance(value, int | float):
                yield module, name, value


@pytest.mark.parametrize("factor", [0.75, 1.33])
def test_no_threshold_is_set_to_a_hair(
    reported: list[dict[str, Any]], factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moving any one threshold by a third costs few verdicts: none was fitted to single cases."""
    for module, name, value in list(thresholds()):
        with monkeypatch.context() as moved:
            moved.setattr(module, name, value * factor)
            assert share_right(reported) >= WANTED, f"{module.__name__}.{name}"
