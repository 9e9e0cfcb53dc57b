"""Run a command once, with reference kernels in the engine that it or any process of its own starts."""

from __future__ import annotations

import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from verispec import exits
from verispec.errors import VerispecError
from verispec.kernel_swap.search import SwapTrial

OPS = "VERISPEC_TRANSPLANT"
"""Environment variable: the ops to exchange, separated by commas."""

NOTES = "VERISPEC_TRANSPLANT_NOTES"
"""Environment variable: a file to which each exchanged kernel adds a line when it is first called."""

SITES = "VERISPEC_TRANSPLANT_SITES"
"""Environment variable: JSON of op to ``module:attr`` for an engine with `kernel_sites`."""

WATCH = "VERISPEC_TRANSPLANT_WATCH"
"""Environment variable: a module of the engine; its import is noted, to know that a run used the engine at all."""

LOADED = "@loaded"
"""Note of a process that imported the watched module."""

HOOK = Path(__file__).parent / "hook"


@functools.cache
def note(line: str) -> None:
    """Add a line to the notes of this run, once per process."""
    if notes := os.environ.get(NOTES):
        with Path(notes).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


@dataclass(frozen=True, slots=True)
class SwapTarget:
    """The engine whose kernels are substituted.

    Args:
        watch: a module of it whose import shows that a run used it; empty if every run does.
        sites: ``module:attr`` to replace, by op; empty for vLLM.
    """

    watch: str = ""
    sites: Mapping[str, str] = field(default_factory=dict)


VLLM = SwapTarget("vllm")


def run(
    command: Sequence[str],
    ops: tuple[str, ...],
    timeout: float,
    *,
    quiet: bool = False,
    target: SwapTarget | None = None,
) -> SwapTrial:
    """Run `command` once; exit code 0 is good, 125 and a timeout cannot tell, anything else is bad.

    Args:
        command: program and arguments.
        ops: ops whose kernels to substitute.
        timeout: seconds.
        quiet: True drops the output of the command; else it goes to stderr.
        target: the engine; without it, no import is watched.

    Raises:
        VerispecError: V-TRP-COMMAND, it cannot be started; V-TRP-CASE, a quiet one (a case) was itself rejected.
    """
    with tempfile.TemporaryDirectory(prefix="verispec-transplant-") as folder:
        notes = Path(folder) / "notes"
        try:
            ended = subprocess.run(
                command,
                env=environment(ops, notes, target),
                timeout=timeout,
                check=False,
                stdout=subprocess.DEVNULL if quiet else sys.stderr.fileno(),
                stderr=subprocess.PIPE if quiet else None,
                text=True,
            )
            code, errors = ended.returncode, ended.stderr or ""
        except subprocess.TimeoutExpired:
            code, errors = exits.CANNOT_TELL, ""
        except OSError as error:
            raise VerispecError(
                "V-TRP-COMMAND",
                "the command cannot be started",
                where=command[0],
                cause=str(error),
                hint="give it after --, for instance: verispec transplant --engine vllm -- python program.py",
            ) from error
        lines = list(dict.fromkeys(notes.read_text(encoding="utf-8").splitlines())) if notes.exists() else []
    if quiet and code == exits.USAGE:
        raise VerispecError(
            "V-TRP-CASE",
            "the case cannot be run",
            where="--case",
            cause=errors.strip()[-2000:],
            hint=f"try it alone: {shlex.join(command)}",
        )
    good = None if code == exits.CANNOT_TELL else code == exits.GOOD
    called = tuple(line for line in lines if line[0] not in "@!")
    problems = [line[1:] for line in lines if line.startswith("!")]
    loaded = LOADED in lines or not (target and target.watch)
    return SwapTrial(ops, good, called, code, loaded, "; ".join(problems) or (errors.strip() if good is None else ""))


def command_of_case(case: str, engine: str, device: str | None) -> list[str]:
    """Return the command that tests one case."""
    command = [sys.executable, "-m", "verispec", "repro", case, "--engine", engine]
    return [*command, "--device", device] if device else command


def require(command: Sequence[str]) -> None:
    """Raise VerispecError V-TRP-COMMAND if there is no such program."""
    if shutil.which(command[0]) is None:
        raise VerispecError("V-TRP-COMMAND", "there is no such program", where=command[0], hint="name it by its path")


def environment(ops: tuple[str, ...], notes: Path | None = None, target: SwapTarget | None = None) -> dict[str, str]:
    """Return this process's environment, armed so that a Python started in it substitutes `ops` in the engine.

    Args:
        ops: ops whose kernels to substitute.
        notes: file to which each substituted kernel adds a line when it is first called.
        target: the engine; None is vLLM without a watch.
    """
    kept = {name: value for name, value in os.environ.items() if name not in (OPS, NOTES, SITES, WATCH)}
    if not ops and not (target and target.watch):
        return kept
    path = os.pathsep.join([str(HOOK), *filter(None, [kept.get("PYTHONPATH", "")])])
    armed = {**kept, "PYTHONPATH": path, OPS: ",".join(ops)}
    if target is not None:
        armed |= {WATCH: target.watch, SITES: json.dumps(dict(target.sites))}
    return armed if notes is None else {**armed, NOTES: str(notes)}
