"""``verispec ops``: the ops with their implementations and tests."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Annotated

import typer

from verispec import exits
from verispec.errors import VerispecError
from verispec.reference import contracts
from verispec.report.inventory import OpRow, rows
from verispec.run.plan import suite_folder
from verispec.terminal import columns, table

app = typer.Typer(add_completion=False)

WHOLE = 1 << 16
"""Columns of a file or a pipe: other programs read an op per line."""


@app.command()
def ops(
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if an op lacks a kernel, a call or a test.")
    ] = False,
    suite: Annotated[
        list[str] | None, typer.Option(help="Folder with the suite of an op of your own; repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List the ops with their implementations and tests.

    With --check, also list what each op still lacks, as described in docs/how-to/add-an-op.md.

    Examples:

        verispec ops

        verispec ops --check

        verispec ops --check --suite my_ops
    """
    folders = tuple(map(suite_folder, suite or ()))
    for folder in folders:
        register_ops(folder)
    found = rows(folders)
    if as_json:
        print(json.dumps({"ops": [row.to_json() for row in found]}, indent=2))
    else:
        print("\n".join(lines(found)))
    incomplete = [row for row in found if row.missing]
    if check and not as_json:
        print("\n".join(["", *(missing_line(row) for row in incomplete)]) if incomplete else "\nnothing is missing")
    if check and incomplete:
        raise typer.Exit(exits.BAD)


def register_ops(folder: Path) -> None:
    """Import the files of a suite, which register the ops that they test.

    Raises:
        VerispecError: V-OPS-SUITE, a file cannot be imported.
    """
    for path in sorted(folder.glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        try:
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
        except Exception as error:
            raise VerispecError(
                "V-OPS-SUITE",
                "the suite cannot be imported",
                where=str(path),
                cause=f"{type(error).__name__}: {error}",
                hint="run it once: verispec run --suite FOLDER --engine MODULE:Engine",
            ) from error


def missing_line(row: OpRow) -> str:
    """Return the files or clauses that an op lacks, as one line."""
    if contracts.registered_oracle(row.op) is not None:
        return f"{row.op} lacks cases for {', '.join(row.untested)}; name the folder of its suite with --suite"
    where = {
        "oracle": f"reference/oracle/{row.op}.py",
        "cpu": f"reference/csrc/{row.op}.cpp",
        "triton": f"reference/triton/{row.op}.py",
        "suite": f"cases for {', '.join(row.untested)}",
        "call": f"a maker named {row.op} in suites/sampler/_calls.py",
        "mutants": f"mutants of {row.op} in tests/mutants/mutants_csrc.py",
    }
    return f"{row.op} lacks {'; '.join(where[part] for part in row.missing)}"


def lines(rows: list[OpRow]) -> list[str]:
    """Return the table as plain lines; a dash marks a missing part."""
    head = ["op", "family", "clauses", "oracle", "C++", "Triton", "tests", "without a test"]
    return list(table(head, [_cells(row) for row in rows], columns(WHOLE)))


def _cells(row: OpRow) -> list[str]:
    there = {True: "yes", False: "-"}
    untested = f"{len(row.untested)}: {', '.join(row.untested)}" if 0 < len(row.untested) < row.clauses else ""
    if len(row.untested) == row.clauses:
        untested = "all"
    kernels = (there[part] for part in (row.oracle, row.cpu, row.triton))
    return [row.op, row.family, str(row.clauses), *kernels, str(row.tests), untested]
