"""``verispec ops``: the ops with their implementations and tests."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from verispec.report.inventory import Row, rows

app = typer.Typer(add_completion=False)


@app.command()
def ops(as_json: Annotated[bool, typer.Option("--json", help="The table as JSON.")] = False) -> None:
    """List the ops with their implementations and tests.

    Examples:

        verispec ops
    """
    table = rows()
    if as_json:
        print(json.dumps({"ops": [row.to_json() for row in table]}, indent=2))
    else:
        print("\n".join(lines(table)))


def lines(table: list[Row]) -> list[str]:
    """Return the table as plain lines; a dash marks a missing cell."""
    width = max(len(row.op) for row in table)
    head = f"{'op'.ljust(width)}  family         clauses  oracle  C++  Triton  tests  without a test"
    return [head, *(_line(row, width) for row in table)]


def _line(row: Row, width: int) -> str:
    there = {True: "yes", False: "-"}
    untested = f"{len(row.untested)}: {', '.join(row.untested)}" if 0 < len(row.untested) < row.clauses else ""
    if len(row.untested) == row.clauses:
        untested = "all"
    return (
        f"{row.op.ljust(width)}  {row.family:<13}  {row.clauses:>7}  {there[row.oracle]:<6}  {there[row.cpu]:<3}  "
        f"{there[row.triton]:<6}  {row.tests:>5}  {untested}"
    ).rstrip()
