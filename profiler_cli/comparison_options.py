"""Options of a comparison, that `compare` and `profile --baseline` share."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from profiler_cli.options import COMPARISON_FORMATS
from profiler_cli.shared_options import shares

if TYPE_CHECKING:
    from profiler_cli.comparing import Comparing

_PANEL = "Comparison"

ComparisonFormat = Annotated[
    str | None,
    typer.Option("--format", help=f"Form: {', '.join(COMPARISON_FORMATS)}.", show_default=False),
]


def _option(*names: str, metavar: str, help: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, rich_help_panel=_PANEL)


def _flag(name: str, help: str) -> Any:
    return typer.Option(name, help=help, show_default=False, rich_help_panel=_PANEL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparisonOptions:
    """As given on the command line, not yet read."""

    phase: Annotated[
        str | None,
        _option(
            "--phase",
            metavar="LIST",
            help="Phases to compare: load, prefill, decode, ttft. Default: the first three.",
        ),
    ] = None
    same_within: Annotated[
        str | None,
        _option("--same-within", metavar="SHARE", help="The change that still counts as the same: 5%."),
    ] = None
    assume_repetitions: Annotated[
        int | None,
        _option(
            "--assume-repetitions",
            metavar="N",
            help="How many, where a file does not say: llama-bench's csv, sql and md. Its default is 5.",
        ),
    ] = None
    anyway: Annotated[bool, _flag("--anyway", "Compare, or resume, what is not like for like.")] = False
    fail_over: Annotated[
        str | None,
        _option("--fail-over", metavar="SHARE", help="Exit code 1 for a sure slowdown over this: 5%."),
    ] = None
    noise_is_failure: Annotated[
        bool, _flag("--noise-is-failure", "Exit code 1, too, where noise could hide such a slowdown.")
    ] = False
    github: Annotated[
        bool, _flag("--github", "Append the comparison to GitHub's job summary, as Markdown.")
    ] = False

    def read(self) -> Comparing:
        """Raises UsageError for values that mean nothing."""
        from profiler_cli.comparing import Comparing

        return Comparing.read(self)

    @property
    def given(self) -> tuple[str, ...]:
        """Names of the options that were given."""
        fields = dataclasses.fields(self)
        return tuple(field.name for field in fields if getattr(self, field.name) != field.default)


with_comparison_options = shares("comparison", ComparisonOptions)
"""For a command with a parameter `comparison`."""
