"""Fleets on processes of this machine, from the outside: results, failures of engines, kills and resumes."""

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
from fleets import CONTROL, FAULTY, ONLY, complete_under_kills, doubled, outcomes, verispec, write
from judging import THE_ONE, importable, in_process, verdict_on
from living import alive

from verispec import exits
from verispec.run import runfile
from verispec.run.process_tree import descendants

pytestmark = pytest.mark.timeout(900)
"""A driver that is broken may wait for ever; far above what a test takes on a busy machine."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The outcomes of plain runs, by engine."""
    folder = tmp_path_factory.mktemp("expected")
    found = {}
    for engine in (CONTROL, FAULTY):
        path = folder / f"{engine.partition(':')[2]}.jsonl"
        verdict_on(engine, path, only=(ONLY,), seed=7)
        found[engine] = outcomes(path)
    return found


def test_a_fleet_finds_what_its_runs_find(tmp_path: Path, expected: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Each cell is a results file like that of a run, although its cases ran in pieces of several processes."""
    file = write(
        tmp_path / "fleet.toml", CONTROL, FAULTY, "broken_engines:Segfaults", "no_such_module:Engine", piece=20
    )
    words = ("--out", str(tmp_path / "out"), "--json", "--html", str(tmp_path / "matrix.html"))
    code, out, _ = in_process(capsys, "fleet", str(file), *words)
    assert code == exits.BAD
    report = json.loads(out)
    good, faulty, crashing, absent = report["cells"]
    assert [cell["exit"] for cell in report["cells"]] == [exits.GOOD, exits.BAD, exits.BAD, exits.CANNOT_TELL]
    assert [cell["state"] for cell in report["cells"]] == ["done", "done", "done", "failed"]
    assert outcomes(Path(good["file"])) == expected[CONTROL]
    assert outcomes(Path(faulty["file"])) == expected[FAULTY]
    (crash,) = [case for case, outcome in outcomes(Path(crashing["file"])).items() if outcome != "pass"]
    assert (crash, crashing["counts"]["crash"]) == (THE_ONE, 1), "a crash costs its case"
    assert "no_such_module" in absent["reason"]
    assert not Path(absent["file"]).exists()
    (row,) = report["matrix"]
    assert row["op"] == "expand_batch_to_tokens"
    assert [row["cells"][name]["state"] for name in ("cell0", "cell1", "cell2")] == ["pass", "fail", "fail"]
    run = runfile.read(Path(good["file"]))
    assert (run.header["cell"], run.footer["complete"], run.header["cases"]) == ("cell0", True, len(run.records))
    assert THE_ONE in (tmp_path / "matrix.html").read_text()

    code, out, _ = in_process(capsys, "fleet", "--status", str(tmp_path / "out"), "--json")
    assert (code, json.loads(out)["over"]) == (exits.GOOD, True)
    assert [cell["state"] for cell in json.loads(out)["cells"]] == ["done", "done", "done", "failed"]
    code, out, _ = in_process(capsys, "fleet", "--status", str(tmp_path / "out"))
    assert "cell3  failed" in " ".join(out.split()).replace("cell3 failed", "cell3  failed")

    code, _, err = in_process(capsys, "fleet", str(file), *words)
    assert (code, "V-FLEET-FOLDER" in err, "--resume" in err) == (exits.USAGE, True, True)


def test_known_failures_and_floors_count_per_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "known.toml").write_text(
        f'[[expect]]\ncase = "{ONLY}"\noutcome = "fail"\nissue = "https://example.org/1"\n'
    )
    file = write(tmp_path / "fleet.toml", CONTROL, FAULTY)
    text = file.read_text().replace(f'name = "{CONTROL}"', f'name = "{CONTROL}"\nmin_judged = "10000"')
    file.write_text(text + 'expect = "known.toml"\n')
    code, out, _ = in_process(capsys, "fleet", str(file), "--out", str(tmp_path / "out"), "--json")
    floor, known = json.loads(out)["cells"]
    assert (code, floor["exit"]) == (exits.BAD, exits.CANNOT_TELL), "too few cases were decided"
    assert set(known["counts"]) == {"xfail", "xpass"}
    assert known["exit"] == exits.BAD, "an entry that passes is stale"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), "V-FLEET-WHAT"),
        (("fleet.toml", "--resume", "out"), "V-FLEET-WHAT"),
        (("--resume", "none"), "V-FLEET-FOLDER"),
        (("--status", "none"), "V-FLEET-FOLDER"),
        (("fleet.toml", "--on", "moon"), "V-FLEET-ON"),
        (("fleet.toml", "--memory", "much"), "V-FLEET-FILE"),
        (("fleet.toml", "--memory", "1 MB"), "V-FLEET-RESOURCES"),
    ],
)
def test_wrong_usage(
    words: tuple[str, ...],
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("fleet.toml"), CONTROL)
    status, _, err = in_process(capsys, "fleet", *words)
    assert (status, code in err) == (exits.USAGE, True), err


def test_cells_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "fleet.toml", CONTROL, FAULTY)
    code, out, _ = in_process(capsys, "fleet", str(file), "--cells")
    assert code == exits.GOOD
    assert out.splitlines()[1] == f"cell1  {FAULTY}  this platform  this environment  all suites"


def command_of(pid: int) -> str:
    """Return the command of a process; "" if it ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def wait_for_result(folder: Path, child: subprocess.Popen[str]) -> Path:
    """Wait until a cell has a result; return its file."""
    while True:
        for path in folder.glob("*.jsonl"):
            if '"type":"case"' in path.read_text():
                return path
        assert child.poll() is None, child.communicate()
        time.sleep(0.05)


def test_an_interrupt_leaves_whole_files_and_a_report(tmp_path: Path, expected: Any) -> None:
    file = write(tmp_path / "fleet.toml", "broken_engines:Hangs", timeout=10000)
    child = verispec("fleet", str(file), "--out", str(tmp_path / "out"))
    path = wait_for_result(tmp_path / "out", child)
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate()
    assert child.returncode == exits.CANNOT_TELL, err
    assert "interrupted" in out
    assert runfile.read(path).footer["reason"] == "interrupted"
    assert json.loads((tmp_path / "out" / "fleet.json").read_text())["cells"][0]["state"] == "stopped"


def test_nothing_goes_on_when_the_driver_is_killed(tmp_path: Path) -> None:
    file = write(tmp_path / "fleet.toml", "broken_engines:Hangs", timeout=10000)
    child = verispec("fleet", str(file), "--out", str(tmp_path / "out"))
    wait_for_result(tmp_path / "out", child)
    below = {pid: command_of(pid) for pid in descendants(child.pid)}
    assert len(below) > 1
    child.kill()
    child.communicate()
    until = time.monotonic() + 60
    while left := [command for pid, command in below.items() if alive(pid)]:
        assert time.monotonic() < until, f"processes of a killed fleet live on: {left}"
        time.sleep(0.05)


def test_a_second_driver_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "fleet.toml", "broken_engines:Hangs", timeout=10000)
    child = verispec("fleet", str(file), "--out", str(tmp_path / "out"))
    wait_for_result(tmp_path / "out", child)
    code, _, err = in_process(capsys, "fleet", "--resume", str(tmp_path / "out"))
    assert (code, "V-FLEET-BUSY" in err) == (exits.CANNOT_TELL, True)
    child.kill()
    child.communicate()


def kill_often(folder: Path, times: int, expected: dict[str, dict[str, str]], rng: random.Random) -> None:
    """Kill the driver or a process below it, `times` times; complete the fleet and compare it with plain runs."""

    def kill(child: subprocess.Popen[str]) -> bool:
        victims = [child.pid] if rng.random() < 0.3 else descendants(child.pid)
        if victims and child.poll() is None:
            os.kill(rng.choice(victims), signal.SIGKILL)
            return True
        return False

    file = write(folder / "fleet.toml", CONTROL, FAULTY, piece=20)
    wanted = {"cell0": expected[CONTROL], "cell1": expected[FAULTY]}
    complete_under_kills(file, folder, wanted, times, kill, lambda: rng.uniform(0, 6))


@pytest.mark.slow
def test_kills_lose_and_double_nothing(tmp_path: Path, expected: Any) -> None:
    with importable():
        kill_often(tmp_path, 4, expected, random.Random(7))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(5))
def test_many_kills_lose_and_double_nothing(seed: int, tmp_path: Path, expected: Any) -> None:
    with importable():
        kill_often(tmp_path, 20, expected, random.Random(seed))


@pytest.mark.slow
def test_the_fleet_uses_no_more_than_it_may(tmp_path: Path, expected: Any) -> None:
    """With one core there is one piece at a time, whatever is left to do."""
    file = write(tmp_path / "fleet.toml", CONTROL, FAULTY, piece=20)
    child = verispec("fleet", str(file), "--out", str(tmp_path / "out"), "--cores", "1")
    most = 0
    while child.poll() is None:
        state = tmp_path / "out" / "fleet.json"
        if state.exists():
            most = max(most, sum(cell["pieces"] for cell in json.loads(state.read_text())["cells"]))
        time.sleep(0.05)
    assert child.returncode == exits.BAD
    assert most == 1
    assert outcomes(tmp_path / "out" / "cell1.jsonl") == expected[FAULTY]
    assert doubled(tmp_path / "out" / "cell1.jsonl") == []
