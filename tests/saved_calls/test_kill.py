"""kill -9 during ``run --record``: results and saved cases are whole, and the run goes on with --resume."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from judging import ZOO

from verispec import exits
from verispec.run import runfile
from verispec.saved_calls import file

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]


def test_a_killed_run_keeps_what_it_recorded(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ZOO), "VERISPEC_CACHE_DIR": str(tmp_path / "cache")}
    results, calls = tmp_path / "run.jsonl", tmp_path / "calls"
    begin = ["--engine", "small_calls:Plain", "--only", "sampler/expand_batch_to_tokens", "--out", str(results)]
    command = [sys.executable, "-m", "verispec", "run", "--record", str(calls)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*command, *begin], env=environment, start_new_session=True, **quiet)
    until = time.monotonic() + 300
    while not (results.exists() and results.read_bytes().count(b"\n") > 20):
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = runfile.read(results)
    assert (len(before.records) > 15, before.footer) == (True, {})
    kept = {file.read(path).case for path in calls.glob("[!.]*.safetensors")}
    assert {record.id for record in before.records if record.failed} <= kept
    done = subprocess.run([*command, "--resume", str(results)], env=environment, check=False, **quiet)
    assert done.returncode == exits.BAD
    assert not [*calls.glob(".*")], "launches of the killed process are gone"
    after = runfile.read(results)
    assert after.footer["complete"]
    assert after.records[: len(before.records)] == before.records
    kept = {file.read(path).case for path in calls.glob("[!.]*.safetensors")}
    assert {record.id for record in after.records if record.failed} <= kept
