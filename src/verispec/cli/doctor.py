"""``verispec doctor``: say what works here and how to get the rest."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verispec import exits
from verispec.doctor import State, checks

app = typer.Typer(add_completion=False)
_STYLE = {State.OK: "green", State.MISSING: "yellow", State.BROKEN: "bold red"}


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Check the installation: which engines run, which packages are missing, and how to get them.

    Exit codes: 1 when something that is installed does not work, else 0.

    Examples:

        verispec doctor

        verispec doctor --json
    """
    found = list(checks())
    if as_json:
        print(json.dumps({"checks": [check.to_json() for check in found]}, indent=2))
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("what", "state", "found", "used for"):
            table.add_column(column, overflow="fold")
        for check in found:
            about = check.found if check.state is State.OK else f"{check.found}; {check.advice}"
            table.add_row(Text(check.name), Text(check.state, _STYLE[check.state]), Text(about), check.used_for)
        Console().print(table)
    raise typer.Exit(exits.BAD if any(check.state is State.BROKEN for check in found) else exits.GOOD)
