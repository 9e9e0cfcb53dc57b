"""Run cases of generation on an engine, in processes of a run."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from verispec import exits
from verispec.report.verdict import summarise
from verispec.run.plan import Plan, seed_of_today
from verispec.run.progress import Lines
from verispec.run.session import Files, Options, execute

TESTS = Path(__file__).parents[1]
FOLDERS = (TESTS / "e2e", TESTS / "sampler", TESTS / "runners")
"""Folders of the engines with faults and of what they share with the sampler's and the runners'."""


def records_of(engine: str, cases: Sequence[str], folder: Path) -> dict[str, dict[str, Any]]:
    """Return the records of `cases` by case id, run in `folder` on an engine of this folder.

    Args:
        engine: ``module:fault`` or a built-in engine.
        cases: whole ids of cases of suite `e2e`, without ``e2e/``.
        folder: folder of the results file.
    """
    run = folder / "run.jsonl"
    path = os.pathsep.join(filter(None, [*map(str, FOLDERS), os.environ.get("PYTHONPATH")]))
    plan = Plan(engine, only=tuple(f"e2e/{case}" for case in cases), seed=seed_of_today())
    with patch.dict(os.environ, PYTHONPATH=path), contextlib.chdir(folder):
        done, _ = execute(plan, Options(Files(run)), Lines())
    assert summarise(done).exit_code() in (exits.GOOD, exits.BAD), run.read_text()
    lines = [json.loads(line) for line in run.read_text().splitlines()]
    return {line["id"].removeprefix("e2e/"): line for line in lines if line["type"] == "case"}
