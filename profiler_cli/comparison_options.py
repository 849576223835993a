"""Options of a comparison, that `compare` and `profile --baseline` share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from profiler_cli.options import COMPARISON_FORMATS

_PANEL = "Comparison"


def _option(*names: str, metavar: str, help: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, rich_help_panel=_PANEL)


def _flag(name: str, help: str) -> Any:
    return typer.Option(name, help=help, show_default=False, rich_help_panel=_PANEL)


PhaseChoice = Annotated[
    str | None,
    _option(
        "--phase",
        metavar="LIST",
        help="Phases to compare: load, prefill, decode, ttft. Default: the first three.",
    ),
]
SameWithin = Annotated[
    str | None,
    _option("--same-within", metavar="SHARE", help="The change that still counts as the same. Default: 5%."),
]
FailOver = Annotated[
    str | None,
    _option("--fail-over", metavar="SHARE", help="Exit code 1 for a sure slowdown over this, such as 5%."),
]
NoiseIsFailure = Annotated[
    bool, _flag("--noise-is-failure", "Exit code 1, too, where noise could hide such a slowdown.")
]
Anyway = Annotated[bool, _flag("--anyway", "Compare what is not like for like.")]
GitHub = Annotated[bool, _flag("--github", "Append the comparison to GitHub's job summary, as Markdown.")]
ComparisonFormat = Annotated[
    str | None,
    typer.Option("--format", help=f"Form: {', '.join(COMPARISON_FORMATS)}.", show_default=False),
]
