"""Options of a resumed run: those that decide the results come from the results file, and must not differ."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verispec.errors import VerispecError
from verispec.run.plan import BUDGET, Plan

DECIDING = {
    "engine": "--engine",
    "device": "--device",
    "only": "--only",
    "exact": "--last-failed",
    "suites": "--suite",
    "seed": "--seed",
    "smoke": "smoke",
    "budget": "--budget",
    "transplanted": "--transplant",
}
"""Fields of a plan that decide the results, with the words on the command line."""
CHANGEABLE = ("processes", "timeout")
"""Fields that a resumed run may change; otherwise they come from the file too."""


def restored_plan(given: Mapping[str, Any], header: Mapping[str, Any], path: Path) -> Plan:
    """Return the plan of the run with this header.

    Args:
        given: fields of `Plan` that the user wrote on the command line.
        header: header of the results file.
        path: path of the results file.

    Raises:
        VerispecError: V-RUN-RESUME when a given field differs from the file's.
    """
    selection = header["selection"]
    fields = {
        "engine": header["engine"]["asked"],
        "device": header.get("device"),
        "only": tuple(selection["only"]),
        "exact": selection.get("exact", False),
        "suites": tuple(selection["suites"]),
        "seed": header["seed"],
        "smoke": selection["smoke"],
        "budget": header.get("budget", BUDGET),
        "transplanted": tuple(header.get("transplanted", ())),
    }
    fields |= {name: header[name] for name in CHANGEABLE if name in header}
    for name, option in DECIDING.items():
        if name in given and given[name] != fields[name]:
            raise VerispecError(
                "V-RUN-RESUME",
                f"the run to resume had another {option}: was {_shown(fields[name])}, is {_shown(given[name])}",
                where=str(path),
                hint=f"resume without options: verispec run --resume {shlex.quote(str(path))}",
            )
    return Plan(**{**fields, **given})


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "everything"
    return "not given" if value is None else str(value)
