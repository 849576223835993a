"""`llmphase history`: the saved runs of one model over time."""

from __future__ import annotations

from typing import Annotated

import typer

from profiler_cli.options import Format, Output


def history(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A model's name, file or path, or demo. Default: the model of the newest run.",
            show_default=False,
        ),
    ] = None,
    prompt_tokens: Annotated[
        int | None,
        typer.Option(
            "--prompt-tokens",
            "-p",
            metavar="N",
            min=0,
            help="The prompt length to show. Default: the one that most runs measured.",
            show_default=False,
        ),
    ] = None,
    form: Format = None,
    output: Output = None,
) -> None:
    """Show time to first token and decode rate of the saved runs over time, and name drift."""
    from profiler_cli.output import Destination, deliver
    from profiler_cli.past_runs import history_renderer

    destination = Destination.choose(form, output)
    deliver(history_renderer(model, prompt_tokens), destination)
