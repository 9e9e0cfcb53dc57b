"""``verispec fleet``: test a matrix of engines, platforms and suites as one job."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verispec.cli import _testing as t
from verispec.errors import VerispecError
from verispec.fleet.driver import Folder, drive, new_folder, read_state
from verispec.fleet.fields import Table
from verispec.fleet.file import load
from verispec.fleet.local import LocalExecutor
from verispec.fleet.plan import FleetPlan
from verispec.fleet.progress import table_of, watcher
from verispec.fleet.report import FleetReport, print_fleet
from verispec.fleet.tasks import Executor
from verispec.run.session import MAX_CRASHES, Brakes
from verispec.whole_file import PatientWriter, require_place

app = typer.Typer(add_completion=False)


@app.command()
def fleet(
    file: Annotated[Path | None, typer.Argument(help="FLEET.toml: engines, platforms, suites, environments.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write (default: a new one in the user's cache).")] = None,
    resume: Annotated[Path | None, typer.Option(help="Folder of an interrupted fleet to complete.")] = None,
    status: Annotated[Path | None, typer.Option(help="Show the state of the fleet in this folder.")] = None,
    on: t.OnOption = "local",
    cores: Annotated[int | None, typer.Option(min=1, help="Cores of this machine to use (default: all).")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory to use, such as '8 GB' (default: what is free).")] = None,
    max_crashes: t.CrashesOption = MAX_CRASHES,
    max_time: t.MaxTimeOption = None,
    errors_only: t.ErrorsOption = False,
    html: Annotated[Path | None, typer.Option(help="Also write the matrix as an HTML page to this file.")] = None,
    cells: Annotated[bool, typer.Option("--cells", help="List the cells and run nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Test a matrix of engines, platforms and suites as one job.

    Each cell gets a results file of its own, as if 'verispec run' had written it. Exit codes: 0 nothing unexpected in
    any cell; 1 an unexpected failure; 125 cannot tell for a cell; 2 wrong usage.

    Examples:

        verispec fleet nightly.toml --out nightly --html matrix.html

        verispec fleet --resume nightly

        verispec fleet --status nightly --json

        verispec fleet nightly.toml --on ray://head:10001
    """
    if sum(given is not None for given in (file, resume, status)) != 1:
        raise VerispecError(
            "V-FLEET-WHAT",
            "FLEET.toml, --resume and --status name three different tasks",
            where="FLEET.toml",
            hint="give exactly one of them",
        )
    if status is not None:
        state = read_state(status)
        print(json.dumps(state, indent=2)) if as_json else Console().print(table_of(state["cells"]))
        return
    require_place(html, "--html")
    plan = load(file) if file else FleetPlan.from_json(read_state(resume or Path())["plan"])
    if cells:
        _list(plan, as_json=as_json)
        return
    executor = _executor(on, cores, memory)
    folder = Folder(resume or out or new_folder(re.sub(r"\W+", "-", file.stem if file else "fleet")))
    try:
        if resume is None:
            folder.begin(plan)
        done = drive(plan, folder, executor, watcher(), Brakes(max_crashes, max_time=max_time))
    finally:
        folder.close()
    writer = PatientWriter()
    report = FleetReport(done, errors_only=errors_only)
    if html is not None and report.runs:
        from verispec.report.html import as_html

        writer.write(html, as_html(report.runs), what="the report")
    if as_json:
        print(json.dumps({**report.to_json(), "folder": str(folder.path)}, indent=2), flush=True)
    else:
        print_fleet(report, Console())
        print(f"results files: {folder.path}", flush=True)
    writer.close()
    raise typer.Exit(report.exit_code)


def _executor(on: str, cores: int | None, memory: str | None) -> Executor:
    if t.is_cluster(on):
        from verispec.fleet.on_ray import RayExecutor

        return RayExecutor(on)
    size = Table(Path("--memory"), "", {"memory": memory}).memory("memory", 0) if memory else None
    return LocalExecutor(cores, size)


def _list(plan: FleetPlan, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(plan.to_json(), indent=2))
        return
    for cell in plan.cells:
        environment = cell.environment.name if cell.environment else "this environment"
        suites = " ".join(cell.plan.suites) or "all suites"
        print(f"{cell.name}  {cell.plan.engine}  {cell.platform or 'this platform'}  {environment}  {suites}")
