"""``verispec repro``: run one case again, alone, and show everything about it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from verispec import exits
from verispec.cases import CaseId
from verispec.report.case import case_lines, clause_text
from verispec.run.plan import SEED, TIMEOUT, Plan
from verispec.run.record import FAILING, Record
from verispec.run.session import judge_one

app = typer.Typer(add_completion=False)


@app.command()
def repro(
    case: Annotated[str, typer.Argument(help="Case id, as reports print it.")],
    engine: Annotated[str, typer.Option("--engine", help="The engine to judge; see 'verispec engines'.")] = "reference",
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = SEED,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; the engine's own choice when left out.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds the case may take.")] = TIMEOUT,
    as_json: Annotated[bool, typer.Option("--json", help="The case as JSON.")] = False,
) -> None:
    """Run one case again, alone, and show everything about it.

    Ends with 0 when it passes, 1 when it fails, crashes or hangs, 125 when nothing can be said: as
    'git bisect run' wants it.
    """
    CaseId.parse(case)
    plan = Plan(engine, device, only=(case,), exact=True, seed=seed, timeout=timeout, detail=True)
    header, record = judge_one(plan)
    code = exit_code(record)
    if as_json:
        print(json.dumps(to_json(header, record, code), indent=2))
    else:
        print("\n".join([*case_lines(record, header), "", f"exit {code}"]))
    raise typer.Exit(code)


def exit_code(record: Record) -> int:
    if record.outcome == "pass":
        return exits.GOOD
    return exits.BAD if record.outcome in FAILING else exits.CANNOT_TELL


def to_json(header: dict[str, Any], record: Record, code: int) -> dict[str, Any]:
    clause = record.case.clause
    case = {**record.to_json(), "clause": {"id": clause, "text": clause_text(clause)}, "level": record.level}
    return {"header": header, "case": case, "exit": code}
