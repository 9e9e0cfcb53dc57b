"""Options and outputs that ``run`` and ``smoke`` share, and the run itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verispec import exits
from verispec.errors import VerispecError
from verispec.report.github import as_github
from verispec.report.junit import as_junit
from verispec.report.markdown import as_markdown
from verispec.report.sarif import as_sarif
from verispec.report.text import print_verdict
from verispec.report.verdict import RunSummary, summarise
from verispec.run.plan import Plan
from verispec.run.progress import watcher
from verispec.run.session import Options, execute

EngineOption = Annotated[
    str | None, typer.Option("--engine", help="Engine to test (default: reference); see 'verispec engines'.")
]
SeedOption = Annotated[int | None, typer.Option(help="Seed of all random samples (default: a new one each day).")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu or cuda (default: the engine's own choice).")]
TimeoutOption = Annotated[float | None, typer.Option(min=0.1, help="Seconds per case.")]
StartOption = Annotated[float, typer.Option(min=0.1, help="Seconds for importing and starting the engine.")]
CloseOption = Annotated[float, typer.Option(min=0.1, help="Seconds for closing the engine.")]
ProcessesOption = Annotated[int | None, typer.Option("-n", min=1, help="Worker processes (default: 1).")]
OutOption = Annotated[Path | None, typer.Option(help="Results file to write (default: a new one in the user's cache).")]
ExpectOption = Annotated[Path | None, typer.Option(help="TOML file of known failures.")]
FloorOption = Annotated[
    str | None,
    typer.Option(
        help="What must be decided for exit code 0: 'claimed' (a case of every op that the engine offers; the "
        "default), a number of cases, a percentage, or a results file whose decided cases must be decided again."
    ),
]
CrashesOption = Annotated[int, typer.Option(min=1, help="Stop after this many crashes and hangs.")]
FirstOption = Annotated[bool, typer.Option("-x", "--exitfirst", help="Stop at the first unexpected failure.")]
MaxTimeOption = Annotated[float | None, typer.Option(min=0.1, help="Stop after this many seconds.")]
ErrorsOption = Annotated[bool, typer.Option("--errors-only", help="Ignore notes when computing the exit code.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]
JunitOption = Annotated[Path | None, typer.Option(help="Also write JUnit XML to this file.")]
SarifOption = Annotated[Path | None, typer.Option(help="Also write SARIF to this file.")]
MarkdownOption = Annotated[Path | None, typer.Option(help="Also write a Markdown page to this file.")]
GithubOption = Annotated[bool, typer.Option("--github", help="Also print GitHub's workflow annotations.")]


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs of a run, beside its results file."""

    as_json: bool = False
    errors_only: bool = False
    junit: Path | None = None
    sarif: Path | None = None
    markdown: Path | None = None
    github: bool = False


def test(plan: Plan, options: Options, outputs: Outputs) -> int:
    """Run `plan`, write `outputs`, and return the exit code."""
    run, path = execute(plan, options, watcher())
    summary = summarise(run)
    code = summary.exit_code(errors_only=outputs.errors_only)
    _write_files(summary, outputs)
    if outputs.as_json:
        print(json.dumps(summary.to_json(errors_only=outputs.errors_only), indent=2))
        return code
    print_verdict(summary, Console(), errors_only=outputs.errors_only)
    if outputs.github:
        print(as_github(summary), end="")
    print(f"results file: {path}")
    return code


def _write_files(summary: RunSummary, outputs: Outputs) -> None:
    for path, render in ((outputs.junit, as_junit), (outputs.sarif, as_sarif), (outputs.markdown, as_markdown)):
        if path is None:
            continue
        try:
            path.write_text(render(summary), encoding="utf-8")
        except OSError as error:
            raise VerispecError(
                "V-CLI-WRITE",
                "the report cannot be written",
                where=str(path),
                cause=error.strerror or str(error),
                hint="render it from the results file with: verispec report",
                exit_code=exits.CANNOT_TELL,
            ) from error
