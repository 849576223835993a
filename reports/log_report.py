"""The diagnosis of a log: every request judged, the one that waited longest in full, and the trend."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from reports import datasheet, units
from reports.diagnosis import diagnose
from reports.diagnosis_report import DiagnosisReport, build_diagnosis_report
from reports.evidence import Evidence
from reports.facts import FactsRead
from reports.log_evidence import Given, compared, missing, request_evidence, wait_text
from reports.log_trend import trend
from reports.logged import Logged, LoggedRequest
from reports.logs import LogRead, Request
from reports.notices import Notice
from reports.parts import Column, Table
from reports.text import clean
from reports.waits import waits_of

_MOST_ROWS = 12
_ABSENT = "-"
_PLACEMENT = ("layers_on_gpu", "weights_on_gpu_bytes")


def build_log_report(read: LogRead, given: Given, *, explain: bool = False) -> DiagnosisReport | None:
    """The report on a log; None where it tells neither a phase's time nor where the weights lie."""
    requests = read.requests or _placement_alone(read)
    if not requests:
        return None
    reads = tuple(request_evidence(request, given) for request in requests)
    is_series = all(request.is_series for request in requests)
    if is_series:
        reads = compared(reads)
    judged = [_judged(read, *one) for one in zip(range(len(requests)), requests, reads, strict=True)]
    main = max(range(len(judged)), key=lambda index: judged[index].wait_s)
    evidence = reads[main].evidence
    report = build_diagnosis_report(None, evidence, explain=explain)
    logged = Logged(
        source=requests[main].source,
        number=judged[main].number,
        n_requests=max(read.n_requests, 1),
        requests=tuple(judged),
        table=_table(judged, main),
        trend=trend([one.evidence for one in reads]) if is_series else (),
        notices=tuple(_notices(read, requests[main], reads[main], judged, main)),
    )
    return dataclasses.replace(report, logged=logged)


def build_facts_report(read: FactsRead, *, explain: bool = False) -> DiagnosisReport:
    """The report on a facts file."""
    report = build_diagnosis_report(None, read.evidence, explain=explain)
    notices = [_corrected(note) for note in read.notes] + list(_from_data_sheet(read.evidence))
    logged = Logged(
        source="facts",
        number=None,
        n_requests=1,
        requests=(),
        table=None,
        trend=(),
        notices=tuple(notices),
    )
    return dataclasses.replace(report, logged=logged)


def _placement_alone(read: LogRead) -> tuple[Request, ...]:
    """Loader lines without timings tell where the weights lie, which may be the whole answer."""
    if not any(name in read.load.facts for name in _PLACEMENT):
        return ()
    expected = ("n_prompt", "prefill_s", "n_output", "decode_s")
    return (
        Request(
            source="llama.cpp loader lines",
            line=read.n_lines,
            label="",
            facts={},
            expected=expected,
            load=read.load,
        ),
    )


def _judged(log: LogRead, index: int, request: Request, read: FactsRead) -> LoggedRequest:
    """Requests between the first and the last ones kept are counted."""
    found = diagnose(read.evidence)
    is_last_half = log.n_left_out and index >= len(log.requests) // 2
    return LoggedRequest(
        number=index + 1 + (log.n_left_out if is_last_half else 0),
        source=request.source,
        label=request.label,
        line=request.line,
        verdict=found.verdict,
        confidence=found.confidence,
        wait_s=waits_of(read.evidence).total_s,
        evidence=read.evidence,
        notes=read.notes,
    )


# --- the table -----------------------------------------------------------------------------------


def _table(judged: Sequence[LoggedRequest], main: int) -> Table | None:
    if len(judged) < 2:
        return None
    shown = _shown(len(judged), main)
    rows = tuple(_row(judged[index], is_main=index == main) for index in shown)
    left = len(judged) - len(shown)
    return Table(
        title="Requests in the log",
        columns=(
            Column(title="#"),
            Column(title="prompt"),
            Column(title="cached"),
            Column(title="output"),
            Column(title="prefill"),
            Column(title="decode"),
            Column(title="tok/s"),
            Column(title="wait"),
            Column(title="verdict", numeric=False),
            Column(title="name", numeric=False, wide=True),
        ),
        rows=rows,
        notes=(
            *([f"{units.count(left)} more are not shown; --format json has them."] if left else []),
            "* the request that is diagnosed: the longest wait.",
        ),
    )


def _shown(n: int, main: int) -> list[int]:
    """All, or evenly spaced ones with both ends and the main one."""
    if n <= _MOST_ROWS:
        return list(range(n))
    spaced = {round(i * (n - 1) / (_MOST_ROWS - 2)) for i in range(_MOST_ROWS - 1)}
    return sorted(spaced | {main})


def _row(one: LoggedRequest, *, is_main: bool) -> tuple[str, ...]:
    evidence, waits = one.evidence, waits_of(one.evidence)
    rate = None if evidence.decode_step_s is None else 1 / evidence.decode_step_s
    return (
        f"{'*' if is_main else ''}{units.count(one.number)}",
        _count(evidence.n_prompt),
        _count(evidence.n_prompt_cached),
        _count(evidence.n_output),
        _ABSENT if waits.prefill_s is None else units.duration(waits.prefill_s),
        _ABSENT if waits.decode_s is None else units.duration(waits.decode_s),
        _ABSENT if rate is None else units.rate(rate),
        wait_text(one.wait_s),
        one.verdict,
        clean(one.label, limit=30),
    )


def _count(number: int | None) -> str:
    return _ABSENT if number is None else units.count(number)


# --- notices -------------------------------------------------------------------------------------


def _notices(
    log: LogRead, request: Request, read: FactsRead, judged: Sequence[LoggedRequest], main: int
) -> Iterator[Notice]:
    yield Notice(code="log", text=_origin(request, judged, main))
    if log.n_left_out:
        yield Notice(
            code="log-requests-left-out",
            text=f"Of {units.count(log.n_requests)} requests the first and the last"
            f" {units.count(len(log.requests) // 2)} are judged; the trend counts these.",
        )
    for note in log.notes:
        yield Notice(code="log-row-left-out", text=_sentence(note))
    for note in read.notes:
        yield _corrected(note)
    for text in missing(request, read.evidence):
        yield Notice(code="log-not-told", text=text)
    yield from _from_data_sheet(read.evidence)


def _origin(request: Request, judged: Sequence[LoggedRequest], main: int) -> str:
    text = f"Read as {request.source}, up to line {units.count(request.line)}: not measured here"
    if len(judged) > 1:
        text += f"; this is request {judged[main].number}, the one that waited longest"
    return f"{text}."


def _corrected(note: str) -> Notice:
    return Notice(code="corrected", text=_sentence(note))


def _sentence(note: str) -> str:
    text = clean(note, limit=600)
    return f"{text[:1].upper()}{text[1:]}."


def _from_data_sheet(evidence: Evidence) -> Iterator[Notice]:
    """A roof that was not measured is the maker's."""
    bandwidth = evidence.gpu_bandwidth_bytes_s
    if bandwidth is None or evidence.sources.get("gpu_bandwidth_bytes_s") != "data sheet":
        return
    rows = datasheet.rows_of(evidence.gpu_name or "")
    where = f" ({', '.join(dict.fromkeys(row.origin for row in rows))})" if rows else ""
    name = f" of {clean(evidence.gpu_name, limit=60)}" if evidence.gpu_name else ""
    yield Notice(
        code="data-sheet",
        text=f"The memory bandwidth{name}, {bandwidth / 1e9:,.0f} GB/s, is the maker's figure{where}: nothing"
        " was measured. Programs reach 60 to 90 % of it.",
    )
