"""``verispec repro``: run one case again, alone, and show everything about it."""

from __future__ import annotations

import json
import tempfile
import zipfile
from pathlib import Path
from typing import Annotated, Any

import typer

from verispec import exits
from verispec.cases import CaseId
from verispec.errors import VerispecError
from verispec.report.case import case_lines, clause_text
from verispec.run import captured_call
from verispec.run.plan import BUDGET, SEED, TIMEOUT, Plan, named_suite, require_budget
from verispec.run.record import FAILING, Record
from verispec.run.session import judge_one

app = typer.Typer(add_completion=False)


@app.command()
def repro(
    case: Annotated[str, typer.Argument(help="Case id, as reports print it.")],
    engine: Annotated[str, typer.Option("--engine", help="The engine to test; see 'verispec engines'.")] = "reference",
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = SEED,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; default: the engine's own choice.")] = None,
    budget: Annotated[str, typer.Option(help="Sample sizes: quick, standard or nightly.")] = BUDGET,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds the case may take.")] = TIMEOUT,
    suite: Annotated[
        list[str] | None, typer.Option(help="Suite of the case, or the path of a folder with one (default: all).")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print every array whole.")] = False,
    save: Annotated[
        Path | None, typer.Option(help="Write inputs, outputs and expected values to this .npz file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the case as JSON.")] = False,
) -> None:
    """Run one case again, alone, and show everything about it: inputs, outputs, what was expected, and the traceback.

    Exit codes: 0 it passes, 1 it fails, crashes or hangs, 125 it cannot be judged, as 'git bisect run' wants them.

    Examples:

        verispec repro 'sampler/expand_batch_to_tokens:EXP-2:dtype=float32;cu=int32' --engine vllm

        verispec repro 'sampler/whole_sampler:WS-7:batch=mixed' --engine my_engine:Engine --full --save case.npz
    """
    CaseId.parse(case)
    require_writable(save)
    require_budget(budget)
    with tempfile.TemporaryDirectory(prefix="verispec-repro-") as folder:
        values = save or Path(folder) / "values.npz"
        plan = Plan(
            engine,
            device,
            only=(case,),
            exact=True,
            suites=tuple(map(named_suite, suite or ())),
            seed=seed,
            timeout=timeout,
            budget=budget,
            detail=True,
            save=values if full else save,
        )
        header, record = judge_one(plan)
        call = captured_call.read(values) if full and values.exists() else None
        saved = str(save) if save and save.exists() else ""
    code = exit_code(record)
    if as_json:
        print(json.dumps(to_json(header, record, code, saved), indent=2))
    else:
        print(
            "\n".join([*case_lines(record, header, call), "", *([f"values in {saved}"] * bool(saved)), f"exit {code}"])
        )
    raise typer.Exit(code)


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


def to_json(header: dict[str, Any], record: Record, code: int, saved: str = "") -> dict[str, Any]:
    """Return the case as JSON, with the file of its values if there is one."""
    clause = record.case.clause
    case = {**record.to_json(), "clause": {"id": clause, "text": clause_text(clause)}, "level": record.level}
    return {"header": header, "case": case, "exit": code} | ({"saved": saved} if saved else {})
