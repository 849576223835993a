"""The flat row that csv, json and jsonl share: one per cell and phase, the same columns in the same order.

Column names and order are a promise to other programs: new columns go to the end. None means not known or not
applicable; it is written as nothing (csv) or null (json), never as 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

from probes.records import CellResult, GroupResult, Run
from reports import measured, stats
from reports.notices import Notice, codes_for
from reports.phases import Estimate, PhaseModel
from reports.text import clean

ROWS_SCHEMA_VERSION = 1
Phase = Literal["load", "context", "tokenize", "prefill", "decode", "sampling", "ttft", "request"]
Status = Literal["ok", "failed", "skipped", "predicted"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One phase of one cell. Times are seconds per occurrence of the phase; for `decode` seconds per
    token."""

    run_id: str | None
    """None for another program's file, as is anything else that such a file does not hold."""
    started_at: str | None
    """UTC, ISO 8601."""
    llmphase_version: str | None
    engine_version: str | None
    model_name: str
    """As in the model file, without control characters."""
    architecture: str | None
    quantization: str | None
    model_bytes: int | None
    """Size of all tensors."""
    n_params: int | None
    backend: str | None
    """Device families that hold weights: `CPU`, `CUDA,CPU`."""
    devices: str | None
    """Comma-joined names of the devices that the engine build sees."""
    n_gpu_layers_requested: int | None
    """-1: all; None: left to the engine."""
    n_gpu_layers: int | None
    """Resolved."""
    layers_total: int | None
    """Repeating layers + 1."""
    n_ctx: int | None
    """This and the next four: resolved, or as asked where the load failed."""
    n_batch: int | None
    n_ubatch: int | None
    threads: int | None
    threads_batch: int | None
    flash_attn: str | None
    """Resolved: `enabled` or `disabled`; None where the engine did not say."""
    type_k: str | None
    type_v: str | None
    load_mode: str | None
    phase: Phase
    """`load`: open + tensors + context + first touch; `context`: its creation alone; `ttft`: tokenizing +
    prefill + one draw by the default sampler chain, the load not included; `request`: prompt and answer of
    one test of llama-bench (`-pg`) together."""
    prompt_tokens: int | None
    output_tokens: int | None
    """Decode steps timed in each pass; only for `decode`."""
    depth_tokens: int | None
    """Tokens in the cache when the phase starts."""
    cache_state: str | None
    """Of the model file before a load: `cold`, `partial`, `warm`, `unknown`; only for `load`."""
    status: Status
    """`predicted`: did not fit in the budget; the figures come from the fit of the measured cells."""
    reason: str | None
    """Why it is not `ok`: a code, a colon, words."""
    samples: int | None
    """Samples behind the figures; 0 when nothing was measured, None where a file does not say."""
    median_s: float | None
    ci_low_s: float | None
    """95 % interval of the median (predicted: of one more measurement)."""
    ci_high_s: float | None
    mean_s: float | None
    stddev_s: float | None
    min_s: float | None
    max_s: float | None
    tokens_per_s: float | None
    """Prompt tokens (tokenize, prefill) or one token (decode) over `median_s`."""
    p95_s: float | None
    """Nearest rank, from 20 samples on; for `decode` over all single steps."""
    warnings: str | None
    """Codes of the notices that concern this row, joined by `;`."""
    variant: str | None
    """The sampler chain of a `sampling` row: `default` or `greedy`."""
    bytes_per_token: int | None = None
    """Weight bytes that one generated token reads."""
    made_from: str | None = None
    """Quantization of the file that `--quant` made this one from."""


COLUMNS: tuple[str, ...] = tuple(field.name for field in dataclasses.fields(Row))


def group_rows(run: Run, index: int, model: PhaseModel, notices: tuple[Notice, ...]) -> tuple[Row, ...]:
    """The rows of one load group: loads, context, sampling, then each prompt length by its phases.

    `model` is the group's fit, for what the budget left out; `notices` are the run's, for the `warnings`
    column.
    """
    group = run.groups[index]
    blank = _blank(run, group)
    raw = [*_load_rows(group, blank), *_sampling_rows(group, blank)]
    for cell in _cells(run, group):
        raw += _cell_rows(group, cell, model, blank)
    return tuple(_finished(row, index, notices) for row in raw)


def _blank(run: Run, group: GroupResult) -> Row:
    """A row that knows the run, the model and the settings, and no figure."""
    actual = group.resolved or group.settings
    engine = run.engine
    return Row(
        run_id=run.run_id,
        started_at=run.started_at,
        llmphase_version=run.llmphase_version,
        engine_version=engine.version if engine else None,
        model_name=clean(group.model.name),
        architecture=clean(group.model.architecture),
        quantization=clean(group.model.quantization),
        model_bytes=group.model.model_bytes,
        n_params=group.model.n_params,
        backend=group.resolved.backend if group.resolved else None,
        devices=",".join(device.name for device in engine.devices) if engine else None,
        n_gpu_layers_requested=group.settings.n_gpu_layers,
        n_gpu_layers=group.resolved.n_gpu_layers if group.resolved else None,
        layers_total=group.resolved.layers_total if group.resolved else None,
        n_ctx=actual.n_ctx,
        n_batch=actual.n_batch,
        n_ubatch=actual.n_ubatch,
        threads=actual.threads,
        threads_batch=actual.threads_batch,
        flash_attn=group.resolved.flash_attn if group.resolved else None,
        type_k=group.settings.type_k,
        type_v=group.settings.type_v,
        load_mode=group.settings.load_mode,
        phase="load",
        prompt_tokens=None,
        output_tokens=None,
        depth_tokens=None,
        cache_state=None,
        status="ok",
        reason=None,
        samples=0,
        median_s=None,
        ci_low_s=None,
        ci_high_s=None,
        mean_s=None,
        stddev_s=None,
        min_s=None,
        max_s=None,
        tokens_per_s=None,
        p95_s=None,
        warnings=None,
        variant=None,
        bytes_per_token=group.model.bytes_per_token,
        made_from=clean(group.model.made_from.quantization) if group.model.made_from else None,
    )


def _filled(row: Row, summary: stats.Summary, *, tokens: float = 0, p95_s: float | None = None) -> Row:
    """`row` with a summary's figures; `tokens` are those that one `median_s` handles, 0 for no rate."""
    return dataclasses.replace(
        row,
        samples=summary.n,
        median_s=summary.median,
        ci_low_s=summary.ci_low,
        ci_high_s=summary.ci_high,
        mean_s=summary.mean,
        stddev_s=summary.stddev,
        min_s=summary.min,
        max_s=summary.max,
        tokens_per_s=tokens / summary.median if tokens and summary.median > 0 else None,
        p95_s=p95_s,
    )


def _predicted(row: Row, estimate: Estimate, *, tokens: int) -> Row:
    return dataclasses.replace(
        row,
        status="predicted",
        median_s=estimate.value_s,
        ci_low_s=estimate.low_s,
        ci_high_s=estimate.high_s,
        tokens_per_s=tokens / estimate.value_s if estimate.value_s > 0 else None,
    )


def _load_rows(group: GroupResult, blank: Row) -> Iterator[Row]:
    for state in measured.CACHE_STATES:
        summary = measured.load(group, state)
        if summary:
            p95 = stats.percentile_95([load.total_ns * measured.NS for load in measured.loads(group, state)])
            yield _filled(dataclasses.replace(blank, phase="load", cache_state=state), summary, p95_s=p95)
    if not group.loads and group.status != "ok":
        yield dataclasses.replace(blank, phase="load", status=group.status, reason=group.reason)
    context = measured.context(group)
    if context:
        yield _filled(dataclasses.replace(blank, phase="context"), context)


def _sampling_rows(group: GroupResult, blank: Row) -> Iterator[Row]:
    for chain in ("default", "greedy"):
        values = [draw.duration_ns * measured.NS for draw in group.sampling if draw.chain == chain]
        if values:
            row = dataclasses.replace(blank, phase="sampling", variant=chain)
            yield _filled(row, stats.summarize(values), p95_s=stats.percentile_95(values))


def _cell_rows(group: GroupResult, cell: CellResult, model: PhaseModel, blank: Row) -> Iterator[Row]:
    n = cell.prompt_tokens
    at_length = dataclasses.replace(blank, prompt_tokens=n, depth_tokens=0)
    if n > 0:
        tokenized = measured.tokenize(group, n)
        if tokenized:
            row = dataclasses.replace(at_length, phase="tokenize", depth_tokens=None)
            yield _filled(row, tokenized, tokens=measured.tokenized_tokens(group, n))
        yield _prefill_row(cell, model, dataclasses.replace(at_length, phase="prefill"))
    decode = dataclasses.replace(at_length, phase="decode", depth_tokens=n, output_tokens=cell.output_tokens)
    yield _decode_row(cell, model, decode)
    if n > 0:
        yield _ttft_row(group, cell, model, dataclasses.replace(at_length, phase="ttft"))


def _unmeasured(row: Row, cell: CellResult) -> Row:
    """The row of a cell without samples: its own status, or `skipped` where it is ok and this phase gave
    none."""
    if cell.status == "ok":
        return dataclasses.replace(row, status="skipped", reason=f"unmeasured: no {row.phase} samples")
    return dataclasses.replace(row, status=cell.status, reason=cell.reason)


def is_over_budget(cell: CellResult) -> bool:
    """Whether the time budget left this cell out, so that a prediction may stand in."""
    return cell.status == "skipped" and (cell.reason or "").startswith("budget")


def _prefill_row(cell: CellResult, model: PhaseModel, row: Row) -> Row:
    found = measured.prefill(cell) if cell.status == "ok" else None
    if found:
        p95 = stats.percentile_95(stats.counted(measured.prefill_samples(cell)))
        return _filled(row, found.summary, tokens=cell.prompt_tokens, p95_s=p95)
    row = _unmeasured(row, cell)
    estimate = model.prefill_s(cell.prompt_tokens) if is_over_budget(cell) else None
    return _predicted(row, estimate, tokens=cell.prompt_tokens) if estimate else row


def _decode_row(cell: CellResult, model: PhaseModel, row: Row) -> Row:
    found = measured.decode(cell) if cell.status == "ok" else None
    if found:
        return _filled(row, found.summary, tokens=1, p95_s=stats.percentile_95(measured.inter_token_s(cell)))
    row = _unmeasured(row, cell)
    estimate = None
    if is_over_budget(cell):
        estimate = model.decode_s_per_token(cell.prompt_tokens + max(cell.output_tokens - 1, 0) / 2)
    return _predicted(row, estimate, tokens=1) if estimate else row


def _ttft_row(group: GroupResult, cell: CellResult, model: PhaseModel, row: Row) -> Row:
    found = measured.ttft(group, cell) if cell.status == "ok" else None
    if found:
        return _filled(row, found)
    row = _unmeasured(row, cell)
    estimate = model.prefill_s(cell.prompt_tokens) if is_over_budget(cell) else None
    overhead = measured.first_token_overhead_s(group, cell.prompt_tokens)
    if estimate is None or overhead is None:
        return row
    exact = Estimate(value_s=overhead, low_s=overhead, high_s=overhead)
    return dataclasses.replace(_predicted(row, estimate.plus(exact), tokens=0), tokens_per_s=None)


def _cells(run: Run, group: GroupResult) -> list[CellResult]:
    """The group's cells by length; where it ended before any, each length asked for with the group's
    reason."""
    if group.cells or group.status == "ok":
        return sorted(group.cells, key=lambda cell: cell.prompt_tokens)
    return [
        CellResult(
            prompt_tokens=n,
            output_tokens=run.options.output_tokens,
            status=group.status,
            reason=group.reason,
            samples=(),
        )
        for n in sorted(run.options.prompt_tokens)
    ]


def _finished(row: Row, index: int, notices: tuple[Notice, ...]) -> Row:
    codes = codes_for(notices, group=index, phase=row.phase, prompt_tokens=row.prompt_tokens)
    reason = None if row.reason is None else clean(row.reason)
    return dataclasses.replace(row, reason=reason, warnings=";".join(codes) or None)
