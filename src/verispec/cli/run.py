"""``verispec run``: judge an engine by the suites."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verispec import exits, expectations
from verispec.report.text import print_verdict
from verispec.report.verdict import summarise
from verispec.run import runfile
from verispec.run.plan import TIMEOUT, Plan, seed_of_today
from verispec.run.progress import watcher
from verispec.run.session import Files, command_line, execute
from verispec.run.supervisor import Supervisor

app = typer.Typer(add_completion=False)


@app.command()
def run(
    engine: Annotated[str, typer.Option("--engine", help="The engine to judge; see 'verispec engines'.")] = "reference",
    only: Annotated[list[str] | None, typer.Option(help="Case id, its beginning, or a pattern with *.")] = None,
    suite: Annotated[
        list[str] | None, typer.Option(help="Suite to run, or the path of a folder with one; all if omitted.")
    ] = None,
    processes: Annotated[int, typer.Option("-n", min=1, help="Processes that judge at the same time.")] = 1,
    seed: Annotated[int | None, typer.Option(help="Seed of everything that is drawn; a new one each day.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; the engine's own choice when left out.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds a case may take.")] = TIMEOUT,
    out: Annotated[Path | None, typer.Option(help="Run file to write; in the user's cache when left out.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Run file of an interrupted run to go on with.")] = None,
    expect: Annotated[Path | None, typer.Option(help="TOML file of known failures.")] = None,
    errors_only: Annotated[bool, typer.Option("--errors-only", help="Notes do not make the run bad.")] = False,
    collect: Annotated[bool, typer.Option("--collect", help="List the cases and judge nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as JSON.")] = False,
) -> None:
    """Judge an engine by the suites.

    Ends with 0 when nothing unexpected was found, 1 when something was, 125 when nothing can be said,
    2 when the command was wrong.
    """
    plan = Plan(
        engine,
        device,
        only=tuple(only or ()),
        suites=tuple(suite or ()),
        seed=_seed(seed, resume),
        processes=processes,
        timeout=timeout,
    )
    if collect:
        cases = Supervisor(plan).collect().selected
        print(json.dumps({"cases": cases}, indent=2) if as_json else "\n".join(cases))
        raise typer.Exit(exits.GOOD if cases else exits.CANNOT_TELL)
    known = expectations.load(expect) if expect else ()
    done, path = execute(plan, Files(out, resume), known, command_line(), watcher())
    verdict = summarise(done)
    if as_json:
        print(json.dumps(verdict.to_json(errors_only=errors_only), indent=2))
    else:
        print_verdict(verdict, Console(), errors_only=errors_only)
        print(f"written to {path}")
    raise typer.Exit(verdict.exit_code(errors_only=errors_only))


def _seed(asked: int | None, resumed: Path | None) -> int:
    """The seed that was asked for, else that of the run to go on with, else today's."""
    if asked is not None:
        return asked
    return int(runfile.read(resumed).header["seed"]) if resumed else seed_of_today()
