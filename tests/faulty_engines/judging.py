"""Run the suite of one op on a fault-injected engine, in a process that can import it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

from verispec.expectations import Expectation
from verispec.report.verdict import RunSummary, summarise
from verispec.run.plan import Plan
from verispec.run.progress import Lines
from verispec.run.session import Files, execute

ZOO = Path(__file__).parent
SUITE = "sampler/expand_batch_to_tokens:EXP-*"
THE_ONE = "sampler/expand_batch_to_tokens:EXP-1:counts=wide;dtype=bool"
"""The case in which fault-injected engines crash or hang."""
PATIENCE = 20.0
"""Seconds a case may take: a thousand times what one takes here, so that a busy machine is no hang."""


def verdict_on(
    engine: str, out: Path, *, expectations: tuple[Expectation, ...] = (), resume: Path | None = None, **plan: Any
) -> RunSummary:
    """Return the summary of a run of ``module:attr`` that is written to `out`."""
    options = {"only": (SUITE,), "timeout": PATIENCE, **plan}
    with importable():
        run, _ = execute(Plan(engine, **options), Files(out, resume), expectations, ["verispec", "run"], Lines())
    return summarise(run)


def importable() -> Any:
    """Children can import what lies in this folder."""
    return patch.dict(os.environ, PYTHONPATH=str(ZOO))
