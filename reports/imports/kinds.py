"""What a file of results is: a saved run, an export of ours, or another program's."""

from __future__ import annotations

import json
import re
from typing import Literal

from probes.errors import UsageError
from reports.imports.llama_bench import is_llama_bench

FileKind = Literal["run", "export-json", "export-jsonl", "export-csv", "llama-bench"]

_RUN_START = re.compile(r'\s*\{\s*"schema_version"\s*:\s*\d+\s*,\s*"run_id"\s*:\s*"')
_EXPORT_START = re.compile(r'\s*\{\s*"schema_version"\s*:\s*\d+\s*,\s*"run"\s*:\s*\{')
_ROW_LINE = re.compile(r'\s*\{\s*"run_id"\s*:.*"median_s"\s*:')
_CSV_HEAD = re.compile(r"\s*(?=[^\n]*\bmedian_s\b)(?=[^\n]*\bphase\b)[\w, ]+\r?(?:\n|$)")


def kind_of(text: str) -> FileKind:
    """The kind of a file by its text. Raises UsageError: `empty-file`, `unknown-file`."""
    if not text.strip():
        raise UsageError("it is empty: make it again", reason="empty-file")
    if _RUN_START.match(text):
        return "run"
    if _EXPORT_START.match(text):
        return "export-json"
    if _CSV_HEAD.match(text):
        return "export-csv"
    if _ROW_LINE.match(text):
        return "export-jsonl"
    return "llama-bench" if is_llama_bench(text) else _kind_of_object(text)


def _kind_of_object(text: str) -> FileKind:
    """For JSON whose keys were put in another order by another program."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and "run_id" in document and "groups" in document:
        return "run"
    if isinstance(document, dict) and isinstance(document.get("rows"), list):
        return "export-json"
    if isinstance(document, dict) and "verdict" in document:
        raise UsageError(
            "it is a diagnosis, which holds conclusions and no measurements: give the saved run",
            reason="unknown-file",
        )
    raise UsageError(
        "it is neither a saved run, nor an export of `llmphase profile` (csv, json, jsonl), nor output of"
        " llama-bench (json, jsonl, csv, sql, md): `llmphase runs` lists the saved runs",
        reason="unknown-file",
    )
