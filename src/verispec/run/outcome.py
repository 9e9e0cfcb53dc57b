"""The result of a case from the exception that ended it."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from verispec.engines import UnsupportedCall
from verispec.errors import describe_exception
from verispec.judge import DeviceLost, Failure, Inconclusive, Kind, Mismatch, NotOffered, Outcome, lost_device

LONGEST = 4000
"""Characters of a text that a record keeps; an engine may raise with a message of any length."""


def result_of(error: BaseException | None) -> dict[str, Any]:
    """Return a case's outcome and the fields of the record that belong to it.

    Args:
        error: the decisive exception of the case, None if it passed.
    """
    if error is None:
        return {"outcome": Outcome.PASS}
    if isinstance(error, Mismatch):
        return {"outcome": Outcome.FAIL, "failure": bounded(error.failure.to_json())}
    if isinstance(error, DeviceLost):
        return {"outcome": Outcome.CRASH, "failure": {"kind": "crash", "message": bounded(str(error))}}
    if isinstance(error, UnsupportedCall):
        offer = {"offered": False} if isinstance(error, NotOffered) else {}
        return {"outcome": Outcome.UNSUPPORTED, "reason": bounded(str(error)), **offer}
    if isinstance(error, Inconclusive):
        return {"outcome": Outcome.INCONCLUSIVE, "reason": bounded(str(error))}
    if not isinstance(error, Exception):
        return {"outcome": Outcome.FAIL, "failure": bounded(process_ended(error).to_json())}
    last = traceback.extract_tb(error.__traceback__)[-1]
    return {
        "outcome": Outcome.ERROR,
        "reason": bounded(describe_exception(error)),
        "at": f"{Path(last.filename).name}:{last.lineno}",
    }


def bounded(value: Any) -> Any:
    """Return `value` with every text in it cut to `LONGEST` characters."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST else f"{value[:LONGEST]}... ({len(value):,} characters)"
    if isinstance(value, dict):
        return {key: bounded(each) for key, each in value.items()}
    return [bounded(each) for each in value] if isinstance(value, (list, tuple)) else value


def decisive(error: BaseException) -> BaseException:
    """Unwrap the decisive exception; Hypothesis puts failures that it cannot reproduce into an exception group."""
    if isinstance(error, BaseExceptionGroup):
        inner = [decisive(e) for e in error.exceptions]
        return next((e for e in inner if isinstance(e, Mismatch)), inner[0])
    return lost_device(error) or error


def process_ended(error: BaseException) -> Failure:
    """Return the failure of an engine that tried to end its process with `error`."""
    return Failure(Kind.RAISED, f"{describe_exception(error)}: the engine tried to end the process")
