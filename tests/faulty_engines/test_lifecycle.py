"""Engines that fail outside of what they compute: each gets one result, and costs no other case its own."""

from __future__ import annotations

import itertools
import os
import resource
import time
from pathlib import Path
from typing import Any

import pytest
from judging import OP, THE_ONE, verdict_on

from verispec import exits
from verispec.errors import VerispecError
from verispec.report.verdict import RunSummary
from verispec.run import supervisor
from verispec.run.session import Brakes

pytestmark = pytest.mark.timeout(600)
"""A supervisor that is broken may wait for ever; far above what a test takes on a busy machine."""

FEW = f"{OP}:EXP-1:counts=wide"
"""The cases with the batch of the one case in which engines fail."""
COUNTS = f"{OP}:EXP-1:counts=*"
"""Cases before and after that one."""
SHORT = 3.0
"""Seconds for a phase that never ends."""


def result_of(engine: str, tmp_path: Path, **options: Any) -> RunSummary:
    os.environ["VERISPEC_TEST_FOLDER"] = str(tmp_path)
    return verdict_on(f"lifecycle_engines:{engine}", tmp_path / "run.jsonl", **{"only": (FEW,), **options})


def one_failure(summary: RunSummary) -> tuple[str, str]:
    """Return kind and message of the one failure; every other case has passed."""
    (failed,) = (record for record in summary.run.records if record.failed)
    assert failed.id == THE_ONE
    assert summary.counts["pass"] == len(summary.run.records) - 1
    assert summary.complete
    return failed.kind, failed.message


def gone(pid: int) -> bool:
    """Wait until the process has ended."""
    for _ in range(1000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if f"/proc/{pid}/stat" and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


def test_damaged_memory_fails_one_case(tmp_path: Path) -> None:
    """Later cases run in a new process: they are not blamed."""
    kind, message = one_failure(result_of("DamagesMemory", tmp_path, only=(COUNTS, f"{OP}:EXP-2")))
    assert (kind, "outside output_ptr" in message) == ("outside", True)


@pytest.mark.parametrize(
    ("engine", "cause"),
    [
        ("HangsAtStart", f"no answer within {SHORT:g} s"),
        ("HangsInDescribe", f"no answer within {SHORT:g} s"),
        ("RaisesInDescribe", "RuntimeError: no description today"),
        ("ExitsAtStart", "SystemExit: 0"),
        ("InterruptsAtStart", "KeyboardInterrupt"),
    ],
)
def test_an_engine_that_does_not_start_ends_with_125(engine: str, cause: str, tmp_path: Path) -> None:
    short = {"start_timeout": SHORT} if "Hangs" in engine else {}
    with pytest.raises(VerispecError) as caught:
        result_of(engine, tmp_path, **short)
    diagnostic = caught.value.diagnostic
    assert (diagnostic.code, caught.value.exit_code) == ("V-ENG-START", exits.CANNOT_TELL)
    assert cause in diagnostic.cause
    if "Hangs" in engine:
        assert "sleep_forever" in diagnostic.cause, "the traceback says where it stood"
    assert not (tmp_path / "run.jsonl").exists(), "nothing was tested, so there is nothing to resume"


def test_an_import_that_hangs_is_ended(tmp_path: Path) -> None:
    with pytest.raises(VerispecError) as caught:
        verdict_on("hangs_at_import:Engine", tmp_path / "run.jsonl", only=(FEW,), start_timeout=SHORT)
    assert caught.value.diagnostic.code == "V-ENG-START"
    assert "hangs_at_import.py" in caught.value.diagnostic.cause


@pytest.mark.parametrize(
    ("engine", "warning"),
    [
        ("RaisesAtClose", "close() of the engine raised RuntimeError: the server is gone"),
        ("ExitsAtClose", "close() of the engine raised SystemExit: 3"),
        ("EndsAtClose", "close() of the engine: the process ended itself with exit code 4"),
    ],
)
def test_a_failing_close_is_reported(engine: str, warning: str, tmp_path: Path) -> None:
    check_close(result_of(engine, tmp_path), warning)


def test_a_close_without_an_answer_is_reported(tmp_path: Path) -> None:
    summary = result_of("HangsAtClose", tmp_path, close_timeout=SHORT)
    check_close(summary, f"close() of the engine: no answer within {SHORT:g} s")


def check_close(summary: RunSummary, warning: str) -> None:
    assert summary.run.footer["warnings"] == [warning]
    assert set(summary.counts) == {"pass"}
    assert summary.exit_code() == exits.GOOD


@pytest.mark.parametrize(
    ("engine", "kind", "message"),
    [
        ("Interrupts", "raised", "KeyboardInterrupt: the engine tried to end the process"),
        ("RaisesABaseException", "raised", "GeneratorExit: from a kernel: the engine tried to end the process"),
        ("RaisesWithoutText", "raised", "NoText"),
        ("RaisesALot", "raised", "RuntimeError: xxx"),
        ("ClosesEverything", "crash", "the engine closed files of the process that are not its own"),
    ],
)
def test_what_an_engine_raises_costs_one_case(engine: str, kind: str, message: str, tmp_path: Path) -> None:
    found = one_failure(result_of(engine, tmp_path))
    assert found[0] == kind
    assert found[1].startswith(message)
    assert len(found[1]) < 10_000


def test_a_process_that_is_killed_twice_fails_its_case(tmp_path: Path) -> None:
    assert one_failure(result_of("IsKilled", tmp_path)) == ("crash", "the process was ended by SIGKILL (Killed)")


def test_a_process_that_is_killed_once_runs_its_case_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator, or a guard of the machine's memory, says nothing about the engine."""
    monkeypatch.setenv("VERISPEC_TEST_MARK", str(tmp_path / "mark"))
    summary = result_of("IsKilledOnce", tmp_path)
    assert (set(summary.counts), summary.exit_code()) == ({"pass"}, exits.GOOD)
    (warning,) = summary.run.footer["warnings"]
    assert warning.endswith(
        "the process was ended by SIGKILL (Killed), perhaps from outside of the run; it runs once more"
    )


def test_a_case_that_memory_does_not_hold_is_undecided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has too little memory says nothing about the engine."""
    monkeypatch.setattr(supervisor, "ended_for_memory", itertools.count().__next__)
    summary = result_of("IsKilled", tmp_path)
    (left,) = (record for record in summary.run.records if record.outcome != "pass")
    assert (left.id, left.outcome) == (THE_ONE, "inconclusive")
    assert left.reason == f"{supervisor.NO_MEMORY}; run this case where more is free"


def test_closed_streams_harm_nothing(tmp_path: Path) -> None:
    summary = result_of("ClosesItsOutput", tmp_path, only=(COUNTS,))
    assert (set(summary.counts), summary.run.footer["warnings"]) == ({"pass"}, [])


def test_an_interrupt_while_an_op_is_asked_for_fails_its_cases(tmp_path: Path) -> None:
    summary = result_of("InterruptsInOp", tmp_path)
    assert {(record.outcome, record.kind) for record in summary.run.records} == {("fail", "raised")}
    assert summary.complete


def test_forks_in_an_op_add_no_results(tmp_path: Path) -> None:
    summary = result_of("Forks", tmp_path)
    lines = (tmp_path / "run.jsonl").read_text().splitlines()
    assert set(summary.counts) == {"pass"}
    assert len(lines) == len(summary.run.records) + 2, "a header, one line per case, a footer"
    assert summary.run.footer["warnings"] == []


@pytest.mark.parametrize(("engine", "trace"), [("LeavesAServer", "server"), ("LeavesADaemon", "daemon")])
def test_what_an_engine_leaves_behind_is_ended(engine: str, trace: str, tmp_path: Path) -> None:
    result_of(engine, tmp_path)
    assert gone(int((tmp_path / trace).read_text()))


def test_output_without_end_is_bounded(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kind, _ = one_failure(result_of("PrintsWithoutEnd", tmp_path))
    assert kind == "crash"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 256, "MiB that the supervisor grew; the engine printed 1,024"
    assert (tmp_path / "run.jsonl").stat().st_size < 1 << 20


@pytest.mark.parametrize("engine", ["BeginsToReject", "BeginsToLackTheOp"])
def test_an_engine_that_begins_to_reject_is_not_good(engine: str, tmp_path: Path) -> None:
    summary = result_of(engine, tmp_path, only=(COUNTS, f"{OP}:EXP-2"))
    assert summary.counts["pass"] > 0
    assert set(summary.counts) == {"pass", "unsupported"}
    assert summary.exit_code() == exits.CANNOT_TELL
    (said,) = summary.shortfalls
    assert "answers in a fresh process" in said
    assert said.count(OP) == 1, "the case that shows it is named"


def test_an_op_that_is_offered_but_never_answers_is_not_good(tmp_path: Path) -> None:
    """Beside an op that is fine, so that something was decided."""
    only = (FEW, "sampler/rejection_greedy_sample:RGS-1")
    summary = result_of("RejectsEveryCall", tmp_path, only=only)
    assert summary.counts["pass"] > 0
    assert summary.exit_code() == exits.CANNOT_TELL
    assert summary.shortfalls == ("no case was decided of 1 op (expand_batch_to_tokens), which the engine offers",)


def test_the_brake_stops_a_run_of_crashes(tmp_path: Path) -> None:
    options = {"brakes": Brakes(max_crashes=3)}
    summary = result_of("CrashesInEveryCase", tmp_path, only=(COUNTS,), options=options)
    assert dict(summary.counts) == {"crash": 3}
    assert summary.run.footer["reason"] == "stopped after 3 crashes and hangs (--max-crashes)"
    assert not summary.complete
    assert summary.exit_code() == exits.BAD


def test_an_engine_that_does_not_start_again_keeps_what_was_found(tmp_path: Path) -> None:
    summary = result_of("StartsOnce", tmp_path, only=(COUNTS,))
    assert summary.counts["crash"] == 1
    assert not summary.complete
    assert "the engine 'lifecycle_engines:StartsOnce' cannot be started" in summary.run.footer["reason"]
    assert summary.exit_code() == exits.BAD


def test_an_engine_of_another_version_in_a_later_process_ends_the_run(tmp_path: Path) -> None:
    """The header of the results names one engine."""
    summary = result_of("ChangesItsVersion", tmp_path, only=(COUNTS,))
    assert summary.counts["crash"] == 1
    assert not summary.complete
    assert "describes itself otherwise in a later process: version was '1." in summary.run.footer["reason"]


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="only Linux tells how long a process waited")
def test_a_busy_machine_makes_no_timeout(tmp_path: Path) -> None:
    """The case needs 1 s of a processor that it shares with five others, and 3 s are allowed.

    What is not measured (the first look, a supervisor that itself waits) may therefore take almost 2 s.
    """
    summary = result_of("IsStarved", tmp_path, timeout=3.0)
    assert set(summary.counts) == {"pass"}
    (starved,) = (record for record in summary.run.records if record.id == THE_ONE)
    assert starved.seconds > 3.0, "else nothing was starved"


def traces(engine_folder: Path) -> tuple[set[str], list[str]]:
    """Return the processes that imported the engine's module, and those that started the engine."""
    return set((engine_folder / "imports").read_text().split()), (engine_folder / "starts").read_text().split()


def test_a_crash_does_not_import_the_engine_again(tmp_path: Path) -> None:
    os.environ["VERISPEC_TEST_FOLDER"] = str(tmp_path)
    summary = verdict_on("slow_import:Engine", tmp_path / "run.jsonl", only=(FEW,))
    imported, started = traces(tmp_path)
    assert summary.counts["crash"] == len(summary.run.records) > 1
    assert len(imported) == 1
    assert len(set(started)) == len(started) == len(summary.run.records)
    assert not imported & set(started), "the process that imports runs no engine"


def test_an_engine_whose_import_starts_threads_is_imported_by_each_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERISPEC_TEST_THREAD", "1")
    os.environ["VERISPEC_TEST_FOLDER"] = str(tmp_path)
    summary = verdict_on("slow_import:Engine", tmp_path / "run.jsonl", only=(FEW,))
    imported, started = traces(tmp_path)
    assert summary.counts["crash"] == len(summary.run.records)
    assert set(started) < imported
