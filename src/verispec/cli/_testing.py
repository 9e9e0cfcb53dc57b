"""Options and outputs that several commands share, and the run itself."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verispec import exits
from verispec.errors import VerispecError
from verispec.report.diff import RunDiff, compare, markdown_lines, text_lines
from verispec.report.expectations import proposal
from verispec.report.github import as_github
from verispec.report.junit import as_junit
from verispec.report.markdown import as_markdown
from verispec.report.sarif import as_sarif
from verispec.report.text import complaints, print_verdict
from verispec.report.verdict import RunSummary, summarise
from verispec.run.plan import Plan
from verispec.run.progress import watcher
from verispec.run.runfile import Run
from verispec.run.session import Options, execute
from verispec.terminal import columns, wrapped
from verispec.whole_file import PatientWriter, require_place

EngineOption = Annotated[
    str | None, typer.Option("--engine", help="Engine to test (default: reference); see 'verispec engines'.")
]
OnlyOption = Annotated[list[str] | None, typer.Option(help="Case id, its beginning, or a pattern with *.")]
SuiteOption = Annotated[
    list[str] | None, typer.Option(help="Suite to run, or the path of a folder with one (default: all).")
]
SeedOption = Annotated[int | None, typer.Option(help="Seed of all random samples (default: a new one each day).")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu or cuda (default: the engine's own choice).")]
TimeoutOption = Annotated[float | None, typer.Option(min=0.1, help="Seconds per case (default: 120, on CUDA 300).")]
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
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
JunitOption = Annotated[Path | None, typer.Option(help="Also write JUnit XML to this file.")]
SarifOption = Annotated[Path | None, typer.Option(help="Also write SARIF to this file.")]
MarkdownOption = Annotated[Path | None, typer.Option(help="Also write a Markdown page to this file.")]
OnOption = Annotated[str, typer.Option("--on", help="ray, ray://HOST:PORT, or 'local' for processes of this machine.")]
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
    against: Run | None = None
    """An older run: only cases that fail now and did not fail there count."""
    proposal: Path | None = None
    """File for a proposal of known failures."""

    def __post_init__(self) -> None:
        """Refuse a file that cannot be written before the run starts."""
        for option in ("junit", "sarif", "markdown"):
            require_place(getattr(self, option), f"--{option}")


def is_cluster(on: str) -> bool:
    """Return whether --on names a Ray cluster.

    Raises:
        VerispecError: V-FLEET-ON, it names no place.
    """
    if on == "local":
        return False
    if on == "ray" or on.startswith("ray://"):
        return True
    raise VerispecError(
        "V-FLEET-ON", f"there is no place {on!r}", where="--on", hint="places are local, ray and ray://HOST:PORT"
    )


def test(plan: Plan, options: Options, outputs: Outputs) -> tuple[int, Run]:
    """Run `plan` and write `outputs`. Return the exit code and the run."""
    run, path = execute(plan, options, watcher())
    summary = summarise(run)
    found = compare(outputs.against, run, errors_only=outputs.errors_only) if outputs.against else None
    code = found.exit_code if found else summary.exit_code(errors_only=outputs.errors_only)
    if found and (summary.stale or summary.unmatched):
        code = exits.BAD
    writer = PatientWriter()
    _write_files(writer, summary, outputs, found)
    if outputs.as_json:
        shown = found.to_json() if found else summary.to_json(errors_only=outputs.errors_only)
        print(json.dumps({**shown, "exit": code}, indent=2), flush=True)
        writer.close()
        return code, run
    if found:
        wide = columns()
        wrong = [line for complaint in complaints(summary) for line in wrapped(complaint, wide)]
        print("\n".join([*text_lines(found, wide), *wrong, "", f"exit {code}"]))
    else:
        print_verdict(summary, Console(), errors_only=outputs.errors_only)
    if outputs.github:
        print(as_github(replace(summary, causes=found.causes) if found else summary), end="")
    if outputs.proposal is not None and outputs.proposal.exists():
        print(f"proposal of known failures: {outputs.proposal}")
    print(f"results file: {path}", flush=True)
    writer.close()
    return code, run


def _write_files(writer: PatientWriter, summary: RunSummary, outputs: Outputs, found: RunDiff | None) -> None:
    def markdown(verdict: RunSummary) -> str:
        return "\n".join(markdown_lines(found)) + "\n" if found else as_markdown(verdict)

    for path, render in ((outputs.junit, as_junit), (outputs.sarif, as_sarif), (outputs.markdown, markdown)):
        if path is not None:
            hint = "render it from the results file with: verispec report"
            writer.write(path, render(summary), what="the report", hint=hint)
    if outputs.proposal is not None:
        writer.write(outputs.proposal, proposal(summary.run), what="the proposal of known failures")
