"""Costs of a fleet per piece and per result, on a local Ray cluster: ``python benchmarks/fleet_costs.py``.

Engines cost what they cost; this measures what a fleet adds. Pieces are simulated on real Ray, by tasks that say what a
piece says. All figures are processor seconds, so that a busy machine gives the same.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from verispec.fleet import on_ray
from verispec.fleet.cell import CellRun
from verispec.fleet.driver import Folder, drive
from verispec.fleet.messages import Begun, Done, parsed, written
from verispec.fleet.plan import CellPlan, FleetPlan, Resources
from verispec.fleet.tasks import Task
from verispec.run import runfile
from verispec.run.events import CaseEnded, Collected
from verispec.run.plan import Plan
from verispec.run.progress import Silent
from verispec.run.session import Brakes

ENGINE = {"name": "toy", "version": "1", "platform": "cpu", "device": "cpu", "details": {}, "digest": ""}
RECORD = {"outcome": "pass", "seconds": 0.0123, "cpu": 0.0456, "test": "test_the_values_are_those_of_the_oracle"}
CASES = [f"sampler/rejection_random_sample:RRS-3:vocab={n};k=3;draft=present;dtype=f32" for n in range(20_000)]


def said(task: dict[str, Any], cases: list[str]) -> Iterator[bytes]:
    """Yield the messages of a piece, in blocks of ten results."""
    if task["kind"] == "collect":
        yield written(Collected(cases, [])) + written(Done()).rstrip()
        return
    yield written(Begun(runfile.make_header(Plan("toy", seed=7), ENGINE, 0, (), []))).rstrip()
    lines = [written(CaseEnded(1, {"id": case, **RECORD})) for case in task["plan"]["only"]]
    for start in range(0, len(lines), 10):
        yield b"".join(lines[start : start + 10]).rstrip()
    yield written(Done()).rstrip()


def simulated(task: dict[str, Any]) -> Iterator[Any]:
    """Stand for `on_ray.carry_out` on the cluster."""
    yield from said(task, CASES)
    yield 0, ""


def journal(folder: Path) -> tuple[float, float, float]:
    """Return seconds, bytes of the file and bytes of memory per result, from a message to the line in the file."""
    cell = CellRun(CellPlan("x", Plan("toy", seed=7)), folder / "x.jsonl", Brakes(), [], Silent())
    cell.collected(CASES)
    task = Task("cases", cell.plan, Resources(), tuple(CASES))
    cell.running.append(task)
    lines = [line for block in said(task.to_json(), CASES) for line in block.split(b"\n")]
    memory, began = resident(), time.process_time()
    for line in lines:
        cell.hear(task, parsed(line))
    seconds, memory = time.process_time() - began, resident() - memory
    cell.release()
    size = (folder / "x.jsonl").stat().st_size
    return seconds / len(CASES), size / len(CASES), memory / len(CASES)


def resident() -> int:
    """Return this process's resident bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def streamed(folder: Path, piece: int) -> tuple[float, float, int]:
    """Return the driver's seconds per result and per piece through Ray, and the number of pieces of at most `piece`."""
    import ray

    ray.init(num_cpus=2, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False)
    on_ray.carry_out = simulated

    class Counting(on_ray.RayExecutor):
        pieces = 0

        def start(self, task: Task) -> None:
            self.pieces += task.kind == "cases"
            super().start(task)

    class Quiet:
        def look(self, cells: Any) -> None: ...
        def close(self) -> None: ...

    plan = FleetPlan((CellPlan("x", Plan("toy", seed=7), resources=Resources(memory=1)),), piece)
    opened = Folder(folder)
    executor = Counting("ray")
    began = time.process_time()
    (cell,) = drive(plan, opened, executor, Quiet(), Brakes())
    seconds = time.process_time() - began
    opened.close()
    ray.shutdown()
    assert len(cell.records) == len(CASES), cell.reason
    return seconds / len(CASES), seconds / executor.pieces, executor.pieces


def a_piece() -> float:
    """Return the processor seconds of a real piece of one quick case on the reference, all its processes included."""
    case = "sampler/expand_batch_to_tokens:EXP-1:counts=one;dtype=int64"
    task = Task("cases", CellPlan("x", Plan("reference", seed=7)), Resources(), (case,))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-P", "-m", "verispec.fleet.piece"],
        input=json.dumps(task.to_json()).encode(),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seconds, size, memory = journal(folder)
        print(f"journal, per result: {seconds * 1e6:.0f} us, {size:.0f} bytes in the file, {memory:.0f} in memory")
        for piece in (20, 200):
            result, start, pieces = streamed(folder / str(piece), piece)
            print(
                f"through Ray, {pieces:,} pieces of at most {piece}: {result * 1e6:.0f} us per result, "
                f"{start * 1e3:.1f} ms per piece"
            )
    print(f"a real piece of one case: {a_piece():.1f} s of processor time")


if __name__ == "__main__":
    main()
