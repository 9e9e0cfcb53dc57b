"""A piece on the machine that carries it out: the environment is made, then `piece` runs in it.

``python -m verispec.fleet.node`` reads a task from standard input. It becomes the interpreter of the cell's
environment, so that one process, which ends with its parent, is all that the executor has to watch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import IO, Any

from verispec.errors import VerispecError
from verispec.fleet.environment import interpreter, with_variables
from verispec.fleet.messages import refused, written
from verispec.fleet.plan import environment_from_json
from verispec.run.events import Waiting
from verispec.run.process_tree import die_with_parent

MODULE = "verispec.fleet.piece"


def start(task: Mapping[str, Any], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start `task` in a process of its own, whose standard output yields messages.

    Args:
        task: a description, as `verispec.fleet.tasks.Task.to_json` makes it.
        log: file for everything else that is printed.
    """
    with tempfile.TemporaryFile() as given:
        given.write(json.dumps({**task, "parent": os.getpid()}).encode())
        given.seek(0)
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "verispec.fleet.node"],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )


def main() -> None:
    """Make the environment of the task on standard input, and replace this process by the piece."""
    text = sys.stdin.buffer.read()
    task = json.loads(text)
    die_with_parent()
    if os.getppid() != task["parent"]:  # it ended before this process could ask to end with it
        return
    try:
        python = interpreter(environment_from_json(task["environment"]), _report)
    except VerispecError as error:
        _say(written(refused(error)))
        return
    given = tempfile.TemporaryFile()  # noqa: SIM115 - it becomes the piece's standard input
    given.write(text)
    given.seek(0)
    os.dup2(given.fileno(), 0)
    os.execve(python, [python, "-P", "-m", MODULE], with_variables(task["variables"]))


def _report(text: str) -> None:
    _say(written(Waiting(text)))


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
