"""Single questions to a worker of its own, the worker taken out."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import sample_runs as sample
from tiny_models import write_tiny_llama

from probes import inquiries
from probes.ceiling_cache import CACHE_FOLDER_VARIABLE
from probes.gguf_header import read_model_facts
from probes.matrix_shapes import matrix_shapes
from probes.messages import CeilingsMeasured
from probes.records import WeightMatrices


def test_ceilings_that_can_not_be_kept_are_not_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    measured = (sample.ceiling(),)
    monkeypatch.setattr(inquiries, "_ask", lambda *_arguments: CeilingsMeasured(ceilings=measured))
    monkeypatch.setattr(inquiries, "is_worth_keeping", lambda _ceilings: True)
    (tmp_path / "in-the-way").touch()
    monkeypatch.setenv(CACHE_FOLDER_VARIABLE, str(tmp_path / "in-the-way"))
    run = sample.run()
    model = read_model_facts(write_tiny_llama(tmp_path / "model.gguf"))
    group = dataclasses.replace(run.groups[0], model=model)
    assert run.engine is not None
    matrices = (WeightMatrices(quantization=None, shapes=matrix_shapes(model)),)
    assert inquiries.measure_ceilings_of(group, matrices, run.machine, run.engine) == measured
