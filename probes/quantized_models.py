"""Variants of a model in other quantizations, made by the engine's own quantizer and kept for the next time.

A variant is known by its content: by what the source file is, what it is turned into, and which engine does
it. It is made without an importance matrix, so it runs as fast as any file of its type and may answer worse
than a published one.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from probes.errors import LlmphaseError, UnmeasurableError, UsageError
from probes.ggml_types import FILE_TYPES, QUANTIZATIONS, UNQUANTIZED
from probes.messages import AskFacts, Event, Facts, Failed, Quantize, Quantized, QuantizeProgress
from probes.records import EngineFacts, ModelFacts, Origin
from probes.split_files import part_name
from probes.text import clean_text, show_path
from probes.variant_cache import VariantCache
from probes.worker_process import WorkerProcess

_FORMAT = 1
"""Raise it when the same source and type come to another file."""
_IDENTIFYING_BYTES = 2**20
"""Read at both ends of a source: its size and time alone may be those of another file of the same name."""
_LONGEST_STEM = 80
_SILENCE_S = 900.0
"""No single tensor takes longer."""
_STEP_S = 0.5
_HEADER_BYTES = 2**20
"""More than what aligning and a few keys add to a header."""

A = TypeVar("A")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """What is being done for a variant."""

    model_name: str
    """Untrusted text."""
    quantization: str
    share: float | None
    """Done, 0 to 1; None while another program makes files."""


def make_variants(
    source: ModelFacts,
    types: Sequence[str],
    *,
    requantize: bool,
    threads: int,
    progress: Callable[[Making], None],
) -> tuple[ModelFacts, ...]:
    """The source in each of the types (keys of QUANTIZATIONS), in order, each once; of its own type the
    source itself.

    Files that were made before are used again. Raises UsageError for what can not be made from this source,
    UnmeasurableError when making it fails; then nothing half-made stays.
    """
    require_may_quantize(source, types, requantize=requantize)
    wanted = _others(source, types)
    if not wanted:
        return (source,)
    cache = VariantCache.open()
    try:
        with WorkerProcess() as worker:
            maker = _Maker(source, cache, worker, requantize, threads, progress)
            made = maker.files(wanted)
    except OSError as error:
        raise UnmeasurableError(
            f"variants can not be kept in {show_path(cache.folder)}: {error.strerror or error}",
            reason="variant-cache",
        ) from error
    return tuple(made.get(name, source) for name in dict.fromkeys(types))


def require_may_quantize(source: ModelFacts, types: Sequence[str], *, requantize: bool) -> None:
    """Raise UsageError where other types than its own are asked of a quantized source without leave."""
    if _others(source, types) and _is_quantized(source) and not requantize:
        raise UsageError(
            f"{show_path(source.path)} is quantized already ({clean_text(source.quantization, 40)}): name its"
            " F16, BF16 or F32 file, or give --requantize (speed is true then, quality is not)",
            reason="requantize",
        )


def _others(source: ModelFacts, types: Sequence[str]) -> list[str]:
    """The types that the source is not of itself, each once."""
    return [name for name in dict.fromkeys(types) if source.quantization != FILE_TYPES[QUANTIZATIONS[name]]]


def _is_quantized(source: ModelFacts) -> bool:
    return any(name not in UNQUANTIZED for name in source.bytes_by_type)


class _Maker:
    """Finds and makes the files of one source."""

    def __init__(
        self,
        source: ModelFacts,
        cache: VariantCache,
        worker: WorkerProcess,
        requantize: bool,
        threads: int,
        progress: Callable[[Making], None],
    ) -> None:
        self._source = source
        self._cache = cache
        self._worker = worker
        self._requantize = requantize
        self._threads = threads
        self._progress = progress

    def files(self, types: Sequence[str]) -> dict[str, ModelFacts]:
        """Facts by type."""
        self._worker.send(AskFacts())
        engine = self._answer(Facts).engine
        names = {kind: _file_name(self._source, kind, engine) for kind in types}
        found = self._found(names)
        if len(found) < len(names):
            with self._cache.making(lambda: self._show(_first_missing(names, found), None)):
                found |= self._found({kind: names[kind] for kind in types if kind not in found})
                self._make({kind: names[kind] for kind in types if kind not in found})
                found |= self._found({kind: names[kind] for kind in types if kind not in found})
        if missing := [kind for kind in types if kind not in found]:
            raise UnmeasurableError(
                f"{missing[0]} was made and can not be read back from {show_path(self._cache.folder)}",
                reason="variant-cache",
            )
        return found

    def _found(self, names: dict[str, str]) -> dict[str, ModelFacts]:
        facts = {kind: self._cache.use(name) for kind, name in names.items()}
        origin = Origin(
            path=self._source.path,
            quantization=self._source.quantization,
            is_quantized=_is_quantized(self._source),
        )
        return {
            kind: dataclasses.replace(one, name=self._source.name, made_from=origin)
            for kind, one in facts.items()
            if one is not None
        }

    def _make(self, names: dict[str, str]) -> None:
        """All sizes are known, and room is made, before the first one is begun."""
        sizes = {kind: self._size(kind) for kind in names}
        if sizes:
            self._cache.make_room(sum(sizes.values()))
        for kind, name in names.items():
            try:
                with self._cache.new_file(name) as path:
                    self._show(kind, 0.0)
                    self._quantize(kind, str(path), functools.partial(self._show, kind))
            except LlmphaseError as error:
                what = f"{kind} of {clean_text(self._source.name)} can not be made"
                raise UnmeasurableError(f"{what}: {error}{self._full_disk()}", reason=error.reason) from error

    def _size(self, kind: str) -> int:
        """Of the file, by a trial of the engine. Raises UsageError for a type that weights alone do not
        give."""
        trial = self._quantize(kind, None)
        if trial.needs_importance_matrix:
            raise UsageError(
                f"--quant {kind} needs an importance matrix, which llmphase does not make: name a file"
                " of that type, or another type, such as Q2_K, IQ3_S or IQ4_XS",
                reason="importance-matrix",
            )
        header_bytes = self._source.file_bytes - self._source.model_bytes + _HEADER_BYTES
        tensor_bytes = trial.tensor_bytes
        if tensor_bytes is None:
            tensor_bytes = self._source.n_params * (4 if kind == "F32" else 2)  # no other type takes more
        return tensor_bytes + header_bytes

    def _full_disk(self) -> str:
        free_bytes = self._cache.free_bytes()
        return f" (only {free_bytes // 2**20} MiB are free on its disk)" if free_bytes < 2**28 else ""

    def _quantize(
        self, kind: str, target: str | None, show: Callable[[float], None] = lambda _share: None
    ) -> Quantized:
        """Without a target only a trial."""
        command = Quantize(
            source=self._source.path,
            target=target or "",
            file_type=QUANTIZATIONS[kind],
            threads=self._threads,
            requantize=self._requantize,
            trial=target is None,
        )
        self._worker.send(command)
        return self._answer(Quantized, show)

    def _answer(self, kind: type[A], show: Callable[[float], None] = lambda _share: None) -> A:
        """Wait for the answer. Raises UnmeasurableError when another one comes, or none."""
        silent_s = 0.0
        while silent_s < _SILENCE_S:
            event: Event | None = self._worker.receive(_STEP_S)
            if isinstance(event, kind):
                return event
            if isinstance(event, Failed):
                raise UnmeasurableError(event.message, reason=event.reason)
            silent_s = silent_s + _STEP_S if event is None else 0.0
            if isinstance(event, QuantizeProgress):
                show(event.share)
        raise UnmeasurableError(f"the engine has not answered for {_SILENCE_S:.0f} s", reason="no-answer")

    def _show(self, kind: str, share: float | None) -> None:
        self._progress(Making(model_name=self._source.name, quantization=kind, share=share))


def _first_missing(names: dict[str, str], found: dict[str, ModelFacts]) -> str:
    return next(kind for kind in names if kind not in found)


def _file_name(source: ModelFacts, kind: str, engine: EngineFacts) -> str:
    """A name for people, made one of its kind by a digest of all that the file depends on."""
    made_by = [_FORMAT, engine.commit or engine.version, QUANTIZATIONS[kind]]
    digest = hashlib.sha256(json.dumps(made_by).encode())
    for file in source.files:
        digest.update(_identity(Path(file)))
    part = part_name(Path(source.path))
    stem = part.stem if part else Path(source.path).stem
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", stem)[:_LONGEST_STEM]
    return f"{plain}.{kind}.{digest.hexdigest()[:16]}"


def _identity(path: Path) -> bytes:
    """A digest of size, time and both ends of a file: the header, and some of the weights. Raises
    UnmeasurableError."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            head = file.read(_IDENTIFYING_BYTES)
            file.seek(max(0, status.st_size - _IDENTIFYING_BYTES))
            tail = file.read(_IDENTIFYING_BYTES)
    except OSError as error:
        raise UnmeasurableError(
            f"{show_path(path)} can not be read: {error.strerror or error}", reason="unreadable"
        ) from error
    digest = hashlib.sha256(json.dumps([status.st_size, status.st_mtime_ns]).encode())
    digest.update(head)
    digest.update(tail)
    return digest.digest()
