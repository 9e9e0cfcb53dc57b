"""``verispec diff``: compare two runs."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from verispec.report.diff import compare, markdown_lines, text_lines
from verispec.run import runfile
from verispec.run.files import named
from verispec.terminal import columns

app = typer.Typer(add_completion=False)


class DiffFormat(StrEnum):
    """Output format of a difference."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"


@app.command()
def diff(
    base: Annotated[Path, typer.Argument(help="The older results file, or 'last'.")],
    head: Annotated[Path, typer.Argument(help="The newer results file, or 'last'.")],
    to: Annotated[DiffFormat, typer.Option("--format", help="How to render the difference.")] = DiffFormat.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    errors_only: Annotated[
        bool, typer.Option("--errors-only", help="Ignore notes when computing the exit code.")
    ] = False,
) -> None:
    """Compare two runs case by case.

    Exit codes: 1 for cases that fail now and did not fail before. 125 when cases lost their result, the newer run is
    not complete, or no case is in both. 0 otherwise, however many known failures there are.

    Examples:

        verispec diff main.jsonl branch.jsonl

        verispec diff main.jsonl branch.jsonl --format markdown
    """
    found = compare(runfile.read(named(base)), runfile.read(named(head)), errors_only=errors_only)
    match DiffFormat.JSON if as_json else to:
        case DiffFormat.TEXT:
            print("\n".join([*text_lines(found, columns()), "", f"exit {found.exit_code}"]))
        case DiffFormat.MARKDOWN:
            print("\n".join(markdown_lines(found)))
        case DiffFormat.JSON:
            print(json.dumps(found.to_json(), indent=2))
        case DiffFormat.HTML:
            from verispec.report.html import as_html
            from verispec.report.verdict import summarise

            print(as_html([summarise(found.base), summarise(found.head)], diff=found))
    raise typer.Exit(found.exit_code)
