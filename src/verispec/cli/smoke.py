"""``verispec smoke``: judge an engine by one quick case of every kind."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from verispec.report.text import print_verdict
from verispec.report.verdict import summarise
from verispec.run.plan import Plan, seed_of_today
from verispec.run.progress import watcher
from verispec.run.session import Files, command_line, execute

TIMEOUT = 60.0
"""Seconds a case may take: a kernel that hangs must not make minutes of seconds."""

app = typer.Typer(add_completion=False)


@app.command()
def smoke(
    engine: Annotated[str, typer.Option("--engine", help="The engine to judge; see 'verispec engines'.")] = "reference",
    seed: Annotated[int | None, typer.Option(help="Seed of everything that is drawn; a new one each day.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; the engine's own choice when left out.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds a case may take.")] = TIMEOUT,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as JSON.")] = False,
) -> None:
    """Judge an engine by the first case of every clause: whether it works at all, in seconds.

    Ends with the exit codes of 'verispec run'.
    """
    plan = Plan(engine, device, seed=seed_of_today() if seed is None else seed, timeout=timeout, smoke=True)
    done, _ = execute(plan, Files(), (), command_line(), watcher())
    verdict = summarise(done)
    if as_json:
        print(json.dumps(verdict.to_json(), indent=2))
    else:
        print_verdict(verdict, Console())
    raise typer.Exit(verdict.exit_code())
