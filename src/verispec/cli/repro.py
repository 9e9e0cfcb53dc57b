"""``verispec repro``: run one case again, alone, and show everything about it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from verispec import exits
from verispec.cases import CaseId
from verispec.cli import _testing as t
from verispec.errors import VerispecError
from verispec.report.case import case_lines
from verispec.report.causes import rule_of
from verispec.run import captured_call
from verispec.run.plan import BUDGET, CLOSE_TIMEOUT, SEED, START_TIMEOUT, TIMEOUT, Plan, named_suite, require_budget
from verispec.run.progress import watcher
from verispec.run.record import FAILING, SAVED, Record
from verispec.run.session import judge_one
from verispec.saved_calls import file as files
from verispec.saved_calls import record_folder
from verispec.saved_calls.record_folder import MADE_BY, SUFFIX
from verispec.terminal import columns, wrapped

app = typer.Typer(add_completion=False)


@app.command()
def repro(
    case: Annotated[str, typer.Argument(help="Case id, as reports print it, or the file of a saved case.")],
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine", help="The engine to test; see 'verispec engines' (default: reference, or the file's engine)."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help=f"Seed of everything that is drawn (default: {SEED}, or the file's).")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: the engine's own choice).")] = None,
    budget: Annotated[str, typer.Option(help="Sample sizes: quick, standard or nightly.")] = BUDGET,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds the case may take.")] = TIMEOUT,
    start_timeout: t.StartOption = START_TIMEOUT,
    close_timeout: t.CloseOption = CLOSE_TIMEOUT,
    suite: Annotated[
        list[str] | None, typer.Option(help="Suite of the case, or the path of a folder with one (default: all).")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print every array whole.")] = False,
    save: Annotated[
        Path | None, typer.Option(help="Write inputs, outputs and expected values to this .npz file.")
    ] = None,
    shrink: Annotated[
        Path | None,
        typer.Option(help="Make the failing call small, and write it to this file, which repro runs on any engine."),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(help="Write the failing call as a test of the engine alone to this file, and run it once."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Run one case again, alone, and show everything about it: inputs, outputs, what was expected, and the traceback.

    Exit codes: 0 it passes, 1 it fails, crashes or hangs, 125 it cannot be tested, as 'git bisect run' wants them; 125
    also if it fails and a file that --shrink or --export asks for cannot be written.

    Examples:

        verispec repro 'sampler/expand_batch_to_tokens:EXP-2:dtype=float32;cu=int32' --engine vllm

        verispec repro 'sampler/whole_sampler:WS-7:batch=mixed' --engine my_engine:Engine --full --save case.npz

        verispec repro 'sampler/expand_batch_to_tokens:EXP-2:dtype=float32;cu=int32' --engine vllm --export test_bug.py

        verispec repro case.safetensors --engine my_engine:Engine
    """
    saved = files.read(Path(case)) if case.endswith(SUFFIX) else None
    if saved is None:
        CaseId.parse(case)
    require_writable(save)
    require_budget(budget)
    require_new(shrink, "--shrink", SUFFIX)
    require_new(export, "--export", ".py")
    with tempfile.TemporaryDirectory(prefix="verispec-repro-") as folder:
        scratch = Path(folder)
        values = save or scratch / "values.npz"
        own = [saved.suite] if saved and saved.suite else []
        plan = Plan(
            engine or (saved.engine if saved else "reference"),
            device,
            only=(saved.case if saved else case,),
            exact=True,
            suites=tuple(map(named_suite, suite or own)),
            seed=seed if seed is not None else saved.seed if saved else SEED,
            timeout=timeout,
            start_timeout=start_timeout,
            close_timeout=close_timeout,
            budget=budget,
            detail=True,
            save=values if full else save,
            replay=Path(case) if saved and (saved.op or saved.step) else None,
            shrink=scratch / f"small{SUFFIX}" if shrink or export else None,
            record=scratch if shrink or export else None,
        )
        header, record = judge_one(plan)
        call = captured_call.read(values) if full and values.exists() else None
        told = {"saved": str(save)} if save and save.exists() else {}
        unwritten: VerispecError | None = None
        if record.failed and plan.record:
            try:
                _write(plan, plan.record, record, shrink, export, told)
            except VerispecError as error:
                unwritten = error
            details = {k: v for k, v in record.failure.get("details", {}).items() if k != SAVED}
            record = replace(record, failure={**record.failure, "details": details})  # that file is gone by now
    code = unwritten.exit_code if unwritten else exit_code(record)
    if as_json:
        print(json.dumps(to_json(header, record, code, told), indent=2))
    else:
        said = [line for name, text in told.items() for line in wrapped(_SAID[name].format(text), columns())]
        print("\n".join([*case_lines(record, header, call, columns()), "", *said, f"exit {code}"]), flush=True)
    if unwritten:
        raise unwritten
    raise typer.Exit(code)


EXPORT = "V-REPRO-EXPORT"
_SAID = {
    "saved": "values in {}",
    "shrunk": "the call was shrunk in {} trials, each in a process of its own",
    "not_shrunk": "the last call alone does not fail in this way, so it was not shrunk ({} trial)",
    "kept": "{}: the file keeps the case by its id and seed, and nothing was made small",
    "case_file": "case in {}",
    "checkpoints": "checkpoints of the test in {}",
    "test_file": "test in {}",
    "test_result": "run here without verispec, the test {}",
}
"""Sentences for files that were written."""


def _write(
    plan: Plan, folder: Path, record: Record, shrink: Path | None, export: Path | None, told: dict[str, str]
) -> None:
    """Write the files that --shrink and --export ask for, from the worker's files; add facts about them to `told`.

    Raises:
        VerispecError: V-REPRO-EXPORT, the case has no test; V-CLI-WRITE, a file cannot be written.
    """
    left = plan.shrink if plan.shrink and record.outcome == "fail" else record_folder.kept(folder, record.id)
    case = files.read(left)
    if record.outcome != "fail":  # the worker had no time to say how it ended
        case = replace(case, failure={"kind": record.outcome, "message": record.message})
        if case.op:
            from verispec.saved_calls import crashes

            with watcher() as listener:
                small = crashes.shrunk(plan, case, listener.waiting)
            case = replace(small.case, failure={"kind": record.outcome, "message": small.message})
            told["shrunk" if small.repeats else "not_shrunk"] = f"{small.trials:,}"
    if shrink:
        if record.outcome == "fail" and not (case.op or case.step or case.text):
            told["kept"] = "no single call is wrong for certain"
        files.write(shrink, case)
        told["case_file"] = str(shrink)
    if export:
        if case.text:
            from verispec.saved_calls.texts import copy_checkpoints

            case = replace(case, text=copy_checkpoints(case.text, export))
            told["checkpoints"] = str(export.with_name(f"{export.stem}_*"))
        files.write(left, case)
        judged = judge_one(replace(plan, replay=left, shrink=None, record=None, save=None, export=export))[1]
        if judged.outcome != "pass":
            cause, own = _cause_and_hint(judged.message)
            kept = "--shrink keeps the case as a file, which 'verispec repro FILE' runs"
            raise VerispecError(
                EXPORT,
                "the test cannot be written",
                where=f"--export {export}",
                cause=cause,
                hint=f"{own}; {kept}" if own else kept,
                exit_code=exits.CANNOT_TELL,
            )
        told |= {"test_file": str(export), "test_result": ran(export, plan.timeout)}


def _cause_and_hint(message: str) -> tuple[str, str]:
    """Return cause and hint of an error V-REPRO-EXPORT of the worker; another message is a cause without a hint."""
    _, is_own, text = message.partition(f"{EXPORT} ")
    if not is_own:
        return message, ""
    cause, _, hint = text.partition("\n  hint:")
    return cause.partition(": ")[2] or cause, hint.strip()


def ran(test: Path, timeout: float) -> str:
    """Run an exported test in a process of its own; return how it ended, as a verb, with the reason of a failure."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(test.absolute())]
    wide = {**os.environ, "COLUMNS": str(1 << 16)}  # pytest cuts the reason of a failure at the width
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=timeout + START_TIMEOUT, check=False, env=wide, text=True,
            errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode < 0:
        return "crashes"
    reason = next((line.partition(" - ")[2] for line in done.stdout.splitlines() if line.startswith("FAILED ")), "")
    failed = f"fails: {reason}" if reason else "fails"
    return {0: "passes", 1: failed}.get(done.returncode, "cannot run")


def require_new(path: Path | None, option: str, suffix: str) -> None:
    """Raise VerispecError V-REPRO-SAVE unless a new file can be made at `path`, or one of its kind is there."""
    if path is None:
        return
    reason = ""
    if path.suffix != suffix:
        reason = f"the name does not end in {suffix}"
    elif not path.absolute().parent.is_dir():
        reason = "the folder does not exist"
    elif path.exists() and not path.is_file():
        reason = "it exists and is not a file"
    elif path.exists() and suffix == SUFFIX:
        files.read(path)  # raises for another file of tensors
    elif path.exists() and MADE_BY not in path.read_text(encoding="utf-8", errors="replace"):
        reason = "it exists and is not an exported test"
    if reason:
        raise VerispecError("V-REPRO-SAVE", reason, where=f"{option} {path}", hint=f"name a new file *{suffix}")


def require_writable(path: Path | None) -> None:
    """Raise VerispecError V-REPRO-SAVE unless a file can be made at `path`; a file of another kind is not replaced."""
    if path is None:
        return
    reason = "the folder does not exist" if not path.absolute().parent.is_dir() else ""
    if path.is_dir() or (path.exists() and not (path.is_file() and zipfile.is_zipfile(path))):
        reason = "it exists and is no .npz file"
    if reason:
        raise VerispecError(
            "V-REPRO-SAVE", reason, where=f"--save {path}", hint="name a new file, for instance case.npz, in a folder"
        )


def exit_code(record: Record) -> int:
    """Return 0 for a pass, 1 for a failure, 125 for anything else."""
    if record.outcome == "pass":
        return exits.GOOD
    return exits.BAD if record.outcome in FAILING else exits.CANNOT_TELL


def to_json(header: dict[str, Any], record: Record, code: int, told: dict[str, str]) -> dict[str, Any]:
    """Return the case as JSON, with the files that were written."""
    clause = record.case.clause
    case = {**record.to_json(), "clause": {"id": clause, "text": rule_of(record)}, "level": record.level}
    return {"header": header, "case": case, "exit": code, **told}
