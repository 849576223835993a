"""A comparison as JUnit XML: a suite for each new file, a test case for each cell.

What fails here is what ends the command with exit code 1; a cell too noisy to say is skipped, unless noise is
a failure.
"""

from __future__ import annotations

from xml.etree import ElementTree

from reports import units
from reports.comparison import ComparedCell, Comparison
from reports.comparison_gate import Gate, failure
from reports.comparison_matching import name_of
from reports.comparison_report import ComparisonReport
from reports.formats import TerminalStyle

_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'


def render(report: ComparisonReport, style: TerminalStyle) -> str:
    """`<testsuites>` as CI servers read it; times are the new file's medians, in seconds."""
    del style
    root = ElementTree.Element("testsuites", name="llmphase compare")
    for one in report.comparisons:
        root.append(_suite(one, report.gate))
    for total in ("tests", "failures", "skipped"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    root.set("errors", "0")
    ElementTree.indent(root)
    return _HEAD + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(one: Comparison, gate: Gate) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=f"{name_of(one.new)} against {name_of(one.base)}")
    cases = [_case(cell, gate, one.same_within) for cell in one.cells]
    cases += [_lost_case(text, gate) for text in one.lost]
    suite.extend(cases)
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    suite.set("errors", "0")
    suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    return suite


def _case(cell: ComparedCell, gate: Gate, same_within: float) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", classname=f"llmphase.{cell.phase}", name=cell.named, time=f"{cell.new_s:.9g}"
    )
    problem = failure(cell, gate, same_within)
    if problem:
        ElementTree.SubElement(case, "failure", message=problem)
    elif cell.verdict == "too noisy to say":
        ElementTree.SubElement(case, "skipped", message=f"too noisy to say: {cell.reason}")
    times = f"{units.duration(cell.base_s)} -> {units.duration(cell.new_s)}"
    out = ElementTree.SubElement(case, "system-out")
    out.text = f"{cell.verdict}: {units.change(cell.change)} ({times})"
    return case


def _lost_case(text: str, gate: Gate) -> ElementTree.Element:
    """A cell that the base has and the new file could not measure."""
    case = ElementTree.Element("testcase", classname="llmphase.lost", name=text)
    kind = "failure" if gate.noise_is_failure else "skipped"
    ElementTree.SubElement(case, kind, message="not measured again")
    return case
