"""``verispec signatures``: does every caller bind to every implementation, in any tree, revision or release?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verispec.cache_folder import writable_cache
from verispec.errors import VerispecError
from verispec.report.signatures import as_json
from verispec.report.signatures_check import Request, check
from verispec.report.signatures_ci import as_github, as_junit
from verispec.report.signatures_markdown import as_markdown
from verispec.report.signatures_sarif import as_sarif
from verispec.report.signatures_text import print_patches, print_text
from verispec.static import Level
from verispec.static.baseline import as_baseline
from verispec.static.sources.progress import shown_progress
from verispec.whole_file import PatientWriter, require_place

app = typer.Typer(add_completion=False)


@app.command()
def signatures(
    tree: Annotated[str, typer.Argument(help="A folder, folder#REV, an sdist or wheel, or name==version.")] = ".",
    core: Annotated[str, typer.Option(help="The host tree that TREE plugs into, e.g. vllm==0.18.0.")] = "",
    since: Annotated[
        str, typer.Option(metavar="REV", help="Report only what is new since this revision of TREE, or this tree.")
    ] = "",
    core_since: Annotated[
        str, typer.Option(metavar="HOST", help="Report only what TREE loses between this host and --core.")
    ] = "",
    rule: Annotated[list[str] | None, typer.Option(help="Apply this rule only; repeatable.")] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Omit these files or folders; repeatable.")
    ] = None,
    baseline: Annotated[Path | None, typer.Option(help="Omit the findings that this file accepts.")] = None,
    write_baseline: Annotated[Path | None, typer.Option(help="Write a file that accepts all findings.")] = None,
    types: Annotated[
        bool, typer.Option("--types", help="Check plain Python with Pyrefly too; needs --since or --core-since.")
    ] = False,
    patches: Annotated[
        bool, typer.Option("--patches", help="List what TREE replaces in its host, and its state.")
    ] = False,
    level: Annotated[Level, typer.Option(help="Lowest severity to print.")] = Level.WARNING,
    fail_on: Annotated[Level, typer.Option(help="Lowest severity that makes the exit code 1.")] = Level.ERROR,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    github: Annotated[bool, typer.Option("--github", help="Print GitHub annotations as well.")] = False,
    sarif: Annotated[Path | None, typer.Option(help="Write SARIF 2.1.0 to this file.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown for a comment to this file.")] = None,
) -> None:
    """Check that every caller binds to every implementation. Nothing of the tree is imported, built or run.

    Exit codes: 0 good, 1 a finding of the level --fail-on, 125 cannot tell, 2 usage.

    Examples:

        verispec signatures path/to/vllm

        verispec signatures vllm==0.33.0 --rule SIG101
    """
    if patches and not core:
        raise VerispecError(
            "V-PATCHES",
            "--patches lists what a plugin replaces, and --core is missing",
            hint="name the host with --core",
        )
    for option, file in (
        ("--sarif", sarif), ("--junit", junit), ("--markdown", markdown), ("--write-baseline", write_baseline)
    ):  # fmt: skip
        require_place(file, option)
    request = Request(tree, core, since, core_since, tuple(rule or ()), tuple(exclude or ()), baseline, types, fail_on)
    with writable_cache() as unwritable, shown_progress() as progress:
        if unwritable is not None:
            print(f"{unwritable}\n  continuing without a cache", file=sys.stderr)
        outcome, findings = check(request, progress)
    writer = PatientWriter()
    for path, text in ((sarif, as_sarif), (junit, as_junit), (markdown, as_markdown)):
        if path is not None:
            _write(writer, path, text(outcome))
    if write_baseline is not None:
        _write(writer, write_baseline, as_baseline(findings))
    if json:
        print(as_json(outcome))
    else:
        console = Console(highlight=False, markup=False, emoji=False)
        if patches:
            print_patches(outcome, console)
        print_text(outcome, console, level=level)
        if github and (annotations := as_github(outcome)):
            print(annotations)
    sys.stdout.flush()
    writer.close()
    raise typer.Exit(outcome.exit_code)


def _write(writer: PatientWriter, path: Path, text: str) -> None:
    if writer.write(path, text, what="the report"):
        print(f"wrote {path}", file=sys.stderr)
