"""Reads the header of one GGUF file: metadata and the list of tensors, never their data.

The file is not trusted: counts and lengths are checked against the file's size and against limits
far above those of real models, so memory stays within a few tens of megabytes. Long arrays and
strings are passed over. Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import dataclasses
import math
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, NoReturn

from probes.errors import LlmphaseError, ModelFileError, UnmeasurableError
from probes.file_kinds import download_sign, looks_like, without_download_suffix
from probes.ggml_types import GGML_TYPES, REMOVED_TYPES, GgmlType
from probes.text import clean_text, show_name, show_path

Value = bool | int | float | str | tuple[bool | int | float, ...]
"""A metadata value that is kept. Longer text is cut, other arrays are only counted."""

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_HEADER_BYTES = 512 << 20
_MAX_KEYS = 16_384
_MAX_KEY_BYTES = 65_535
_MAX_TENSORS = 65_536
_MAX_TENSOR_NAME_BYTES = 63
_MAX_DIMENSIONS = 4
_MAX_ELEMENTS = (1 << 63) - 1
_MAX_STRINGS = 4 << 20
"""In all arrays together. Each costs time: the largest vocabularies and their merges have under a million."""
_TOKENS_KEY = "tokenizer.ggml.tokens"
_MAX_TOKEN_SQUARES = 1 << 28
"""Bytes of a token's text times themselves, of all tokens: the engine repeats the whole text for each of its
characters that stands for no byte, so a token of a megabyte becomes a terabyte. Vocabularies of 50,000 tokens
have four million."""
_MAX_ALIGNMENT = 1 << 20
_MAX_KEPT_BYTES = 16 << 20
"""Of keys, names, text and numbers that are kept: in memory they take several times as much."""
_KEPT_TEXT_BYTES = 1024
_KEPT_ARRAY_LENGTH = 1024
"""Enough for one number a layer: llama.cpp allows 512 layers."""
_CHUNK_BYTES = 256 << 10
_LEAST_KEY_BYTES = 8 + 1 + 4 + 1
_LEAST_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8
_DEFAULT_ALIGNMENT = 32

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_STRING_TYPE, _ARRAY_TYPE = 8, 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: _U32,
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: _U64,
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor as the header describes it."""

    name: str
    shape: tuple[int, ...]
    """Elements by dimension, the row length first (ggml's order)."""
    type: GgmlType
    offset: int
    """Bytes from the start of the data."""

    @property
    def n_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int:
        return self.n_elements // self.type.block_elements * self.type.block_bytes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The header of one GGUF file."""

    path: Path
    file_bytes: int
    modified_at: float
    metadata: dict[str, Value]
    array_lengths: dict[str, int]
    """Of all arrays, kept or not."""
    tensors: tuple[TensorInfo, ...]

    def integer(self, key: str) -> int | None:
        """Return a whole number that is not negative; None when absent or of another kind."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None

    def text(self, key: str) -> str | None:
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def integers(self, key: str, count: int) -> tuple[int, ...] | None:
        """Return one whole number per layer: an array of at least `count`, or one number for all of them."""
        value = self.metadata.get(key)
        values = value if isinstance(value, tuple) else (value,) * count
        if len(values) < count:
            return None
        whole = tuple(int(item) for item in values[:count] if isinstance(item, int) and item >= 0)
        return whole if len(whole) == count else None


def read_header(path: Path) -> Header:
    """Read the header of one file and check that the file is long enough for its tensors.

    Raises ModelFileError when the file is no whole, supported GGUF, UnmeasurableError when it can
    not be read.
    """
    try:
        status = path.stat()
        _require_regular_file(path, status)
        with path.open("rb") as file:
            return _Reader(file, path, status).header()
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as error:
        why = clean_text(error.strerror or str(error))
        raise UnmeasurableError(
            f"{show_path(path)} can not be read: {why}. Check its permissions and its disk.",
            reason="unreadable",
        ) from error


def read_tensors(paths: Iterable[str]) -> tuple[TensorInfo, ...]:
    """The tensors of a model that lies in these files, all parts of a split one. Raises as `read_header`."""
    return tuple(tensor for path in paths for tensor in read_header(Path(path)).tensors)


def _require_regular_file(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ModelFileError(f"{show_path(path)} is a folder: name a GGUF file in it.", reason="is-folder")
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(
            f"{show_path(path)} is no regular file (a device or pipe): name a GGUF file.", reason="not-a-file"
        )


def _missing(path: Path) -> ModelFileError:
    sign = download_sign(path)
    if sign is not None and sign != path:
        return ModelFileError(
            f"{show_path(path)} is still downloading ({show_name(sign)} is beside where it will be): "
            "wait until it is complete.",
            reason="still-downloading",
        )
    return ModelFileError(
        f"There is no file {show_path(path)}: check the name, or see `llmphase models`.",
        reason="missing-file",
    )


def _padded(n_bytes: int, alignment: int) -> int:
    return -(-n_bytes // alignment) * alignment


class _Reader:
    """A cursor over the header that never goes beyond the file or the limits."""

    def __init__(self, file: BinaryIO, path: Path, status: os.stat_result) -> None:
        self._file = file
        self._path = path
        self._status = status
        self._size = status.st_size
        self._position = 0
        self._kept_bytes = 0
        self._n_strings = 0

    def header(self) -> Header:
        self._check_magic()
        n_tensors = self._count(_U64, _MAX_TENSORS, _LEAST_TENSOR_BYTES, "tensors")
        n_keys = self._count(_U64, _MAX_KEYS, _LEAST_KEY_BYTES, "metadata keys")
        metadata, lengths = self._metadata(n_keys)
        tensors = self._tensors(n_tensors)
        self._check_length(metadata, tensors)
        return Header(
            path=self._path,
            file_bytes=self._size,
            modified_at=self._status.st_mtime,
            metadata=metadata,
            array_lengths=lengths,
            tensors=tensors,
        )

    # Parts of the header, in file order.

    def _check_magic(self) -> None:
        if self._size == 0:
            self._fail("is empty: download it again", "empty-file")
        start = self._file.read(64)
        self._file.seek(0)
        if not start.startswith(_MAGIC):
            kind = looks_like(start)
            self._fail(f"is not a GGUF file{f'; it looks like {kind}' if kind else ''}", "not-gguf")
        self._skip(len(_MAGIC))
        version = self._number(_U32)
        if version & 0xFFFF == 0 and version != 0:
            self._fail(
                "has the wrong endianness (a big-endian file): get the little-endian one", "wrong-endianness"
            )
        if version not in _VERSIONS:
            advice = "get a newer file" if version < min(_VERSIONS) else "it needs a newer llmphase"
            self._fail(
                f"is GGUF version {version}, versions 2 and 3 are read: {advice}", "unsupported-version"
            )

    def _metadata(self, count: int) -> tuple[dict[str, Value], dict[str, int]]:
        values: dict[str, Value] = {}
        lengths: dict[str, int] = {}
        for _ in range(count):
            key = self._string(_MAX_KEY_BYTES, "a metadata key")
            if key in values or key in lengths:
                self._corrupt(f"metadata key {clean_text(key, 60)!r} appears twice")
            type_number = self._number(_U32)
            if type_number == _ARRAY_TYPE:
                lengths[key], kept = self._array(key)
                if kept is not None:
                    values[key] = kept
            else:
                values[key] = self._value(type_number, key)
        return values, lengths

    def _value(self, type_number: int, key: str) -> Value:
        if type_number == _STRING_TYPE:
            length = self._number(_U64)
            text = self._keep(min(length, _KEPT_TEXT_BYTES)).decode("utf-8", "replace")
            self._skip(max(0, length - _KEPT_TEXT_BYTES))
            return text
        value: bool | int | float = self._scalar(type_number, key).unpack(
            self._take(self._scalar(type_number, key).size)
        )[0]
        return value

    def _array(self, key: str) -> tuple[int, Value | None]:
        type_number = self._number(_U32)
        if type_number == _STRING_TYPE:
            count = self._count(_U64, _MAX_STRINGS - self._n_strings, _U64.size, "strings in an array")
            self._n_strings += count
            squares = self._skip_strings(count)
            if key == _TOKENS_KEY and squares > _MAX_TOKEN_SQUARES:
                self._corrupt("the tokens of its vocabulary are longer than any text to be written with")
            return count, None
        scalar = self._scalar(type_number, key)
        count = self._count(_U64, _MAX_HEADER_BYTES, scalar.size, "numbers in an array")
        if count > _KEPT_ARRAY_LENGTH:
            self._skip(count * scalar.size)
            return count, None
        return count, tuple(item[0] for item in scalar.iter_unpack(self._keep(count * scalar.size)))

    def _tensors(self, count: int) -> tuple[TensorInfo, ...]:
        tensors: dict[str, TensorInfo] = {}
        for _ in range(count):
            tensor = self._tensor()
            if tensor.name in tensors:
                self._corrupt(f"tensor {clean_text(tensor.name)!r} appears twice")
            tensors[tensor.name] = tensor
        return tuple(tensors.values())

    def _tensor(self) -> TensorInfo:
        name = self._string(_MAX_TENSOR_NAME_BYTES, "a tensor's name")
        n_dimensions = self._number(_U32)
        if n_dimensions > _MAX_DIMENSIONS:
            self._corrupt(f"tensor {clean_text(name)!r} has {n_dimensions} dimensions")
        shape = tuple(self._number(_U64) for _ in range(n_dimensions)) or (1,)
        ggml_type = self._tensor_type(self._number(_U32), name)
        tensor = TensorInfo(name, shape, ggml_type, self._number(_U64))
        if tensor.n_elements > _MAX_ELEMENTS or shape[0] % ggml_type.block_elements:
            self._corrupt(f"tensor {clean_text(name)!r} has the impossible shape {shape}")
        return tensor

    def _tensor_type(self, number: int, name: str) -> GgmlType:
        known = GGML_TYPES.get(number)
        if known is None:
            self._refuse_type(number, name)
        return known

    def _refuse_type(self, number: int, name: str) -> NoReturn:
        where = f"(tensor {clean_text(name)!r})"
        what = f"uses the unknown number format {number} {where}: it is damaged or needs a newer llmphase"
        if number in REMOVED_TYPES:
            what = (
                f"uses the number format {REMOVED_TYPES[number]} {where}, which llama.cpp no longer reads: "
                "get a newer file of this model"
            )
        self._fail(what, "unknown-tensor-type")

    def _check_length(self, metadata: dict[str, Value], tensors: tuple[TensorInfo, ...]) -> None:
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if (
            not isinstance(alignment, int)
            or not 0 < alignment <= _MAX_ALIGNMENT
            or alignment & (alignment - 1)
        ):
            self._corrupt(f"its alignment is {clean_text(str(alignment), 40)}")
        needed = _padded(self._position, alignment) + self._data_bytes(tensors, alignment)
        if tensors and self._size < needed:
            self._fail(
                f"has {self._size:,} of {needed:,} bytes: cut short, or still downloading", "truncated-file"
            )

    def _data_bytes(self, tensors: tuple[TensorInfo, ...], alignment: int) -> int:
        """Bytes of all tensors, which follow each other as the header lists them: the engine wants it so."""
        end = 0
        for tensor in tensors:
            if tensor.offset != _padded(end, alignment):
                self._corrupt(f"tensor {clean_text(tensor.name)!r} is not where the one before it ends")
            end = tensor.offset + tensor.n_bytes
        return end

    # Reading.

    def _take(self, n_bytes: int) -> bytes:
        self._require(n_bytes)
        data = self._file.read(n_bytes)
        self._position += n_bytes
        if len(data) < n_bytes:
            self._cut()
        return data

    def _keep(self, n_bytes: int) -> bytes:
        """As `_take`, of what stays in memory."""
        self._kept_bytes += n_bytes
        if self._kept_bytes > _MAX_KEPT_BYTES:
            self._corrupt(f"its keys and values are larger than {_MAX_KEPT_BYTES >> 20} MiB")
        return self._take(n_bytes)

    def _skip(self, n_bytes: int) -> None:
        self._require(n_bytes)
        self._position += n_bytes
        self._file.seek(self._position)

    def _require(self, n_bytes: int) -> None:
        if n_bytes > self._size - self._position:
            self._cut()
        if self._position + n_bytes > _MAX_HEADER_BYTES:
            self._corrupt(f"its header is larger than {_MAX_HEADER_BYTES >> 20} MiB")

    def _number(self, form: struct.Struct) -> int:
        value: int = form.unpack(self._take(form.size))[0]
        return value

    def _scalar(self, type_number: int, key: str) -> struct.Struct:
        scalar = _SCALARS.get(type_number)
        if scalar is None:
            self._corrupt(f"metadata key {clean_text(key, 60)!r} has the unknown type {type_number}")
        return scalar

    def _count(self, form: struct.Struct, limit: int, least_bytes: int, what: str) -> int:
        """Read a count; refuse one that neither real models nor the rest of the file could hold."""
        count = self._number(form)
        if count > limit:
            self._corrupt(f"it claims {count:,} {what}")
        if count * least_bytes > self._size - self._position:
            self._cut()
        return count

    def _string(self, limit: int, what: str) -> str:
        length = self._number(_U64)
        if not 0 < length <= limit:
            self._corrupt(f"{what} has {length:,} bytes")
        return self._keep(length).decode("utf-8", "replace")

    def _skip_strings(self, count: int) -> int:
        """Pass over strings chunk by chunk: vocabularies hold hundreds of thousands. The sum of the squares
        of their lengths."""
        chunk, at, squares = b"", 0, 0
        for _ in range(count):
            if at + _U64.size > len(chunk):
                self._skip(at)
                chunk, at = self._file.read(_CHUNK_BYTES), 0
                if len(chunk) < _U64.size:
                    self._cut()
            length: int = _U64.unpack_from(chunk, at)[0]
            at += _U64.size + length
            squares += length * length
        self._skip(at)
        return squares

    # Failing.

    def _cut(self) -> NoReturn:
        self._fail(
            f"ends inside its header (it has {self._size:,} bytes): cut short, or still downloading",
            "truncated-header",
        )

    def _corrupt(self, what: str) -> NoReturn:
        self._fail(f"is damaged: {what}. Download it again", "corrupt-header")

    def _fail(self, what: str, reason: str) -> NoReturn:
        raise self._explained(what, reason)

    def _explained(self, what: str, reason: str) -> LlmphaseError:
        """A file that is still being written explains all that is wrong with it."""
        sign = download_sign(self._path)
        if sign is None:
            return ModelFileError(f"{show_path(self._path)} {what}.", reason=reason)
        whole = clean_text(without_download_suffix(self._path.name))
        why = (
            f"{show_name(sign)} is beside it"
            if sign != self._path
            else f"it will be named {whole} when complete"
        )
        return ModelFileError(
            f"{show_path(self._path)} is still downloading ({why}): it {what}.", reason="still-downloading"
        )
