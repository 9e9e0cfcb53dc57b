"""The driver on an executor that only notes what it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from verispec.fleet.driver import Folder, drive
from verispec.fleet.messages import Message
from verispec.fleet.plan import CellPlan, Environment, FleetPlan, Resources
from verispec.fleet.tasks import Lost, Task
from verispec.run.plan import Plan
from verispec.run.session import Brakes


class Noting:
    """An executor with room for four tasks, interrupted before any of them says a word."""

    def __init__(self) -> None:
        self.started: list[Task] = []

    def refusal(self, resources: Resources) -> str:
        return ""

    def slots(self, resources: Resources) -> int:
        return 4

    def fits(self, resources: Resources) -> bool:
        return len(self.started) < 4

    def start(self, task: Task) -> None:
        self.started.append(task)

    def messages(self, seconds: float) -> Iterator[tuple[Task, Message | Lost]]:
        raise KeyboardInterrupt

    def stop(self, task: Task) -> None:
        pass

    def close(self) -> None:
        pass


class Unseen:
    """A watcher that does not look."""

    def look(self, cells: object) -> None:
        pass

    def close(self) -> None:
        pass


def started(folder: Path, *cells: CellPlan) -> list[str]:
    """Return the cells of the first tasks."""
    executor = Noting()
    opened = Folder(folder)
    try:
        drive(FleetPlan(cells), opened, executor, Unseen(), Brakes())
    finally:
        opened.close()
    assert all(task.kind == "collect" for task in executor.started)
    return [task.cell.name for task in executor.started]


def cell(name: str, environment: Environment | None, *suites: str) -> CellPlan:
    return CellPlan(name, Plan("vllm", seed=7, suites=suites), environment=environment)


def test_cells_with_the_same_cases_are_collected_once(tmp_path: Path) -> None:
    assert started(tmp_path, cell("a", None, "sampler"), cell("b", None, "sampler"), cell("c", None, "e2e")) == [
        "a",
        "c",
    ]


def test_nobody_waits_in_a_place_for_an_environment_that_another_makes(tmp_path: Path) -> None:
    one, other = Environment("one", requirements=("regex",)), Environment("other", requirements=("numpy",))
    cells = (cell("a", one, "sampler"), cell("b", one, "e2e"), cell("c", other, "e2e"))
    assert started(tmp_path, *cells) == ["a", "c"]
