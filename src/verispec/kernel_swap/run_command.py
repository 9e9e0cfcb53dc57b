"""Run a command once, with reference kernels in the engine that it or any process of its own starts."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from verispec import exits
from verispec.errors import VerispecError
from verispec.kernel_swap.search import Trial

OPS = "VERISPEC_TRANSPLANT"
"""Environment variable: the ops to exchange, separated by commas."""

NOTES = "VERISPEC_TRANSPLANT_NOTES"
"""Environment variable: a file to which each exchanged kernel adds a line when it is first called."""

HOOK = Path(__file__).parent / "hook"


def run(command: Sequence[str], ops: tuple[str, ...], timeout: float, *, quiet: bool = False) -> Trial:
    """Run `command`; its exit code 0 is good, 125 and a timeout cannot be judged, anything else is bad.

    What it prints goes to stderr, or nowhere when `quiet`. Raises VerispecError: V-TRP-COMMAND when it
    cannot be started, V-TRP-CASE when a quiet one (a case) was itself refused.
    """
    with tempfile.TemporaryDirectory(prefix="verispec-transplant-") as folder:
        notes = Path(folder) / "notes"
        try:
            ended = subprocess.run(
                command,
                env=environment(ops, notes),
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
        called = tuple(dict.fromkeys(notes.read_text().split())) if notes.exists() else ()
    if quiet and code == exits.USAGE:
        raise VerispecError(
            "V-TRP-CASE",
            "the case cannot be run",
            where="--case",
            cause=errors.strip()[-2000:],
            hint=f"try it alone: {shlex.join(command)}",
        )
    good = None if code == exits.CANNOT_TELL else code == exits.GOOD
    return Trial(ops, good, called, code)


def command_of_case(case: str, engine: str, device: str | None) -> list[str]:
    """The command that judges one case."""
    command = [sys.executable, "-m", "verispec", "repro", case, "--engine", engine]
    return [*command, "--device", device] if device else command


def require(command: Sequence[str]) -> None:
    """Raises VerispecError V-TRP-COMMAND when there is no such program."""
    if shutil.which(command[0]) is None:
        raise VerispecError("V-TRP-COMMAND", "there is no such program", where=command[0], hint="name it by its path")


def environment(ops: tuple[str, ...], notes: Path | None = None) -> dict[str, str]:
    """This process's environment, armed so that a Python started in it exchanges `ops` in the engine that it imports.

    `notes` is a file to which each exchanged kernel adds a line when it is first called.
    """
    kept = {name: value for name, value in os.environ.items() if name not in (OPS, NOTES)}
    if not ops:
        return kept
    path = os.pathsep.join([str(HOOK), *filter(None, [kept.get("PYTHONPATH", "")])])
    armed = {**kept, "PYTHONPATH": path, OPS: ",".join(ops)}
    return armed if notes is None else {**armed, NOTES: str(notes)}
