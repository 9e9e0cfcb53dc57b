"""``verispec report``: render results files."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verispec.errors import VerispecError
from verispec.report.badge import as_badge
from verispec.report.junit import as_junit
from verispec.report.markdown import as_markdown
from verispec.report.svg import as_svg
from verispec.report.text import print_verdict
from verispec.report.verdict import RunSummary, summarise
from verispec.run import runfile
from verispec.run.files import named
from verispec.whole_file import require_place, write_whole

app = typer.Typer(add_completion=False)


class ReportFormat(StrEnum):
    """Output format of a report."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"
    JUNIT = "junit"
    HTML = "html"
    SVG = "svg"
    BADGE = "badge"


@app.command()
def report(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Results files of 'verispec run', or 'last'; for HTML also 'verispec signatures --json' output."
        ),
    ],
    to: Annotated[
        ReportFormat,
        typer.Option("--format", metavar="FORMAT", help=f"{', '.join(ReportFormat)}; only html takes several files."),
    ] = ReportFormat.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    out: Annotated[Path | None, typer.Option(help="File to write instead of standard output.")] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show the HTML page on this machine and follow the run.")
    ] = False,
    site: Annotated[
        Path | None,
        typer.Option(help="Folder for a site: a page and a badge per run, and an index that compares the runs."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port for --serve; 0 chooses a free one.")] = 0,
) -> None:
    """Render results files. The exit code is that of the command, not of the run.

    Examples:

        verispec report last

        verispec report run.jsonl --format html --out report.html

        verispec report vllm-0.32.jsonl vllm-0.33.jsonl signatures.json --format html --out matrix.html

        verispec report run.jsonl --serve

        verispec report vllm-0.32.jsonl vllm-0.33.jsonl --site verdicts
    """
    require_place(out, "--out")
    files = [named(path) for path in files]
    if site is not None:
        from verispec.report.html.inputs import read_all
        from verispec.report.html.site import write_site

        runs, findings = read_all(files)
        written = [str(path) for path in write_site(site, runs, findings)]
        print(json.dumps({"written": written}, indent=2) if as_json else f"written: {written[0]}")
        return
    if serve:
        from verispec.report.html import serve as live

        live.serve(files, port)
        return
    text = _rendered(files, ReportFormat.JSON if as_json else to)
    if out is None:
        sys.stdout.write(text)
        return
    write_whole(out, text, what="the report")
    print(f"written to {out}")


def _rendered(files: Sequence[Path], to: ReportFormat) -> str:
    if to is ReportFormat.HTML:
        from verispec.report.html import as_html
        from verispec.report.html.inputs import read_all

        runs, findings = read_all(files)
        return as_html(runs, findings=findings)
    if len(files) > 1:
        raise VerispecError(
            "V-REPORT-SEVERAL",
            f"{len(files)} files given; the format {to} shows one run",
            where="--format",
            hint="use --format html, or compare two runs with: verispec diff BASE HEAD",
        )
    verdict = summarise(runfile.read(files[0]))
    match to:
        case ReportFormat.TEXT:
            return _printed(verdict, Console(file=io.StringIO(), force_terminal=sys.stdout.isatty()))
        case ReportFormat.MARKDOWN:
            return as_markdown(verdict)
        case ReportFormat.JSON:
            return json.dumps(verdict.to_json(), indent=2) + "\n"
        case ReportFormat.JUNIT:
            return as_junit(verdict)
        case ReportFormat.SVG:
            return as_svg(verdict)
        case ReportFormat.BADGE:
            return as_badge(verdict)
    raise AssertionError(to)


def _printed(verdict: RunSummary, console: Console) -> str:
    print_verdict(verdict, console)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()
