"""Options that several commands share, without repeating them in each."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_type_hints

from typer.models import OptionInfo

Command = Callable[..., None]


def shares(
    parameter: str, record: type, shown_as: Callable[[OptionInfo], OptionInfo] = lambda option: option
) -> Callable[[Command], Command]:
    """The command with every field of `record`, a dataclass of annotated options, as an option of its own, in
    the place of its parameter `parameter`.

    `shown_as` may reword options for this command: it returns another OptionInfo. The parser reads options
    from a signature; so two commands can share them without repeating them.
    """
    fields = dataclasses.fields(record)
    hints = get_type_hints(record, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=_shown(hints[field.name], shown_as),
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


def _shown(hint: Any, shown_as: Callable[[OptionInfo], OptionInfo]) -> Any:
    kind, option = get_args(hint)
    return Annotated[kind, shown_as(option)]
