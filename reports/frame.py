"""The only pandas module: flat rows as a data frame and as CSV."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reports.rows import COLUMNS, Row
from reports.text import csv_safe

if TYPE_CHECKING:
    import pandas as pd

_TEXT = frozenset(
    {
        "run_id",
        "started_at",
        "llmphase_version",
        "engine_version",
        "model_name",
        "architecture",
        "quantization",
        "backend",
        "devices",
        "flash_attn",
        "type_k",
        "type_v",
        "load_mode",
        "phase",
        "cache_state",
        "status",
        "reason",
        "warnings",
        "variant",
        "made_from",
    }
)
_INTEGERS = frozenset(
    {
        "model_bytes",
        "n_params",
        "n_gpu_layers_requested",
        "n_gpu_layers",
        "layers_total",
        "n_ctx",
        "n_batch",
        "n_ubatch",
        "threads",
        "threads_batch",
        "prompt_tokens",
        "output_tokens",
        "depth_tokens",
        "samples",
        "bytes_per_token",
    }
)


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """One line per row, columns in order; integers stay integers (`Int64`), missing is `<NA>`, never 0."""
    import pandas as pd

    # As objects: with a missing value among them integers would become floats, and large ones others.
    records = [dataclasses.asdict(row) for row in rows]
    table = pd.DataFrame(records, columns=list(COLUMNS), dtype=object)
    typed: pd.DataFrame = table.astype({name: _kind(name) for name in COLUMNS})
    return typed


def _kind(column: str) -> str:
    if column in _TEXT:
        return "string"
    return "Int64" if column in _INTEGERS else "Float64"


def parquet(rows: Sequence[Row]) -> bytes:
    """The rows as a Parquet file. Raises ImportError where no Parquet engine is installed."""
    out = io.BytesIO()
    frame(rows).to_parquet(out, index=False)
    return out.getvalue()


def csv(rows: Sequence[Row]) -> str:
    """CSV with a head line; text is made safe for spreadsheets, missing is empty, figures have nine
    digits."""
    table = frame(rows)
    for name in _TEXT:
        table[name] = table[name].map(csv_safe, na_action="ignore")
    return str(table.to_csv(index=False, float_format="%.9g", lineterminator="\n"))
