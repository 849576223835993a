"""Frozen dataclasses to JSON-ready values and back, driven by the records' own type hints.

Understood hints: None, bool, int, float, str, `Literal`, `X | None`, a nested dataclass,
`tuple[X, ...]` and `dict[str, X]`. Decoding is strict about types and tolerant of keys it does not
know, so that a record may gain a field within one schema version.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Hashable
from typing import Any, Literal, TypeVar, Union

from probes.errors import UsageError

T = TypeVar("T")
Decoder = Callable[[object], object]

_SHOWN_CHARACTERS = 40
_LARGEST = 2**63 - 1
"""No duration, size or count of a record comes near it; larger numbers only overflow later."""
_MOST_TOKENS = 2**31 - 1
"""In fields named for tokens: the engine counts positions in 32 bits."""
_SIGNED = ("n_gpu_layers",)
"""Fields in which a negative number has a meaning (-1: all). Everywhere else it is a mistake."""
_KINDS = (
    (type(None), "null"),
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "a string"),
    (list, "a list"),
)
"""JSON's words for Python's types. `bool` stands before `int`, which it is a kind of."""


class DecodeError(UsageError):
    """A JSON value that does not have the shape of the record; the message begins with its path."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="bad-run-file")


class _MismatchError(Exception):
    """Carries what is wrong up to `decode`; each level on the way puts its part of the path in front."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.parts: list[str] = []


def encode(record: object) -> Any:
    """Turn a record into values that `json.dumps` writes: dicts, lists and scalars.

    Raises ValueError for a float that JSON can not hold, TypeError for any other kind of value: both
    are mistakes of the code that made the record.
    """
    if record is None or isinstance(record, bool | int | str):
        return record
    if isinstance(record, float):
        if not math.isfinite(record):
            raise ValueError(f"{record} can not be written as JSON: use None for an unknown number")
        return record
    if dataclasses.is_dataclass(record):
        return {field.name: encode(getattr(record, field.name)) for field in dataclasses.fields(record)}
    if isinstance(record, tuple):
        return [encode(item) for item in record]
    if isinstance(record, dict):
        return {str(key): encode(item) for key, item in record.items()}
    raise TypeError(f"records hold no {type(record).__name__}")


def decode(cls: type[T], value: object) -> T:
    """Build a record of type `cls` from a parsed JSON value.

    Raises DecodeError, which names the place: `groups[0].cells[2].samples: expected a list, got a string`.
    """
    try:
        return typing.cast(T, _decoder(typing.cast(Hashable, cls))(value))
    except _MismatchError as mismatch:
        path = "".join(reversed(mismatch.parts)).removeprefix(".") or "top level"
        raise DecodeError(f"{path}: {mismatch.problem}") from None


@functools.cache
def _decoder(hint: Any) -> Decoder:
    """The function that decodes one type hint, made once."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if dataclasses.is_dataclass(hint):
        return _record_decoder(typing.cast(type[object], hint))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return functools.partial(_literal, arguments)
    if origin in (Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        return _optional_decoder(next(item for item in arguments if item is not type(None)))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _list_decoder(arguments[0])
    if origin is dict and arguments[0] is str:
        return _mapping_decoder(arguments[1])
    raise TypeError(f"the codec does not know the type {hint!r}")


def _record_decoder(cls: type[Any]) -> Decoder:
    hints = typing.get_type_hints(cls)
    names = [
        (field.name, _decoder(hints[field.name]), _is_required(field)) for field in dataclasses.fields(cls)
    ]

    def decode_record(value: object) -> object:
        if not isinstance(value, dict):
            raise _unexpected("an object", value)
        fields: dict[str, object] = {}
        for name, decoder, required in names:
            if name in value:
                fields[name] = _at(f".{name}", decoder, value[name])
                if problem := _out_of_range(name, fields[name]):
                    raise _located(f".{name}", _MismatchError(problem))
            elif required:
                raise _located(f".{name}", _MismatchError("is missing"))
        return cls(**fields)

    return decode_record


def _out_of_range(name: str, value: object) -> str | None:
    """What is wrong with a number that a decoded field is, or directly holds."""
    items = value if isinstance(value, tuple) else value.values() if isinstance(value, dict) else (value,)
    if name not in _SIGNED and any(isinstance(item, int | float) and item < 0 for item in items):
        return "expected no negative number"
    if name.endswith("_tokens") and any(isinstance(item, int) and item > _MOST_TOKENS for item in items):
        return "expected a smaller number"
    return None


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _list_decoder(item_hint: Any) -> Decoder:
    decoder = _decoder(item_hint)

    def decode_list(value: object) -> object:
        if not isinstance(value, list):
            raise _unexpected("a list", value)
        return tuple(_at(f"[{index}]", decoder, item) for index, item in enumerate(value))

    return decode_list


def _mapping_decoder(item_hint: Any) -> Decoder:
    decoder = _decoder(item_hint)

    def decode_mapping(value: object) -> object:
        if not isinstance(value, dict):
            raise _unexpected("an object", value)
        return {key: _at(f"[{_shown(key)}]", decoder, item) for key, item in value.items()}

    return decode_mapping


def _optional_decoder(hint: Any) -> Decoder:
    decoder = _decoder(hint)
    return lambda value: None if value is None else decoder(value)


def _literal(allowed: tuple[object, ...], value: object) -> object:
    # Types are compared too: True == 1 in Python, and they differ in JSON.
    if not any(type(option) is type(value) and option == value for option in allowed):
        raise _MismatchError(f"expected one of {', '.join(map(_shown, allowed))}, got {_shown(value)}")
    return value


def _none(value: object) -> object:
    if value is not None:
        raise _unexpected("null", value)
    return value


def _bool(value: object) -> object:
    if not isinstance(value, bool):
        raise _unexpected("true or false", value)
    return value


def _int(value: object) -> object:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _unexpected("a whole number", value)
    if abs(value) > _LARGEST:
        raise _MismatchError("expected a smaller number")
    return value


def _float(value: object) -> object:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _unexpected("a number", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _MismatchError("expected a finite number")
    if abs(number) > _LARGEST:
        raise _MismatchError("expected a smaller number")
    return number


def _str(value: object) -> object:
    if not isinstance(value, str):
        raise _unexpected("a string", value)
    return value


_SCALARS: dict[Any, Decoder] = {type(None): _none, bool: _bool, int: _int, float: _float, str: _str}


def _at(part: str, decoder: Decoder, value: object) -> object:
    try:
        return decoder(value)
    except _MismatchError as mismatch:
        raise _located(part, mismatch) from None


def _located(part: str, mismatch: _MismatchError) -> _MismatchError:
    mismatch.parts.append(part)
    return mismatch


def _unexpected(wanted: str, value: object) -> _MismatchError:
    return _MismatchError(f"expected {wanted}, got {_kind(value)}")


def _kind(value: object) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "an object")


def _shown(value: object) -> str:
    """A JSON value in few ASCII characters: it may come from anyone's file."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
