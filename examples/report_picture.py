"""Draw a saved run's report as an SVG picture, as the README shows it.

    python examples/report_picture.py last examples/demo-report.svg

RUN is what `llmphase report` takes: a run id, `last`, `last~1` or a file.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from probes.run_files import RunStore
from reports.formats import FORMATS, TerminalStyle
from reports.report import build_report

WIDTH = 96


def picture(run_name: str) -> str:
    """The terminal report of a run, in colour, as SVG text."""
    report = build_report(RunStore().load(run_name))
    text = FORMATS["terminal"].render(report, TerminalStyle(width=WIDTH, colour=True, unicode=True))
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text))
    return console.export_svg(title="llmphase profile demo")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    Path(sys.argv[2]).write_text(picture(sys.argv[1]), encoding="utf-8")
