"""``verispec run``: test an engine with the suites."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from verispec import exits, expectations
from verispec.cli import _testing as t
from verispec.errors import VerispecError
from verispec.expectations import Expectation
from verispec.run import runfile
from verispec.run.coverage import CLAIMED, parse_floor
from verispec.run.files import last_run_file, named
from verispec.run.plan import CLOSE_TIMEOUT, CUDA_TIMEOUT, START_TIMEOUT, Plan, named_suite, seed_of_today
from verispec.run.quickest import quickest
from verispec.run.resume import restored_plan
from verispec.run.session import MAX_CRASHES, Brakes, Files, Options, require_selection
from verispec.run.supervisor import Supervisor
from verispec.run.watching import times, wait_for_change
from verispec.terminal import printable
from verispec.whole_file import made_folder

app = typer.Typer(add_completion=False)


@app.command()
def run(
    context: typer.Context,
    engine: t.EngineOption = None,
    only: t.OnlyOption = None,
    suite: t.SuiteOption = None,
    last_failed: Annotated[
        bool, typer.Option("--last-failed", help="Run the failing cases of the engine's last run.")
    ] = False,
    processes: t.ProcessesOption = None,
    seed: t.SeedOption = None,
    device: t.DeviceOption = None,
    timeout: t.TimeoutOption = None,
    start_timeout: t.StartOption = START_TIMEOUT,
    close_timeout: t.CloseOption = CLOSE_TIMEOUT,
    out: t.OutOption = None,
    resume: Annotated[
        Path | None, typer.Option(help="Results file of an interrupted run to complete, or 'last' for the last one.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Folder for each failing case as a file, with the inputs of its last launch, crash or not."),
    ] = None,
    expect: t.ExpectOption = None,
    update_expectations: Annotated[
        Path | None,
        typer.Option(help="File for a proposal of known failures: current entries, and new ones without their issue."),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Older results file, or 'last': exit with 1 only for cases that did not fail there."),
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Run cases of --against that took this many seconds: one of every clause, then the quickest.",
        ),
    ] = None,
    min_judged: t.FloorOption = None,
    max_crashes: t.CrashesOption = MAX_CRASHES,
    exit_first: t.FirstOption = False,
    max_time: t.MaxTimeOption = None,
    errors_only: t.ErrorsOption = False,
    watch: Annotated[
        list[Path] | None,
        typer.Option(help="Folder with sources: run again after each change, failing cases alone until they pass."),
    ] = None,
    collect: Annotated[
        bool,
        typer.Option("--collect", help="List the cases and run nothing; with --resume, those without a result."),
    ] = False,
    junit: t.JunitOption = None,
    sarif: t.SarifOption = None,
    markdown: t.MarkdownOption = None,
    github: t.GithubOption = False,
    as_json: t.JsonOption = False,
) -> None:
    """Test an engine with the suites.

    Exit codes: 0 nothing unexpected; 1 an unexpected failure; 125 cannot tell: the engine does not start, the run is
    not complete, or it tested too little; 2 wrong usage.

    Examples:

        verispec run --engine vllm -n 2

        verispec run --engine my_engine:Engine --suite sampler -x

        verispec run --resume last

        verispec run --engine my_engine:Engine --only sampler/expand_batch_to_tokens --watch .

        verispec run --engine vllm --against main.jsonl --markdown summary.md

        verispec run --engine vllm --against main.jsonl --within 240 -n 2

        verispec run --engine vllm --expect known.toml --update-expectations proposal.toml
    """
    base = runfile.read(named(against)) if against else None
    given: dict[str, Any] = {
        "engine": engine,
        "device": device,
        "only": tuple(only) if only else None,
        "suites": tuple(map(named_suite, suite)) if suite else None,
        "seed": seed,
        "processes": processes,
        "timeout": CUDA_TIMEOUT if timeout is None and device == "cuda" else timeout,
    }
    given = {name: value for name, value in given.items() if value is not None}
    kept = record and made_folder(record, "--record", "V-RUN-RECORD")
    given |= {"start_timeout": start_timeout, "close_timeout": close_timeout, "record": kept}
    if last_failed:
        given |= _last_failed(engine or "reference", context)
    if within is not None:
        given |= _within(within, base, context, processes or 1)
    if update_expectations is not None:
        expectations.require_proposal(update_expectations, expect)
    known: tuple[Expectation, ...] | None = expectations.load(expect) if expect else None
    has_result: frozenset[str] = frozenset()
    if resume is not None:
        resume = named(resume)
        old = runfile.read(resume)
        has_result, header = frozenset(record.id for record in old.records), old.header
        plan = restored_plan(given, header, resume)
        known = tuple(Expectation(**entry) for entry in header.get("expectations", ())) if known is None else known
        min_judged = min_judged or header.get("min_judged") or CLAIMED
    else:
        # Generated cases are only the same cases under the same seed.
        usual = {"engine": "reference", "seed": base.header["seed"] if base else seed_of_today()}
        plan = Plan(**{**usual, **given})
        if base is not None and (older := str(base.header["engine"]["asked"])) != plan.engine:
            note = f"--against: the older run is of {older}, this one of {plan.engine}: other failures, other times"
            print(printable(note), file=sys.stderr, flush=True)
    if collect:
        collected = Supervisor(plan).collect()
        require_selection(plan, collected)
        cases = [case for case in collected.selected if case not in has_result]
        text = json.dumps({"cases": cases}, indent=2) if as_json else "\n".join(cases)
        print(text, end="\n" if text else "")
        raise typer.Exit(exits.GOOD if cases or resume else exits.CANNOT_TELL)
    options = Options(
        Files(out, resume),
        known or (),
        Brakes(max_crashes, exit_first, max_time, _failing(base)),
        parse_floor(min_judged or CLAIMED),
    )
    outputs = t.Outputs(as_json, errors_only, junit, sarif, markdown, github, base, update_expectations)
    if watch:
        raise typer.Exit(_watch(plan, options, outputs, watch))
    raise typer.Exit(t.test(plan, options, outputs)[0])


def _watch(plan: Plan, options: Options, outputs: t.Outputs, folders: list[Path]) -> int:
    """Run `plan` after each change of a source file until Ctrl-C; cases that failed run alone until they pass.

    Returns:
        The exit code of the last run.
    """
    for folder in folders:
        if not folder.is_dir():
            raise VerispecError(
                "V-RUN-WATCH",
                f"{str(folder)!r} is not a folder",
                where="--watch",
                hint="name an existing folder of source files",
            )
    code = exits.CANNOT_TELL
    failed: tuple[str, ...] = ()
    try:
        while True:
            before = times(folders)
            chosen = replace(plan, only=failed, exact=True) if failed else plan
            try:
                code, run = t.test(chosen, options, outputs)
            except VerispecError as error:  # an engine in the middle of an edit may not start
                print(printable(f"verispec: {error}"), file=sys.stderr, flush=True)
                code = error.exit_code
            else:
                if run.footer["reason"] == "interrupted":
                    return code
                alone, failed = bool(failed), tuple(r.id for r in run.records if r.failed and r.outcome != "xfail")
                if alone and not failed:  # now everything
                    continue
            print("waiting for a change; Ctrl-C ends", file=sys.stderr, flush=True)
            changed = wait_for_change(folders, before)
            print(f"changed: {', '.join(map(os.path.relpath, changed[:3]))}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        return code


def _failing(base: runfile.Run | None) -> frozenset[str]:
    return frozenset(record.id for record in base.records if record.failed) if base else frozenset()


def _within(seconds: float, base: runfile.Run | None, context: typer.Context, processes: int) -> dict[str, Any]:
    """Return the selection of the older run's cases that fit into `seconds`, and print how many they are.

    Raises:
        VerispecError: V-RUN-SELECT, there is no older run, nothing of it fits, or another option selects cases too.
    """
    _require_no_other_selection("--within", context, "only", "suite", "last_failed", "resume")
    if base is None:
        raise VerispecError(
            "V-RUN-SELECT",
            "without an older run no case has a known time",
            where="--within",
            hint="add --against FILE with the results of a run of all cases, or --against last",
        )
    found = quickest(base.records, seconds * processes)
    if not found.cases:
        raise VerispecError(
            "V-RUN-SELECT",
            f"no case of the older run took less than {seconds * processes:g} seconds",
            where="--within",
            hint="give more seconds",
        )
    text = f"--within {seconds:g}: {len(found.cases):,} of {len(base.records):,} cases, {found.seconds:.0f} s"
    if found.missing:
        text += f"; none of {len(found.missing)} clauses fits, such as {found.missing[0]}"
    print(text, file=sys.stderr, flush=True)
    return {"only": found.cases, "exact": True, "suites": tuple(base.header["selection"]["suites"])}


def _require_no_other_selection(option: str, context: typer.Context, *others: str) -> None:
    """Raise VerispecError V-RUN-SELECT if the command line selects cases by another option too."""
    typed = [n for n in others if getattr(context.get_parameter_source(n), "name", "") == "COMMANDLINE"]
    if typed:
        other = " and ".join(f"--{name.replace('_', '-')}" for name in typed)
        raise VerispecError(
            "V-RUN-SELECT",
            f"{option} selects the cases itself, and so does {other}",
            where=option,
            hint=f"omit {option}, or omit {other}",
        )


def _last_failed(engine: str, context: typer.Context) -> dict[str, Any]:
    """Return the selection of the cases that failed in the engine's last run; a configured selection is replaced.

    Raises:
        VerispecError: V-RUN-SELECT, no case failed, or the command line selects cases too.
    """
    _require_no_other_selection("--last-failed", context, "only", "suite")
    path = last_run_file(engine)
    last = runfile.read(path)
    failed = tuple(r.id for r in last.records if r.failed and r.outcome != "xfail")
    if not failed:
        raise VerispecError(
            "V-RUN-SELECT",
            f"no case failed in the last run of {engine!r}",
            where=str(path),
            hint="omit --last-failed to run every case",
        )
    return {"only": failed, "exact": True, "suites": tuple(last.header["selection"]["suites"])}
