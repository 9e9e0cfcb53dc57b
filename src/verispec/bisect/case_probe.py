"""Test one revision by one case, in a process of its own that may crash, hang or be killed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from verispec import exits
from verispec.bisect.search import RevisionResult
from verispec.errors import VerispecError

RESULTS = {exits.GOOD: RevisionResult.GOOD, exits.BAD: RevisionResult.BAD}
Place = Callable[[str, str, str, str, float], subprocess.CompletedProcess[str] | None]
"""Runs a case on a revision: name of the revision, case, engine, source of the engine, and seconds.

Returns the ended ``verispec repro --json``; None if it took longer.
"""
NOT_THERE = ("V-ENG-MODULE", "V-ENG-ATTR", "V-ENG-ELSEWHERE", "V-ENG-PROTOCOL")
"""Codes that concern one revision: the engine's module is not there yet, or its adapter is unfinished."""


def run_here(name: str, case: str, engine: str, source: str, timeout: float) -> subprocess.CompletedProcess[str] | None:
    """Run a case on the engine out of `source` in a process of this machine.

    Args:
        name: name of the revision, which `source` names too.
        case: id of the case.
        engine: kind of engine.
        source: SOURCE of ``ENGINE@SOURCE``.
        timeout: maximum seconds.

    Returns:
        The ended process; None if it took longer than `timeout`.
    """
    command = [sys.executable, "-m", "verispec", "repro", case, "--json", "--engine", f"{engine}@{source}"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return None


@dataclass(slots=True)
class CaseProbe:
    """Runs ``verispec repro CASE --engine ENGINE@SOURCE`` and takes its exit code: 0 good, 1 bad, else cannot tell.

    Args:
        case: id of the case.
        source: turns a revision into SOURCE.
        engine: kind of engine: "vllm", "vllm-cpu", ``module:attr`` or a registered name.
        timeout: seconds per revision.
        listener: function called after each revision with its name, result, reason and seconds.
        place: runs the command: this machine, or a cluster.
    """

    case: str
    source: Callable[[str], str]
    engine: str = "vllm"
    timeout: float = 600.0
    listener: Callable[[str, RevisionResult, str, float], None] | None = None
    place: Place = run_here
    reasons: dict[str, str] = field(default_factory=dict)
    """By revision: the failure of a bad one, or the reason why one cannot be tested."""

    def engine_at(self, name: str) -> str:
        """Return the engine at revision `name`, as --engine takes it."""
        return f"{self.engine}@{self.source(name)}"

    def __call__(self, name: str) -> RevisionResult:
        """Return the result of revision `name` and keep its reason.

        Raises:
            VerispecError: V-BIS-CASE, the command line is wrong and would be for every revision.
        """
        began = time.monotonic()
        result, reason = self._run(name)
        self.reasons[name] = reason
        if self.listener is not None:
            self.listener(name, result, reason, time.monotonic() - began)
        return result

    def _run(self, name: str) -> tuple[RevisionResult, str]:
        ended = self.place(name, self.case, self.engine, self.source(name), self.timeout)
        if ended is None:
            return RevisionResult.CANNOT_TELL, f"no result within {self.timeout:g} s (--timeout)"
        said = ended.stderr.strip()
        code = re.search(r"V-[A-Z]+(?:-[A-Z]+)+", said)
        if ended.returncode == exits.USAGE and (code is None or code[0] not in NOT_THERE):
            raise VerispecError(
                "V-BIS-CASE",
                "the case cannot be run",
                where=self.case,
                cause=said[-2000:],
                hint=f"try it alone: verispec repro {self.case!r} --engine {self.engine_at(name)!r}",
            )
        result = RESULTS.get(ended.returncode, RevisionResult.CANNOT_TELL)
        return result, "" if result is RevisionResult.GOOD else _reason(ended.returncode, ended.stdout, said)


def _reason(code: int, output: str, errors: str) -> str:
    """Return why a case has no result or failed: its record's words, else the error, else how the process ended."""
    try:
        case = json.loads(output)["case"]
        kind = case.get("failure", {}).get("kind") or case["outcome"]
        return f"{kind}: {case.get('failure', {}).get('message') or case.get('reason', '')}"
    except (ValueError, KeyError, TypeError):
        pass
    if code < 0:
        return f"the process was ended by {signal.Signals(-code).name}"
    return errors[-2000:].removeprefix("verispec: ") or f"exit code {code}, and no words"
