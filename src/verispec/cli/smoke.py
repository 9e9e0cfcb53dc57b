"""``verispec smoke``: test an engine with one quick case of every clause."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from verispec import expectations
from verispec.cli import _testing as t
from verispec.run.coverage import CLAIMED, parse_floor
from verispec.run.plan import CLOSE_TIMEOUT, START_TIMEOUT, Plan, named_suite, seed_of_today
from verispec.run.session import Brakes, Files, Options

TIMEOUT = 60.0
"""Seconds per case: a kernel that hangs must not turn seconds into minutes."""
MAX_CRASHES = 5
"""Crashes and hangs after which the run stops: an engine that hangs everywhere costs five minutes."""

PROCESSES = min(2, os.cpu_count() or 1)
"""Worker processes; a second one halves the time of all cases, and not that of the start."""

app = typer.Typer(add_completion=False)


@app.command()
def smoke(
    engine: t.EngineOption = None,
    only: t.OnlyOption = None,
    suite: t.SuiteOption = None,
    processes: Annotated[
        int,
        typer.Option("-n", min=1, help="Worker processes (default: 2, as far as there are cores).", show_default=False),
    ] = PROCESSES,
    seed: t.SeedOption = None,
    device: t.DeviceOption = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds per case.")] = TIMEOUT,
    start_timeout: t.StartOption = START_TIMEOUT,
    close_timeout: t.CloseOption = CLOSE_TIMEOUT,
    out: t.OutOption = None,
    expect: t.ExpectOption = None,
    min_judged: t.FloorOption = None,
    max_crashes: t.CrashesOption = MAX_CRASHES,
    exit_first: t.FirstOption = False,
    max_time: t.MaxTimeOption = None,
    errors_only: t.ErrorsOption = False,
    junit: t.JunitOption = None,
    sarif: t.SarifOption = None,
    markdown: t.MarkdownOption = None,
    github: t.GithubOption = False,
    as_json: t.JsonOption = False,
) -> None:
    """Test an engine with the first quick case of every clause, as a quick check. Nothing is generated.

    Exit codes are those of 'verispec run'.

    Examples:

        verispec smoke --engine my_engine:Engine

        verispec smoke --engine my_engine:Engine --only sampler/rejection_random_sample
    """
    given: dict[str, Any] = {
        "engine": engine,
        "device": device,
        "seed": seed,
        "processes": processes,
        "timeout": timeout,
    }
    given |= {"only": tuple(only or ()), "suites": tuple(map(named_suite, suite or ()))}
    given = {
        "engine": "reference",
        "seed": seed_of_today(),
        **{name: value for name, value in given.items() if value is not None},
    }
    plan = Plan(**given, start_timeout=start_timeout, close_timeout=close_timeout, smoke=True)
    options = Options(
        Files(out),
        expectations.load(expect) if expect else (),
        Brakes(max_crashes, exit_first, max_time),
        parse_floor(min_judged or CLAIMED),
    )
    raise typer.Exit(t.test(plan, options, t.Outputs(as_json, errors_only, junit, sarif, markdown, github))[0])
