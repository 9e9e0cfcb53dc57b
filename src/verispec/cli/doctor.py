"""``verispec doctor``: say what works here and how to get the rest."""

from __future__ import annotations

import json
import re
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from verispec import exits
from verispec.doctor import Check, State, checks
from verispec.terminal import columns, table

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
        rows = [[check.name, check.state, _found(check)] for check in found]
        for line in table(["what", "state", "found"], rows, columns()):
            Console().print(_coloured(line), soft_wrap=True)
    raise typer.Exit(exits.BAD if any(check.state is State.BROKEN for check in found) else exits.GOOD)


def _found(check: Check) -> str:
    """Return the last cell of a row: version or reason, advice, and use."""
    found = check.found if check.state is State.OK else f"{check.found}; {check.advice}"
    return f"{found} (for: {check.used_for})"


def _coloured(line: str) -> Text:
    """Return a line of the table with the colour of its state."""
    text = Text(line)
    if found := re.match(rf"(?:\S.*?  |  state: )({'|'.join(State)})\b", line):
        text.stylize(_STYLE[State(found[1])], *found.span(1))
    return text
