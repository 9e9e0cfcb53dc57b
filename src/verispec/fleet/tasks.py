"""Tasks of a fleet, and the executors that carry them out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from verispec.fleet.messages import Message
from verispec.fleet.plan import CellPlan, Resources


@dataclass(frozen=True, eq=False, slots=True)
class Task:
    """Work for one process on one machine.

    Attributes:
        kind: "collect" for the ids of the cell's cases, "cases" for their results, "explain" for attribution.
        cell: the cell that it belongs to.
        resources: resources that it reserves.
        cases: ids to run, of kind "cases".
        repeated: True if these have a result, and run again in a fresh process.
        records: results to explain.
    """

    kind: str
    cell: CellPlan
    resources: Resources
    cases: tuple[str, ...] = ()
    repeated: bool = False
    records: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the task as JSON values for the machine that executes it."""
        plan = self.cell.plan
        if self.kind == "cases":
            # One process: the executor runs several pieces instead, and knows what each of them uses.
            plan = dataclasses.replace(plan, only=self.cases, exact=True, smoke=False, processes=1)
        return {
            "kind": self.kind,
            "plan": dataclasses.asdict(plan),
            "environment": dataclasses.asdict(self.cell.environment) if self.cell.environment else None,
            "variables": {"OMP_NUM_THREADS": str(self.resources.cores), **self.cell.variables},
            "records": self.records,
        }


@dataclass(frozen=True, slots=True)
class Lost:
    """The process of a task ended before it had said everything.

    Attributes:
        how: description for people.
        by_itself: True if it ended with an exit code, so that it would do so again.
        killed: True if another process ended it; otherwise its machine is gone.
    """

    how: str
    by_itself: bool = False
    killed: bool = False


class Executor(Protocol):
    """Carries out tasks side by side."""

    def refusal(self, resources: Resources) -> str:
        """Return why a task with `resources` can never run here; empty if it can."""

    def slots(self, resources: Resources) -> int:
        """Return how many tasks with `resources` can run at the same time."""

    def fits(self, resources: Resources) -> bool:
        """Return whether a task with `resources` may be started now."""

    def start(self, task: Task) -> None:
        """Start a task."""

    def messages(self, seconds: float) -> Iterator[tuple[Task, Message | Lost]]:
        """Yield messages of tasks after at most `seconds`; the last one of each is Done, Refused or Lost."""

    def stop(self, task: Task) -> None:
        """End a task, of which nothing is heard any more."""

    def close(self) -> None:
        """End all tasks."""
