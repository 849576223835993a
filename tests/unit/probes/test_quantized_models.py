"""Variants of a model: made by the real quantizer from tiny files, kept, bounded, never half."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import llama_cpp
import pytest
from tiny_models import split_in_two, write_tiny_llama

from probes import variant_cache
from probes.ceiling_cache import CACHE_FOLDER_VARIABLE
from probes.errors import UnmeasurableError, UsageError
from probes.ggml_types import FILE_TYPES, QUANTIZATION_ALIASES, QUANTIZATIONS
from probes.gguf_header import read_model_facts
from probes.quantized_models import Making, make_variants
from probes.records import ModelFacts
from probes.variant_cache import CACHE_SIZE_VARIABLE, VariantCache

MIB = 2**20
Make = Callable[..., tuple[ModelFacts, ...]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of variants, a test's own."""
    monkeypatch.setenv(CACHE_FOLDER_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "quantized"


@pytest.fixture(autouse=True)
def end_of_use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Gives up the files in use, as the end of a process does."""
    held: list[Any] = []
    monkeypatch.setattr(variant_cache, "_IN_USE", held)

    def release() -> None:
        for file in held:
            file.close()
        held.clear()

    yield release
    release()


@pytest.fixture
def source(tmp_path: Path) -> ModelFacts:
    """An F16 model of 2.5 MiB."""
    return read_model_facts(write_tiny_llama(tmp_path / "tiny.gguf"))


@pytest.fixture
def made() -> list[Making]:
    """What was shown while making."""
    return []


@pytest.fixture
def make(made: list[Making]) -> Make:
    """`make(source, *types)`."""

    def run(source: ModelFacts, *types: str, requantize: bool = False) -> tuple[ModelFacts, ...]:
        return make_variants(source, types, requantize=requantize, threads=2, progress=made.append)

    return run


def names(folder: Path) -> set[str]:
    return {path.name.split(".")[1] for path in folder.glob("*.gguf")}


def test_names_and_numbers_are_those_of_the_engine() -> None:
    lib = llama_cpp.llama_cpp
    engine = {
        name.removeprefix("LLAMA_FTYPE_").removeprefix("MOSTLY_").removeprefix("ALL_"): getattr(lib, name)
        for name in dir(lib)
        if name.startswith(("LLAMA_FTYPE_MOSTLY_", "LLAMA_FTYPE_ALL_"))
    }
    # The engine knows NVFP4 and can not make it.
    assert engine.pop("NVFP4") not in QUANTIZATIONS.values()
    assert engine == QUANTIZATIONS
    assert set(QUANTIZATIONS.values()) <= set(FILE_TYPES)
    assert set(QUANTIZATION_ALIASES.values()) <= set(QUANTIZATIONS)


def test_variants_come_in_order_and_say_where_they_are_from(
    source: ModelFacts, make: Make, made: list[Making]
) -> None:
    variants = make(source, "Q4_K_M", "F16", "Q8_0", "Q4_K_M")
    assert [one.quantization for one in variants] == ["Q4_K - Medium", "F16", "Q8_0"]
    assert variants[1] is source  # of its own type it is itself
    smallest, _, middle = variants
    assert smallest.bytes_per_token < middle.bytes_per_token < source.bytes_per_token
    assert set(smallest.bytes_by_type) == {"Q4_K", "Q6_K", "F32"}
    assert (smallest.name, smallest.n_params) == (source.name, source.n_params)
    assert smallest.made_from is not None
    assert (smallest.made_from.path, smallest.made_from.quantization) == (source.path, "F16")
    assert not smallest.made_from.is_quantized
    assert list(dict.fromkeys(one.quantization for one in made)) == ["Q4_K_M", "Q8_0"]
    assert all(one.share is not None and 0 <= one.share < 1 for one in made)


def test_without_another_type_nothing_is_made(source: ModelFacts, make: Make, cache: Path) -> None:
    assert make(source, "F16") == (source,)
    assert not cache.exists()


def test_what_was_made_is_used_again(
    source: ModelFacts, make: Make, made: list[Making], cache: Path, end_of_use: Callable[[], None]
) -> None:
    first = make(source, "Q8_0")
    end_of_use()
    made.clear()
    assert make(source, "Q8_0") == first
    assert made == []
    assert [path.suffix for path in sorted(cache.iterdir())] == [".lock", ".gguf"]


def test_another_source_of_the_same_name_is_another_model(
    source: ModelFacts, make: Make, tmp_path: Path
) -> None:
    first = make(source, "Q8_0")[0]
    other = read_model_facts(write_tiny_llama(tmp_path / "tiny.gguf", seed=7))
    assert make(other, "Q8_0")[0].path != first.path


def test_a_quantized_source_needs_leave(source: ModelFacts, make: Make) -> None:
    quantized = make(source, "Q4_0")[0]
    with pytest.raises(UsageError, match="--requantize") as caught:
        make(quantized, "Q8_0")
    assert caught.value.reason == "requantize"
    again = make(quantized, "Q8_0", requantize=True)[0]
    assert again.made_from is not None
    assert (again.made_from.quantization, again.made_from.is_quantized) == ("Q4_0", True)


def test_a_type_that_needs_a_matrix_is_said_before_any_is_made(
    source: ModelFacts, make: Make, made: list[Making], cache: Path
) -> None:
    with pytest.raises(UsageError, match="IQ2_XS needs an importance matrix") as caught:
        make(source, "Q8_0", "IQ2_XS")
    assert caught.value.reason == "importance-matrix"
    assert made == []
    assert names(cache) == set()


def test_a_split_source_becomes_one_file(tmp_path: Path, make: Make) -> None:
    parts = split_in_two(write_tiny_llama(tmp_path / "whole.gguf"))
    source = read_model_facts(parts[0])
    variant = make(source, "Q8_0")[0]
    assert variant.n_params == source.n_params
    assert variant.files == (variant.path,)


def test_half_files_are_never_used_and_do_not_stay(source: ModelFacts, make: Make, cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "tiny.Q8_0.0123456789abcdef.half").write_bytes(b"GGUF")
    make(source, "Q8_0")
    assert list(cache.glob("*.half")) == []


def test_a_damaged_file_is_made_anew(
    source: ModelFacts, make: Make, cache: Path, end_of_use: Callable[[], None]
) -> None:
    variant = make(source, "Q8_0")[0]
    end_of_use()
    os.truncate(variant.path, 100_000)
    assert make(source, "Q8_0")[0].model_bytes == variant.model_bytes
    assert names(cache) == {"Q8_0"}


def test_a_source_that_went_away_is_one_clear_line(source: ModelFacts, make: Make, cache: Path) -> None:
    Path(source.path).unlink()
    with pytest.raises(UnmeasurableError, match=r"tiny.gguf can not be read: No such file"):
        make(source, "Q8_0")
    assert not cache.exists()


def test_a_source_that_the_engine_refuses_leaves_nothing(source: ModelFacts, make: Make, cache: Path) -> None:
    Path(source.path).write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(UnmeasurableError, match="can not quantize this model") as caught:
        make(source, "Q8_0")
    assert caught.value.reason == "quantize"
    assert names(cache) == set()
    assert list(cache.glob("*.half")) == []


# --- bounds --------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """A cache with three files of 1 MiB, used in the order of their names."""

    cache: VariantCache
    files: list[Path]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    files = []
    for number, name in enumerate("abc"):
        files.append(write_tiny_llama(tmp_path / f"{name}.gguf", seed=number))
        os.truncate(files[-1], 3 * MIB)
        os.utime(files[-1], (1000 + number, 5000 - number))
    return Kept(VariantCache(tmp_path, limit_bytes=10 * MIB), files)


def remaining(kept: Kept) -> str:
    return "".join(path.stem for path in kept.files if path.exists())


@pytest.mark.parametrize(("new_mib", "left"), [(1, "abc"), (2, "bc"), (4, "bc"), (5, "c"), (8, "")])
def test_what_was_used_longest_ago_makes_room(kept: Kept, new_mib: int, left: str) -> None:
    # 9 of 10 MiB are taken, in files of 3.
    kept.cache.make_room(new_mib * MIB)
    assert remaining(kept) == left


def test_using_a_file_makes_it_the_last_to_go(kept: Kept, end_of_use: Callable[[], None]) -> None:
    assert kept.cache.use("a") is not None
    end_of_use()
    kept.cache.make_room(2 * MIB)
    assert remaining(kept) == "ac"


def test_a_file_in_use_stays(kept: Kept) -> None:
    assert kept.cache.use("a") is not None
    kept.cache.make_room(7 * MIB)
    assert remaining(kept) == "a"


def test_more_than_the_bound_is_refused_and_nothing_removed(kept: Kept) -> None:
    assert kept.cache.use("a") is not None
    with pytest.raises(UsageError, match=CACHE_SIZE_VARIABLE) as caught:
        kept.cache.make_room(8 * MIB)
    assert caught.value.reason == "cache-size"
    assert remaining(kept) == "abc"


def test_a_full_disk_is_said_before_anything_is_made(
    source: ModelFacts, make: Make, made: list[Making], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(9, 9, 100 * MIB))
    with pytest.raises(UnmeasurableError, match=CACHE_FOLDER_VARIABLE) as caught:
        make(source, "Q8_0")
    assert caught.value.reason == "disk-space"
    assert made == []


@pytest.mark.parametrize(
    ("text", "size"), [("2G", 2 * 2**30), ("1.5 GiB", 3 * 2**29), ("500m", 500 * MIB), ("", 32 * 2**30)]
)
def test_the_bound_can_be_chosen(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    monkeypatch.setenv(CACHE_SIZE_VARIABLE, text)
    assert VariantCache.open().limit_bytes == size


@pytest.mark.parametrize("text", ["much", "-1G", "10", "1e3G"])
def test_a_bound_that_is_no_size_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(CACHE_SIZE_VARIABLE, text)
    with pytest.raises(UsageError, match=CACHE_SIZE_VARIABLE):
        VariantCache.open()


def test_a_folder_that_can_not_be_made_is_one_clear_line(
    source: ModelFacts, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in-the-way").touch()
    monkeypatch.setenv(CACHE_FOLDER_VARIABLE, str(tmp_path / "in-the-way"))
    with pytest.raises(UnmeasurableError, match="can not be kept in") as caught:
        make(source, "Q8_0")
    assert caught.value.reason == "variant-cache"
