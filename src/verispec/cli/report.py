"""``verispec report``: render a run file."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verispec.report.junit import as_junit
from verispec.report.markdown import as_markdown
from verispec.report.text import print_verdict
from verispec.report.verdict import summarise
from verispec.run import runfile

app = typer.Typer(add_completion=False)


class Format(StrEnum):
    """How a run is rendered."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"
    JUNIT = "junit"


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run file, as 'verispec run --out' writes it.")],
    to: Annotated[Format, typer.Option("--format", help="How to render it.")] = Format.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Render a run file; the exit code is that of the command, not of the run."""
    verdict = summarise(runfile.read(run))
    match Format.JSON if as_json else to:
        case Format.TEXT:
            print_verdict(verdict, Console())
        case Format.MARKDOWN:
            print(as_markdown(verdict), end="")
        case Format.JSON:
            print(json.dumps(verdict.to_json(), indent=2))
        case Format.JUNIT:
            print(as_junit(verdict), end="")
