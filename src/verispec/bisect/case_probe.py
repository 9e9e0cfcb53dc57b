"""Judging a revision by one case, run in a process of its own that may crash, hang or be killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from verispec import exits
from verispec.bisect.search import RevisionResult
from verispec.errors import VerispecError

VERDICTS = {exits.GOOD: RevisionResult.GOOD, exits.BAD: RevisionResult.BAD}


@dataclass(frozen=True, slots=True)
class CaseProbe:
    """Runs ``verispec repro CASE --engine ENGINE@SOURCE``; `source` turns a revision into SOURCE.

    Its exit code is the verdict: 0 good, 1 bad; 125, a signal, or no end within `timeout` seconds, cannot tell.
    """

    case: str
    source: Callable[[str], str]
    engine: str = "vllm"
    timeout: float = 600.0

    def __call__(self, name: str) -> RevisionResult:
        """Raises VerispecError (V-BIS-CASE) when the command line itself is wrong: it would be for every revision."""
        command = [
            sys.executable,
            "-m",
            "verispec",
            "repro",
            self.case,
            "--engine",
            f"{self.engine}@{self.source(name)}",
        ]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=self.timeout, check=False)
        except subprocess.TimeoutExpired:
            return RevisionResult.CANNOT_TELL
        if ended.returncode == exits.USAGE:
            raise VerispecError(
                "V-BIS-CASE",
                "the case cannot be run",
                where=self.case,
                cause=ended.stderr.strip()[-2000:],
                hint=f"try it alone: verispec repro {self.case!r} --engine {self.engine}@{self.source(name)}",
            )
        return VERDICTS.get(ended.returncode, RevisionResult.CANNOT_TELL)
