"""Run the suite of one op on a fault-injected engine, in a process that can import it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from verispec.cli import main
from verispec.report.verdict import RunSummary, summarise
from verispec.run.plan import Plan
from verispec.run.progress import Lines
from verispec.run.session import Files, Options, execute

ZOO = Path(__file__).parent
OP = "sampler/expand_batch_to_tokens"
SUITE = f"{OP}:EXP-*[!d]$"
"""The clauses of the op with the faults, without generated calls; other suites test it too."""
GENERATED = f"{OP}:EXP-1:dtype=float32;mode=generated"
"""Generated calls of one dtype: those of all four are nine tenths of the time, and come from the same code."""
THE_ONE = "sampler/expand_batch_to_tokens:EXP-1:counts=wide;dtype=bool"
"""The case in which fault-injected engines crash or hang."""
PATIENCE = 20.0
"""Seconds a case may take: a thousand times what one takes here, so that a busy machine is no hang."""


def verdict_on(
    engine: str,
    out: Path,
    *,
    resume: Path | None = None,
    options: dict[str, Any] | None = None,
    **plan: Any,
) -> RunSummary:
    """Return the summary of a run on ``module:attr`` that is written to `out`; `options` are fields of `Options`."""
    planned = Plan(engine, **{"only": (SUITE,), "timeout": PATIENCE, **plan})
    about = Options(Files(out, resume), command=["verispec", "run"], **(options or {}))
    with importable():
        run, _ = execute(planned, about, Lines())
    return summarise(run)


def importable() -> Any:
    """Let child processes import the modules of this folder."""
    return patch.dict(os.environ, PYTHONPATH=str(ZOO))


def in_process(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of a command."""
    with importable():
        ended = command(capsys, *words)
    return ended.returncode, ended.stdout, ended.stderr


def command(captured: pytest.CaptureFixture[str], *words: str) -> subprocess.CompletedProcess[str]:
    """Return what a command of verispec ends with in this environment and folder.

    Args:
        captured: `capfd` if processes of the command write to its stderr, else `capsys`.
        words: arguments of the command line.
    """
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    return subprocess.CompletedProcess(words, int(stop.value.code or 0), *captured.readouterr())
