"""Draw the terminal output of a run as a picture, for a README or a page."""

from __future__ import annotations

import io
import re

from rich.console import Console

from verispec.report.markdown import run_command
from verispec.report.text import print_verdict
from verispec.report.verdict import RunSummary

COLUMNS = 124


def as_svg(summary: RunSummary) -> str:
    """Return the report as SVG, without the web fonts that rich refers to: a picture loads nothing."""
    console = Console(record=True, file=io.StringIO(), force_terminal=True, width=COLUMNS)
    print_verdict(summary, console)
    picture = console.export_svg(title=" ".join(run_command(summary)))
    return re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
