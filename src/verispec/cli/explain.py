"""``verispec explain``: the text of an op, a clause or a rule, and its tests."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from verispec.report.explanation import as_text
from verispec.report.explanation import explain as explanation
from verispec.terminal import columns

app = typer.Typer(add_completion=False)


@app.command()
def explain(
    name: Annotated[
        str,
        typer.Argument(help="An op, a clause such as EXP-2, a case id, a rule such as SIG101, rules or parameters."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Explain an op, a clause, a case id or a rule; 'rules' and 'parameters' list all rules and all parameters of ids.

    Examples:

        verispec explain EXP-2

        verispec explain whole_sampler

        verispec explain rules
    """
    told = explanation(name)
    print(json.dumps(told, indent=2) if as_json else "\n".join(as_text(told, columns())))
