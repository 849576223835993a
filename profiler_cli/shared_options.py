"""Options that several commands share, without repeating them in each."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

Command = Callable[..., None]


def shares(parameter: str, record: type) -> Callable[[Command], Command]:
    """The command with every field of `record`, a dataclass of annotated options, as an option of its own, in
    the place of its parameter `parameter`.

    The parser reads options from a signature; so two commands can share them without repeating them.
    """
    fields = dataclasses.fields(record)
    hints = get_type_hints(record, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields
    ]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(**given: Any) -> None:
            chosen = record(**{field.name: given.pop(field.name) for field in fields})
            command(**given, **{parameter: chosen})

        own_hints = get_type_hints(command, include_extras=True)
        own = [
            known.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=own_hints[name])
            for name, known in inspect.signature(command).parameters.items()
            if name != parameter
        ]
        parameters = own + shared
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {known.name: known.annotation for known in parameters}
        del wrapped.__wrapped__
        return wrapped

    return decorate
