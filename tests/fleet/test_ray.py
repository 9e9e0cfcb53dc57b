"""Fleets on a Ray cluster of several machines, which are processes here, and die in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from clusters import Machines, free_port
from fleets import CONTROL, FAULTY, ONLY, complete_under_kills, doubled, outcomes, verispec, write
from judging import verdict_on

from verispec import exits
from verispec.errors import VerispecError
from verispec.fleet.cell import CellRun
from verispec.fleet.driver import Folder, drive
from verispec.fleet.file import load
from verispec.fleet.plan import FleetPlan, Resources
from verispec.run import runfile
from verispec.run.process_tree import descendants
from verispec.run.session import Brakes

pytestmark = [pytest.mark.fleet, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The outcomes of plain runs, by cell."""
    folder = tmp_path_factory.mktemp("expected")
    for name, engine in (("cell0", CONTROL), ("cell1", FAULTY)):
        verdict_on(engine, folder / f"{name}.jsonl", only=(ONLY,), seed=7)
    return {name: outcomes(folder / f"{name}.jsonl") for name in ("cell0", "cell1")}


class Meddler:
    """A watcher that does something at random moments while the fleet runs."""

    def __init__(self, rng: random.Random, times: int, seconds: float, meddle: Any) -> None:
        self._rng, self._meddle, self._seconds = rng, meddle, seconds
        self.left = times
        self._next = time.monotonic() + seconds

    def look(self, cells: list[CellRun]) -> None:
        if self.left and time.monotonic() > self._next:
            self.left -= 1
            self._meddle()
            self._next = time.monotonic() + self._rng.uniform(0, 2 * self._seconds)

    def close(self) -> None:
        pass


def run(plan: FleetPlan, folder: Path, machines: Machines, watcher: Any) -> list[CellRun]:
    import ray

    from verispec.fleet.on_ray import RayExecutor

    ray.init(address=machines.cluster.address, log_to_driver=False, ignore_reinit_error=True)
    opened = Folder(folder)
    try:
        return drive(plan, opened, RayExecutor("ray"), watcher, Brakes(max_time=1200))
    finally:
        opened.close()


def require_whole(folder: Path, expected: dict[str, dict[str, str]]) -> None:
    for name, results in expected.items():
        path = folder / f"{name}.jsonl"
        assert outcomes(path) == results
        assert not doubled(path)
        assert runfile.read(path).footer["complete"]


def test_a_cluster_finds_what_this_machine_finds(tmp_path: Path, machines: Machines, expected: Any) -> None:
    plan = load(write(tmp_path / "fleet.toml", CONTROL, FAULTY, piece=20))
    cells = run(plan, tmp_path / "out", machines, Meddler(random.Random(7), 0, 1, None))
    assert [str(cell.state) for cell in cells] == ["done", "done"]
    require_whole(tmp_path / "out", expected)


def test_machines_may_die(tmp_path: Path, machines: Machines, expected: Any) -> None:
    """A machine is killed and another one comes, again and again; nothing of the fleet is left on the dead ones."""
    rng = random.Random(7)

    def replace() -> None:
        machines.kill_one(rng)
        machines.add()

    meddler = Meddler(rng, 4, 8, replace)
    plan = load(write(tmp_path / "fleet.toml", CONTROL, FAULTY, piece=20))
    cells = run(plan, tmp_path / "out", machines, meddler)
    assert meddler.left < 4, "no machine was killed"
    assert [(str(cell.state), cell.reason) for cell in cells] == [("done", "")] * 2
    require_whole(tmp_path / "out", expected)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(5))
def test_machines_may_die_often(seed: int, tmp_path: Path, machines: Machines, expected: Any) -> None:
    rng = random.Random(seed)

    def replace() -> None:
        machines.kill_one(rng)
        machines.add()

    plan = load(write(tmp_path / "fleet.toml", CONTROL, FAULTY, piece=20))
    kills = 0
    for attempt in range(20):
        meddler = Meddler(rng, 10 - kills, 5, replace)
        run(plan, tmp_path / str(attempt), machines, meddler)
        kills = 10 - meddler.left
        require_whole(tmp_path / str(attempt), expected)
        if kills == 10:
            return
    raise AssertionError(f"only {kills} machines were killed")


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(2))
def test_anything_may_die_often(seed: int, tmp_path: Path, machines: Machines, expected: Any) -> None:
    """The driver, a machine, a piece or a worker of one is killed, 25 times; each fleet is resumed until it ends."""
    rng = random.Random(seed)

    def kill(child: subprocess.Popen[str]) -> bool:
        what = rng.choice(["driver", "machine", "process"])
        if what == "machine":
            machines.kill_one(rng)
            machines.add()
            return True
        victims = [child.pid] if what == "driver" else [below for pid in pieces() for below in (pid, *descendants(pid))]
        if not victims or child.poll() is not None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(victims), signal.SIGKILL)
            return True
        return False

    file = write(tmp_path / "fleet.toml", CONTROL, FAULTY, piece=20)
    on = ("--on", f"ray://127.0.0.1:{machines.port}")
    complete_under_kills(file, tmp_path, expected, 25, kill, lambda: rng.uniform(0, 8), *on)


def test_custom_resources_place_tasks(tmp_path: Path, machines: Machines, expected: Any) -> None:
    from verispec.fleet.on_ray import RayExecutor

    file = write(tmp_path / "fleet.toml", CONTROL)
    file.write_text(file.read_text() + '[[platform]]\nname = "npu"\nresources = { ascend = 1 }\n')
    with pytest.raises(VerispecError) as caught:
        run(load(file), tmp_path / "none", machines, Meddler(random.Random(7), 0, 1, None))
    assert caught.value.diagnostic.code == "V-FLEET-RESOURCES"
    assert "no machine of the cluster has CPU 1" in caught.value.diagnostic.message
    assert "ascend 1" in caught.value.diagnostic.message
    machines.add(ascend=1)
    machines.cluster.wait_for_nodes()
    assert RayExecutor("ray").slots(Resources(custom={"ascend": 1})) == 1
    assert RayExecutor("ray").slots(Resources()) == 3
    (cell,) = run(load(file), tmp_path / "out", machines, Meddler(random.Random(7), 0, 1, None))
    assert outcomes(cell.path) == expected["cell0"]


def test_an_interrupted_fleet_leaves_nothing_on_the_cluster(tmp_path: Path, machines: Machines) -> None:
    plan = load(write(tmp_path / "fleet.toml", "broken_engines:Hangs", timeout=10000))

    class Interrupting(Meddler):
        def look(self, cells: list[CellRun]) -> None:
            if cells[0].records:
                raise KeyboardInterrupt

    (cell,) = run(plan, tmp_path / "out", machines, Interrupting(random.Random(7), 0, 1, None))
    assert runfile.read(cell.path).footer["reason"] == "interrupted"
    until = time.monotonic() + 60
    while pieces():
        assert time.monotonic() < until, "a piece lives on"
        time.sleep(0.1)


def pieces() -> list[int]:
    """Return the processes of pieces below this one."""
    found = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if b"verispec.fleet" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def test_a_cluster_through_its_port(tmp_path: Path, machines: Machines, expected: Any) -> None:
    """`ray://` has no streams of its own; an actor of the cluster hears for the driver."""
    file = write(tmp_path / "fleet.toml", CONTROL, FAULTY, piece=20)
    out = tmp_path / "out"
    words = ("fleet", str(file), "--out", str(out), "--on", f"ray://127.0.0.1:{machines.port}", "--json")
    child = verispec(*words)
    stdout, stderr = child.communicate()
    assert child.returncode == exits.BAD, stderr
    assert [cell["state"] for cell in json.loads(stdout)["cells"]] == ["done", "done"]
    require_whole(out, expected)


def test_a_cluster_that_does_not_answer(tmp_path: Path) -> None:
    file = write(tmp_path / "fleet.toml", CONTROL)
    child = verispec("fleet", str(file), "--on", f"ray://127.0.0.1:{free_port()}", "--out", str(tmp_path / "out"))
    _, stderr = child.communicate()
    assert (child.returncode, "V-FLEET-RAY" in stderr) == (exits.CANNOT_TELL, True), stderr
