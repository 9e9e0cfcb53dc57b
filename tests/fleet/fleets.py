"""Fleets for tests: small files, processes that drive them, and the results that they must have."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from judging import OP, ZOO

from verispec.run import runfile

CONTROL = "oracle_engine:OracleEngine"
FAULTY = "broken_engines:LosesWrites"
ONLY = f"{OP}:EXP-1"
"""Cases that a piece runs in seconds."""


def write(path: Path, *engines: str, **top: Any) -> Path:
    """Write a fleet file with one ``[[engine]]`` for each of `engines`; `top` is what stands before them."""
    top = {"seed": 7, "only": [ONLY], **top}
    lines = [f"{name} = {json.dumps(value)}" for name, value in top.items()]
    for number, engine in enumerate(engines):
        lines += ["[[engine]]", f"name = {json.dumps(engine)}", f'label = "cell{number}"']
    path.write_text("\n".join(lines) + "\n")
    return path


def verispec(*words: str, **options: Any) -> subprocess.Popen[str]:
    """Start the command, which can import the engines of the tests."""
    return subprocess.Popen(
        [sys.executable, "-m", "verispec", *words],
        env={**os.environ, "PYTHONPATH": str(ZOO), **options.pop("env", {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def outcomes(path: Path) -> dict[str, str]:
    """Return the outcome of each case in a results file."""
    return {record.id: record.outcome for record in runfile.read(path).records}


def doubled(path: Path) -> list[str]:
    """Return the cases with more than one line in a results file."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return [case for case, count in Counter(line.get("id") for line in lines if "id" in line).items() if count > 1]


def complete_under_kills(
    file: Path,
    folder: Path,
    expected: dict[str, dict[str, str]],
    times: int,
    kill: Callable[[subprocess.Popen[str]], bool],
    pause: Callable[[], float],
    *options: str,
) -> None:
    """Kill `times` times. Each fleet is resumed until nothing was killed meanwhile, and is then complete.

    Args:
        file: FLEET.toml.
        folder: folder for the fleets.
        expected: outcomes of plain runs, by cell.
        times: number of kills.
        kill: kills the driver, which it receives, or something else; returns whether it did.
        pause: function that returns the seconds until the next kill.
        options: further options of the command.
    """
    kills = drivers = fleets = 0
    while kills < times:
        out = folder / str(fleets)
        fleets += 1
        before, seen = kills, {name: dict[str, str]() for name in expected}
        while True:
            earlier_kills, known = kills, (out / "fleet.json").exists()
            child = verispec("fleet", *(["--resume", str(out)] if known else [str(file), "--out", str(out)]), *options)
            while child.poll() is None and kills < times:
                time.sleep(pause())
                kills += kill(child)
            _, stderr = child.communicate()
            for name, earlier in seen.items():
                path = out / f"{name}.jsonl"
                if path.exists() and path.stat().st_size:
                    now = outcomes(path)
                    assert earlier.keys() <= now.keys(), "a result was lost"
                    assert not doubled(path)
                    seen[name] = now
            drivers += child.returncode == -signal.SIGKILL
            if kills == earlier_kills:
                break
        for name, wanted in expected.items():
            assert (out / f"{name}.jsonl").exists(), stderr
            found = outcomes(out / f"{name}.jsonl")
            assert found.keys() == wanted.keys(), f"no case is lost, none is new: {stderr}"
            # A worker that is killed in the middle of a case looks like an engine that crashes in it.
            differing = {case for case in found if found[case] != wanted[case]}
            assert all(found[case] in ("crash", "error") for case in differing)
            assert len(differing) <= kills - before
            assert runfile.read(out / f"{name}.jsonl").footer["complete"]
    print(f"{kills} kills, {drivers} of them of the driver, in {fleets} fleets")
