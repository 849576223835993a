"""Measured ceilings are kept per machine and build, and a file that is no use is as good as none."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import sample_runs as sample

from probes.ceiling_cache import (
    CACHE_FOLDER_VARIABLE,
    CeilingCache,
    CeilingKey,
    cache_folder,
    is_worth_keeping,
)
from probes.errors import UnmeasurableError
from probes.messages import MeasureCeilings
from probes.records import KernelRate, MatrixShape

ASKED = MeasureCeilings(
    shapes=(MatrixShape(rows=1536, columns=576, weight_type="Q4_1", per_token=60, in_model=60),),
    threads=2,
    batch_tokens=512,
    weight_buffers=("CPU_Mapped",),
    memory_bytes=None,
)
KEY = CeilingKey(
    cpu_name="Example CPU",
    usable_cpus=2,
    devices=("CPU: Example CPU",),
    engine_version="llama-cpp-python 0.3.36",
    engine_commit="6d18ec8",
    asked=ASKED,
)
CEILING = sample.ceiling(
    rates=(
        KernelRate(
            rows=8192, columns=4096, batch=1, weight_type="Q4_1", seconds=0.0015, weight_bytes=20_971_520
        ),
    ),
)


@pytest.fixture
def cache(tmp_path: Path) -> CeilingCache:
    return CeilingCache(tmp_path / "ceilings")


def only_file(cache: CeilingCache) -> Path:
    (path,) = cache.folder.iterdir()
    return path


def test_what_was_saved_is_loaded(cache: CeilingCache) -> None:
    assert cache.load(KEY) is None
    cache.save(KEY, (CEILING,))
    assert cache.load(KEY) == (CEILING,)


@pytest.mark.parametrize(
    "change",
    [
        {"cpu_name": None},
        {"usable_cpus": 1},
        {"devices": ()},
        {"engine_version": "llama-cpp-python 0.3.37"},
        {"engine_commit": None},
        {"asked": dataclasses.replace(ASKED, threads=1)},
        {"asked": dataclasses.replace(ASKED, batch_tokens=256)},
        {"asked": dataclasses.replace(ASKED, weight_buffers=("CPU_REPACK",))},
        {"asked": dataclasses.replace(ASKED, shapes=())},
        {"asked": dataclasses.replace(ASKED, other_shapes=ASKED.shapes)},
        {"asked": dataclasses.replace(ASKED, formats=("Q8_0",))},
    ],
)
def test_another_machine_build_or_setting_has_ceilings_of_its_own(
    cache: CeilingCache, change: dict[str, object]
) -> None:
    cache.save(KEY, (CEILING,))
    other = dataclasses.replace(KEY, **change)  # type: ignore[arg-type]
    assert cache.load(other) is None
    cache.save(other, ())
    assert cache.load(KEY) == (CEILING,)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff\xfe", b'{"format": 1}', b"[" * 100_000, b"null"],
)
def test_a_broken_file_is_measured_anew(cache: CeilingCache, content: bytes) -> None:
    cache.save(KEY, (CEILING,))
    only_file(cache).write_bytes(content)
    assert cache.load(KEY) is None
    cache.save(KEY, (CEILING,))
    assert cache.load(KEY) == (CEILING,)


@pytest.mark.parametrize("change", [{"format": 0}, {"ceilings": [{"device": 3}]}, {"key": None}])
def test_a_file_of_another_form_or_key_is_not_used(cache: CeilingCache, change: dict[str, object]) -> None:
    cache.save(KEY, (CEILING,))
    path = only_file(cache)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert cache.load(KEY) is None


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnmeasurableError, match=CACHE_FOLDER_VARIABLE) as caught:
        CeilingCache(tmp_path / "file" / "ceilings").save(KEY, (CEILING,))
    assert caught.value.reason == "not-saved"


def test_a_failed_save_leaves_the_earlier_file_and_nothing_beside_it(
    cache: CeilingCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.save(KEY, (CEILING,))

    def fail(*_arguments: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(UnmeasurableError, match="No space left"):
        cache.save(KEY, ())
    assert only_file(cache).suffix == ".json"
    assert cache.load(KEY) == (CEILING,)


def test_what_is_forgotten_is_gone(cache: CeilingCache) -> None:
    cache.forget(KEY)
    cache.save(KEY, (CEILING,))
    cache.forget(KEY)
    assert cache.load(KEY) is None


@pytest.mark.parametrize(
    ("unknown", "kept"),
    [
        ({}, True),
        ({"memory_bytes_s": "caches: their size is not known, they may have helped"}, True),
        ({"compute_flops_s": "unsupported: RPC0 has no kernel for IQ1_S"}, True),
        ({"rates": "budget: the time for it was over"}, False),
        ({"rates": "busy: runs of the same kernel differed too much, something else ran"}, False),
    ],
)
def test_only_what_another_measurement_would_not_better_is_worth_keeping(
    unknown: dict[str, str], kept: bool
) -> None:
    assert is_worth_keeping((CEILING, dataclasses.replace(CEILING, unknown=unknown))) is kept
    assert not is_worth_keeping(())


def test_the_folder_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_FOLDER_VARIABLE, str(tmp_path))
    assert cache_folder() == tmp_path / "ceilings"
    monkeypatch.delenv(CACHE_FOLDER_VARIABLE)
    assert cache_folder().parent.name == "llmphase"
