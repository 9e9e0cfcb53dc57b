"""The program that carries out one task of a fleet in the cell's own environment, and says what happens.

The cases run under the supervisor of ``verispec run``, so that an engine that crashes or hangs costs its case alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from verispec import exits
from verispec.errors import VerispecError, describe_exception
from verispec.fleet.messages import Begun, Done, Explained, Message, refused, written
from verispec.fleet.plan import plan_from_json
from verispec.run import runfile
from verispec.run.attribution import explain
from verispec.run.events import CaseEnded, Collected, EngineStarted, Rechecked, Waiting, Warned
from verispec.run.plan import Plan
from verispec.run.progress import Silent
from verispec.run.record import Record
from verispec.run.session import interruptible, require_selection
from verispec.run.supervisor import Supervisor


def carry_out(task: Mapping[str, Any]) -> Iterator[Message]:
    """Yield the events while `task` is carried out.

    Args:
        task: a description, as `verispec.fleet.tasks.Task.to_json` makes it.

    Raises:
        VerispecError: those of `Supervisor`.
    """
    plan = plan_from_json(task["plan"])
    match task["kind"]:
        case "collect":
            collected = Supervisor(plan).collect()
            require_selection(plan, collected)
            yield Collected(collected.selected, [])
        case "cases":
            yield from _run(plan)
        case "explain":
            yield from _explain(plan, task["records"])


def _run(plan: Plan) -> Iterator[Message]:
    for event in Supervisor(plan):
        match event:
            case EngineStarted(_, engine):
                yield Begun(runfile.make_header(plan, engine, 0, (), []))
            case CaseEnded() | Waiting() | Warned():
                yield event
            case Collected(selected):
                if missing := set(plan.only).difference(selected):
                    raise VerispecError(
                        "V-FLEET-SUITES",
                        f"{len(missing):,} cases of the cell are not in the suites here",
                        where=os.uname().nodename,
                        cause=f"{sorted(missing)[0]} and others: this machine has another verispec than the first",
                        hint="install one version of verispec on all machines",
                        exit_code=exits.CANNOT_TELL,
                    )
            case Rechecked():
                raise AssertionError("a piece does not repeat cases")


def _explain(plan: Plan, lines: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    records = [Record.from_json(line) for line in lines]
    for record in explain(plan, records, Silent()):
        yield Explained(record.to_json())


def main() -> int:
    """Carry out the task on standard input; return the exit status."""
    said = _private_stdout()
    task = json.load(sys.stdin)
    try:
        with interruptible():
            for message in carry_out(task):
                said(message)
    except KeyboardInterrupt:
        return exits.CANNOT_TELL
    except BrokenPipeError:
        return exits.CANNOT_TELL
    except VerispecError as error:
        said(refused(error))
    except Exception as error:
        cause, hint = describe_exception(error), "report this with the fleet file: it is a fault of verispec"
        said(refused(VerispecError("V-FLEET-PIECE", "the piece failed", cause=cause, hint=hint)))
    else:
        said(Done())
    return exits.GOOD


def _private_stdout() -> Callable[[Message], None]:
    """Return a writer to standard output, which from now on nothing else can reach."""
    lines = os.dup(1)
    os.dup2(2, 1)

    def say(message: Message) -> None:
        line = written(message)
        while line:
            line = line[os.write(lines, line) :]

    return say


if __name__ == "__main__":
    sys.exit(main())
