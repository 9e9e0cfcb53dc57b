"""A cell of a fleet when tasks are lost, refused or contradict each other; no task really runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from run_files import ENGINE

from verispec.errors import VerispecError
from verispec.fleet.cell import GIVE_UP, SMALLEST, STRIKES, CellRun, CellState
from verispec.fleet.messages import Begun, Done, Refused, refused
from verispec.fleet.plan import CellPlan
from verispec.fleet.tasks import Lost, Task
from verispec.run import runfile
from verispec.run.events import CaseEnded
from verispec.run.plan import Plan
from verispec.run.progress import Silent
from verispec.run.session import Brakes

CASES = [f"sampler/x:EXP-1:b={number}" for number in range(100)]
GONE = Lost("its machine is gone")
KILLED = Lost("it was killed", killed=True)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))


def cell_in(folder: Path, cases: Sequence[str] = CASES, **options: Any) -> CellRun:
    plan = CellPlan("x", Plan("vllm", seed=7), min_judged="0", **options)
    cell = CellRun(plan, folder / "x.jsonl", Brakes(), ["verispec", "fleet"], Silent())
    cell.collected(cases)
    return cell


def begun(**engine: Any) -> Begun:
    return Begun(runfile.make_header(Plan("vllm", seed=7), {**ENGINE, **engine}, 0, (), []))


def taken(cell: CellRun) -> Task:
    task = cell.next_task(1, 1000)
    assert task is not None
    return task


def run(cell: CellRun, task: Task, count: int | None = None, outcome: str = "pass") -> None:
    """Have `count` cases of a task end, by default all of them and then the task."""
    cell.hear(task, begun())
    for case in task.cases[:count]:
        cell.hear(task, CaseEnded(1, {"id": case, "outcome": outcome}))
    if count is None:
        cell.hear(task, Done())


def complete(cell: CellRun) -> None:
    while not cell.state.over:
        task = cell.next_task(1, 1000)
        if task:
            run(cell, task)


def test_every_case_gets_one_result(tmp_path: Path) -> None:
    cell = cell_in(tmp_path)
    first, second = cell.next_task(2, 1000), cell.next_task(2, 1000)
    assert first and second
    assert len(first.cases) < len(CASES), "what is left is shared out"
    assert not set(first.cases) & set(second.cases)
    run(cell, second)
    run(cell, first)
    complete(cell)
    read = runfile.read(cell.path)
    assert sorted(record.id for record in read.records) == sorted(CASES)
    assert (cell.state, read.footer["complete"]) == (CellState.DONE, True)


def test_pieces_become_smaller_towards_the_end_of_the_fleet(tmp_path: Path) -> None:
    """One of four cells with as much to do hands out four times as much as a cell alone."""
    plan = CellPlan("x", Plan("vllm", seed=7))
    sizes = []
    for share in (1.0, 0.25):
        cell = CellRun(plan, tmp_path / f"{share}.jsonl", Brakes(), [], Silent())
        cell.collected([f"sampler/x:EXP-1:b={number}" for number in range(800)])
        task = cell.next_task(2, 1000, share)
        assert task
        sizes.append(len(task.cases))
    assert sizes == [100, 400]


def test_a_piece_takes_as_long_as_its_engine_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that start slowly are not started for a few quick cases."""
    now = 1000.0
    monkeypatch.setattr("verispec.fleet.cell.time.monotonic", lambda: now)
    cell = cell_in(tmp_path)
    first = cell.next_task(5, 1000)
    assert first
    assert len(first.cases) == SMALLEST
    now += 10.0
    cell.hear(first, begun())
    now += 100.0
    cell.hear(first, begun())  # after a crash, in the same piece
    for case in first.cases:
        cell.hear(first, CaseEnded(1, {"id": case, "outcome": "pass", "seconds": 0.25}))
    cell.hear(first, Done())
    second = cell.next_task(5, 1000)
    assert second
    assert len(second.cases) == 10.0 / 0.25


def test_a_lost_task_runs_again_from_where_it_was(tmp_path: Path) -> None:
    cell = cell_in(tmp_path)
    task = taken(cell)
    run(cell, task, 5)
    cell.hear(task, GONE)
    again = taken(cell)
    assert again.cases[: len(task.cases) - 5] == task.cases[5:]
    run(cell, again)
    complete(cell)
    assert len(cell.records) == len(CASES)


def test_a_case_that_loses_its_machine_costs_itself_alone(tmp_path: Path) -> None:
    cell = cell_in(tmp_path)
    culprit = CASES[30]
    lost = 0
    while not cell.state.over:
        task = cell.next_task(1, 1000)
        if task is None:
            continue
        if culprit not in task.cases:
            run(cell, task)
            continue
        run(cell, task, task.cases.index(culprit))
        cell.hear(task, KILLED)
        lost += 1
        assert lost <= 2 * STRIKES + 1, "the case is tried without end"
    read = runfile.read(cell.path)
    assert len(read.records) == len(CASES)
    (record,) = [record for record in read.records if record.outcome != "pass"]
    assert (record.id, record.outcome) == (culprit, "error"), "nobody knows whose fault it is"
    assert "with this case alone: it was killed" in record.reason


def test_a_loss_before_the_engine_starts_costs_no_case(tmp_path: Path) -> None:
    """A case that did not run cannot be the reason."""
    cell = cell_in(tmp_path)
    for _ in range(2 * STRIKES + 1):
        cell.hear(taken(cell), GONE)
    complete(cell)
    assert {record.outcome for record in runfile.read(cell.path).records} == {"pass"}


def test_a_cell_whose_engine_never_starts_is_given_up(tmp_path: Path) -> None:
    cell = cell_in(tmp_path)
    losses = 0
    while not cell.state.over:
        cell.hear(taken(cell), GONE)
        losses += 1
    assert (cell.state, losses) == (CellState.FAILED, GIVE_UP + 1)
    assert "lost before its engine had started" in cell.reason


def test_a_cell_whose_processes_are_always_killed_is_given_up(tmp_path: Path) -> None:
    cell = cell_in(tmp_path)
    for _ in range(GIVE_UP):
        task = taken(cell)
        cell.hear(task, begun())
        cell.hear(task, KILLED)
        if cell.state.over:
            break
    assert cell.state in (CellState.FAILED, CellState.STOPPED)
    assert "killed before they gave a result" in cell.reason or "V-FLEET" in cell.reason


@pytest.mark.parametrize("lost", [GONE, KILLED])
def test_a_lost_collection_is_begun_again(lost: Lost, tmp_path: Path) -> None:
    """No engine runs in it, so that its losses say nothing about the cell before there are very many."""
    cell = CellRun(CellPlan("x", Plan("vllm", seed=7)), tmp_path / "x.jsonl", Brakes(), [], Silent())
    losses = 0
    while not cell.state.over:
        assert cell.state is CellState.WAITING
        cell.hear(cell.collect(), lost)
        losses += 1
    assert (cell.state, losses in (GIVE_UP, GIVE_UP + 1)) == (CellState.FAILED, True), losses


@pytest.mark.parametrize("outcome", ["crash", "timeout"])
def test_too_many_crashes_stop_a_cell(outcome: str, tmp_path: Path) -> None:
    cell = CellRun(CellPlan("x", Plan("vllm", seed=7)), tmp_path / "x.jsonl", Brakes(max_crashes=3), [], Silent())
    cell.collected(CASES)
    task = taken(cell)
    run(cell, task, 3, outcome)
    assert cell.state is CellState.STOPPED
    assert cell.reason == "stopped after 3 crashes and hangs (--max-crashes)"
    assert runfile.read(cell.path).footer["left"] == len(CASES) - 3


def test_a_piece_on_another_engine_ends_the_cell(tmp_path: Path) -> None:
    """A machine with another release must not mix its results with the others'."""
    cell = cell_in(tmp_path)
    first, second = cell.next_task(2, 1000), cell.next_task(2, 1000)
    assert first and second
    run(cell, first, 2)
    cell.hear(second, begun(version="0.33.0"))
    assert cell.state is CellState.STOPPED
    assert "version was 0.32.0, is 0.33.0" in cell.reason
    assert len(runfile.read(cell.path).records) == 2


def test_a_refused_engine_fails_its_cell_and_leaves_no_file(tmp_path: Path) -> None:
    cell = cell_in(tmp_path)
    message = refused(VerispecError("V-ENG-START", "the engine cannot be started", cause="no", hint="start it"))
    assert isinstance(message, Refused)
    cell.hear(taken(cell), message)
    assert (cell.state, "V-ENG-START" in cell.reason, cell.path.exists()) == (CellState.FAILED, True, False)


def test_a_piece_that_ends_by_itself_is_not_repeated(tmp_path: Path) -> None:
    cell = cell_in(tmp_path)
    cell.hear(taken(cell), Lost("its process ended with 1\nModuleNotFoundError", by_itself=True))
    assert (cell.state, "ModuleNotFoundError" in cell.reason) == (CellState.FAILED, True)


def test_rejected_cases_run_again_in_a_fresh_process(tmp_path: Path) -> None:
    """An engine that answers there rejects by what ran before, and the run cannot be trusted."""
    cell = cell_in(tmp_path)
    while (task := taken(cell)) and not task.repeated:
        run(cell, task, 1, "unsupported")
        for case in task.cases[1:]:
            cell.hear(task, CaseEnded(1, {"id": case, "outcome": "pass"}))
        cell.hear(task, Done())
    assert task.cases == (CASES[0],), "one of each kind"
    run(cell, task)
    complete(cell)
    assert cell.run is not None
    (shortfall,) = cell.run.footer["shortfalls"]
    assert "answers in a fresh process" in shortfall
    assert cell.records[CASES[0]].outcome == "unsupported"


def test_a_cell_says_what_it_does_after_its_last_case(tmp_path: Path) -> None:
    """Attribution may take minutes."""
    ended = {"reach": "always", "failure": {"kind": "value", "message": "4"}}
    op, sampler = "sampler/expand_batch_to_tokens:EXP-1:b=1", "sampler/whole_sampler:WS-2:b=1"
    cell = cell_in(tmp_path, cases=[op, sampler])
    task = taken(cell)
    cell.hear(task, begun())
    for case in (op, sampler):
        cell.hear(task, CaseEnded(1, {"id": case, "outcome": "fail", **ended}))
    cell.hear(task, Done())
    assert taken(cell).kind == "explain"
    assert (cell.state, cell.reason) == (
        CellState.CLOSING,
        "running failing cases again with the reference's kernels",
    )


def test_at_once_bounds_the_pieces_of_a_cell(tmp_path: Path) -> None:
    cell = cell_in(tmp_path, at_once=1)
    assert cell.next_task(4, 10) is not None
    assert cell.next_task(4, 10) is None


def test_a_resumed_cell_keeps_its_results(tmp_path: Path) -> None:
    cell = cell_in(tmp_path)
    task = taken(cell)
    run(cell, task, 7)
    cell.release()
    again = cell_in(tmp_path)
    assert len(again.records) == 7
    complete(again)
    assert again.state is CellState.DONE
    assert [record.id for record in runfile.read(cell.path).records] == CASES
    once_more = CellRun(again.plan, cell.path, Brakes(), [], Silent())
    assert (once_more.state, len(once_more.records)) == (CellState.DONE, len(CASES))


def test_a_cell_is_not_resumed_with_another_engine(tmp_path: Path) -> None:
    cell = cell_in(tmp_path)
    run(cell, taken(cell), 7)
    cell.release()
    before = cell.path.read_text()
    again = cell_in(tmp_path)
    again.hear(taken(again), begun(digest="other"))
    assert (again.state, "V-RUN-RESUME" in again.reason) == (CellState.FAILED, True)
    assert cell.path.read_text() == before
