"""``verispec bisect --on ray``: revisions are tested by machines that lack the repository, and that may die."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from clusters import Machines
from fleets import verispec
from toy_git import ToyRepository

from verispec import exits

pytestmark = [pytest.mark.fleet, pytest.mark.timeout(900)]

EXAMPLE = (Path(__file__).resolve().parents[2] / "examples/own_engine/my_engine.py").read_text()
BROKEN = EXAMPLE.replace("input_ptr == replace_from", "input_ptr != replace_from")
CASE = "sampler/expand_batch_to_tokens:EXP-2:dtype=float32;cu=int32"


@pytest.fixture
def toy(tmp_path: Path) -> ToyRepository:
    return ToyRepository(tmp_path / "repo")


def at_import(lines: str) -> str:
    return f"import os, time\n{lines}"


def bisect(toy: ToyRepository, machines: Machines, good: str, *words: str) -> subprocess.Popen[str]:
    on = ("--on", f"ray://127.0.0.1:{machines.port}")
    fault = ("--case", CASE, "--engine", "mine:Engine")
    return verispec("bisect", "--repo", str(toy.folder), "--good", good, *fault, *on, *words)


def test_a_cluster_has_the_answer_of_this_machine(toy: ToyRepository, machines: Machines, tmp_path: Path) -> None:
    """All machines die in the middle; their revisions are tested by others."""
    seen = tmp_path / "seen"
    waits = f"if not os.path.exists({str(seen)!r}):\n    open({str(seen)!r}, 'w').close()\n    time.sleep(100)\n"
    good = toy.commit({"mine.py": EXAMPLE})
    commits = [toy.commit({"mine.py": BROKEN if number >= 3 else EXAMPLE, "n": str(number)}) for number in range(4)]
    last = toy.commit({"mine.py": at_import(waits) + BROKEN})
    child = bisect(toy, machines, good, "--parallel", "2", "--json")
    while not seen.exists():
        assert child.poll() is None, child.communicate()
        time.sleep(0.1)
    while machines.nodes:
        machines.kill_one(random.Random(7))
    for _ in range(2):
        machines.add()
    out, err = child.communicate()
    assert child.returncode == exits.GOOD, err
    report = json.loads(out)
    assert report["first_bad"]["name"] == commits[3]
    assert report["verdicts"][last] == "bad"
    assert report["rounds"] < report["judged"] <= report["tested"]


def test_the_files_of_a_revision_go_to_the_machine(toy: ToyRepository, machines: Machines, tmp_path: Path) -> None:
    """The engine says where it lies: not in a checkout, which has the name of its commit and needs the repository."""
    telling = EXAMPLE + f"\nopen({str(tmp_path / 'where')!r}, 'a').write(__file__ + '\\n')\n"
    good = toy.commit({"mine.py": telling})
    bad = toy.commit({"mine.py": BROKEN})
    child = bisect(toy, machines, good, "--json")
    out, err = child.communicate()
    assert child.returncode == exits.GOOD, err
    assert json.loads(out)["first_bad"]["name"] == bad
    assert f"@{toy.folder}#{bad}" in json.loads(out)["repro"], "the command for this machine names the repository"
    places = (tmp_path / "where").read_text().splitlines()
    assert places
    assert not [place for place in places if good in place]


def test_an_interrupt_ends_the_tests_of_a_cluster(toy: ToyRepository, machines: Machines, tmp_path: Path) -> None:
    good = toy.commit({"mine.py": EXAMPLE})
    tells = f"open({str(tmp_path / 'seen')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    toy.commit({"mine.py": at_import(tells) + EXAMPLE})
    child = bisect(toy, machines, good, "--parallel", "2")
    while not (tmp_path / "seen").exists():
        assert child.poll() is None, child.communicate()
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    pid = int((tmp_path / "seen").read_text())
    until = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < until, "the engine of an interrupted search lives on"
        time.sleep(0.1)


def test_what_a_cluster_lacks_is_said(toy: ToyRepository, machines: Machines) -> None:
    good = toy.commit({"mine.py": EXAMPLE})
    toy.commit({"mine.py": BROKEN})
    child = bisect(toy, machines, good, "--gpus", "1")
    _, err = child.communicate()
    assert (child.returncode, "no machine of the cluster has CPU 1, GPU 1" in err) == (exits.CANNOT_TELL, True), err
