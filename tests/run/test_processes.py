"""Events, the queue of cases, logs and process trees: what a run stands on when processes crash."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from living import alive

from verispec.run import fork_server, supervisor
from verispec.run.case_queue import LARGEST as LARGEST_BLOCK
from verispec.run.case_queue import CaseQueue
from verispec.run.events import (
    CANNOT_WRITE,
    CaseEnded,
    CaseStarted,
    Collected,
    EngineStarted,
    EventReader,
    EventWriter,
    WorkerEnded,
    WorkerEvent,
    WorkerStarted,
)
from verispec.run.logs import LARGEST, LINES, TAIL, WIDTH, announce, bound_log, crash_of, last_lines
from verispec.run.process_tree import adopt_orphans, descendants, kill_descendants

EVENTS: list[WorkerEvent] = [
    Collected(["a", "b"], []),
    WorkerStarted(3),
    EngineStarted(3, {"name": "x", "details": {"ключ": "\udcff"}}),
    CaseStarted(3, 17, {"id": "a"}),
    CaseEnded(3, {"id": "a", "seconds": 0.5}),
    WorkerEnded(3, -11),
]


def in_child(action: object) -> int:
    """Return the exit status of a forked process that calls `action`."""
    pid = os.fork()
    if pid == 0:
        try:
            action()  # type: ignore[operator]
            os._exit(0)
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_what_is_written_is_read_in_order(tmp_path: Path) -> None:
    reader, writer = EventReader(tmp_path / "log"), EventWriter(tmp_path / "log")
    for event in EVENTS:
        writer.write(event)
    read = list(reader.new())
    assert [type(event) for event in read] == [type(event) for event in EVENTS]
    assert read[:2] == EVENTS[:2]
    assert read[3:] == EVENTS[3:]
    assert list(reader.new()) == []


def test_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    EventWriter(log).write(EVENTS[0])
    whole = log.read_bytes()
    log.write_bytes(whole[:10])
    reader = EventReader(log)
    assert list(reader.new()) == []
    with log.open("ab") as file:
        file.write(whole[10:])
    assert list(reader.new()) == [EVENTS[0]]


def test_a_copy_of_the_process_cannot_report(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path / "log")
    assert in_child(lambda: writer.write(EVENTS[0])) == 0
    assert (tmp_path / "log").read_bytes() == b""
    assert in_child(lambda: writer.in_this_process().write(EVENTS[0])) == 0
    assert (tmp_path / "log").read_bytes() != b""


def test_a_process_that_cannot_report_ends(tmp_path: Path) -> None:
    def full() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        writer = EventWriter(tmp_path / "log")
        for _ in range(10):
            writer.write(Collected(["x" * 40], []))

    assert in_child(full) == CANNOT_WRITE


def test_the_queue_gives_every_case_once(tmp_path: Path) -> None:
    cases = [f"case {n}" for n in range(1000)]
    CaseQueue(tmp_path / "queue").put(cases)
    taken = tmp_path / "taken"
    taken.touch()

    def work() -> None:
        queue = CaseQueue(tmp_path / "queue")
        log = os.open(taken, os.O_WRONLY | os.O_APPEND)
        while block := queue.take(4):
            os.write(log, "".join(f"{case}\n" for case in block).encode())
        os._exit(0)

    pids = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            work()
        pids.append(pid)
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0
    lines = taken.read_text().splitlines()
    assert len(lines) == len(cases)
    assert set(lines) == set(cases)


def test_one_worker_takes_everything_and_what_comes_back_later(tmp_path: Path) -> None:
    queue = CaseQueue(tmp_path / "queue")
    queue.put(["a", "b", "c"])
    assert queue.take(1) == ["a", "b", "c"]
    assert queue.take(1) == []
    queue.put(["b"])
    assert queue.take(1) == ["b"]


def test_shares_are_neighbours_and_shrink(tmp_path: Path) -> None:
    queue = CaseQueue(tmp_path / "queue")
    queue.put(str(n) for n in range(80))
    blocks = []
    while block := queue.take(2):
        blocks.append(block)
    assert [case for block in blocks for case in block] == [str(n) for n in range(80)]
    assert [len(block) for block in blocks[:3]] == [10, 9, 8]
    assert len(blocks[-1]) == 1


def test_no_worker_takes_most_of_a_suite(tmp_path: Path) -> None:
    """A share of 6,273 cases was 785, the slow ones among them: a second worker idled for 106 s of 460."""
    queue = CaseQueue(tmp_path / "queue")
    queue.put(str(n) for n in range(6000))
    assert len(queue.take(2)) == LARGEST_BLOCK


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_server_ends_by_the_signal_of_its_template(number: int) -> None:
    """As an exit code it read 'ended itself with exit code 247'."""
    assert in_child(lambda: fork_server.end_like(number)) == -number
    assert in_child(lambda: fork_server.end_like(3 << 8)) == 3


def test_a_server_that_is_killed_from_outside_accuses_nobody(tmp_path: Path) -> None:
    class Killed:
        returncode = -signal.SIGKILL

    run = object.__new__(supervisor.Supervisor)
    run._scratch, run._child = tmp_path, Killed()  # type: ignore[assignment]
    (tmp_path / "server.log").write_text("===== test session starts =====\ncollected 829 items\n")
    told = run._server_ended().diagnostic
    assert (told.message, told.cause) == ("the process was ended by SIGKILL (Killed)", "")
    assert "--resume" in told.hint


def test_a_tree_is_ended_whatever_session_its_processes_are_in(tmp_path: Path) -> None:
    """A child that starts a daemon: its parent has ended, its session is its own."""
    told = tmp_path / "pid"
    script = (
        "import os, sys, time, pathlib\n"
        "from verispec.run.process_tree import adopt_orphans\n"
        "adopt_orphans()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        pathlib.Path({str(told)!r}).write_text(str(os.getpid()))\n"
        "        time.sleep(3600)\n"
        "    os._exit(0)\n"
        "time.sleep(3600)\n"
    )
    root = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        while not (told.exists() and told.read_text()):
            time.sleep(0.01)
        daemon = int(told.read_text())
        while daemon not in descendants(root.pid):  # until its parent has ended
            time.sleep(0.01)
        kill_descendants(root.pid)
        assert descendants(root.pid) == []
        assert root.poll() is None
    finally:
        root.kill()
        root.wait()


def test_workers_of_a_tree_can_be_spared() -> None:
    root = os.getpid()
    spared, ended = (subprocess.Popen(["sleep", "3600"]) for _ in range(2))
    try:
        kill_descendants(root, without=[*descendants(root, without=[spared.pid, ended.pid]), spared.pid])
        assert ended.wait() == -signal.SIGKILL
        assert spared.poll() is None
    finally:
        spared.kill()
        spared.wait()


def test_adopting_is_harmless_where_it_is_not_needed() -> None:
    assert in_child(adopt_orphans) == 0


def test_the_end_of_a_log_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {n}\n" for n in range(100_000)))
    assert last_lines(log).splitlines() == [f"line {n}" for n in range(100_000 - LINES, 100_000)]
    log.write_text("y" * (TAIL + 5))
    assert len(last_lines(log)) <= WIDTH + 3


def test_a_traceback_is_preferred_to_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\nFatal Python error: Aborted\n" + "  frame\n" * 40)
    assert last_lines(log).splitlines()[0] == "Fatal Python error: Aborted"
    assert last_lines(log, start=len("before\nFatal Python error: Aborted\n")).splitlines() == ["  frame"] * LINES


ENDED = "the process was ended by SIGSEGV (Segmentation fault)"
ABORTED = "the process was ended by SIGABRT (Aborted)"
BROKEN = "the process had a segmentation fault"
HUNG = "no answer within 9 s"
SEGFAULT = "Fatal Python error: Segmentation fault\n"
CALL = "verispec: the next call has"


@pytest.mark.parametrize(
    ("how", "log", "outcome", "message"),
    [
        (ENDED, SEGFAULT, "crash", ENDED),
        (ABORTED, "Fatal Python error: Aborted\n", "crash", ABORTED),
        (ABORTED, SEGFAULT, "crash", f"{BROKEN} and was ended by SIGABRT (Aborted)"),
        (HUNG, "Fatal Python error: Aborted\n", "timeout", HUNG),
        (HUNG, f"{SEGFAULT}Fatal Python error: Aborted\n", "crash", f"{BROKEN} and did not end"),
        (HUNG, "Fatal Python error: Cannot recover from stack overflow\n", "timeout", HUNG),
        (ENDED, f"{CALL} 1 request\n{CALL} x int64\n{SEGFAULT}", "crash", f"{ENDED}; its last call had x int64"),
    ],
)  # fmt: skip
def test_a_crash_is_told_by_its_first_fault_and_its_last_call(
    how: str, log: str, outcome: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_text(f"{CALL} 99 requests\n{SEGFAULT}")
    begin = path.stat().st_size
    with path.open("a") as file:
        file.write(log)
    assert crash_of(how, path, begin, hung=how == HUNG) == (outcome, message), "what another case wrote does not count"
    assert CALL not in last_lines(path, begin)


def test_announcing_writes_to_the_log_of_the_process_and_harms_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    announce("2 requests")
    assert capfd.readouterr().err == f"{CALL} 2 requests\n"
    kept = os.dup(2)
    os.close(2)
    try:
        announce("an engine closed the file")
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def test_a_log_that_grows_without_end_is_emptied(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab") as file:
        os.truncate(log, LARGEST + 1)
        bound_log(log)
        assert log.stat().st_size == 0
        file.write(b"afterwards\n")
    assert last_lines(log, start=LARGEST) == "afterwards", "an offset from before counts from the start"
    bound_log(tmp_path / "nowhere")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_a_full_disk_ends_the_process_that_writes(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = EventWriter(tmp_path / "log")
    write = os.write

    def fails(file: int, data: bytes) -> int:
        if file == 2:
            return write(file, data)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", fails)
    assert in_child(lambda: writer.in_this_process().write(EVENTS[0])) == CANNOT_WRITE


def test_an_interrupt_while_a_server_is_ended_leaves_no_stopped_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is stopped first, and nothing would continue or end it later."""

    def interrupted(pid: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(supervisor, "kill_descendants", interrupted)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with pytest.raises(KeyboardInterrupt):
            supervisor._end(child)
        assert child.wait(timeout=60) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()


SERVER = (
    "import os, pathlib, sys, time\n"
    "from verispec.run.fork_server import ForkServer\n"
    "scratch = pathlib.Path(sys.argv[1])\n"
    "if sys.argv[2] == 'starts':\n"
    "    (scratch / 'ready').touch()\n"
    "    while os.getppid() == int(sys.argv[3]):\n"
    "        time.sleep(0.01)\n"
    "server = ForkServer(scratch, 1)\n"
    "if sys.argv[2] == 'starts':\n"
    "    time.sleep(3600)\n"
    "server.fork_template(lambda: (scratch / 'ready').touch(), 60)\n"
    "server.serve(lambda *_: None)\n"
)
"""A server that says when it is ready to lose its supervisor."""

SUPERVISOR = (
    "import os, pathlib, signal, subprocess, sys, time\n"
    "from verispec.run import supervisor\n"
    "scratch, when, server = pathlib.Path(sys.argv[1]), *sys.argv[2:]\n"
    "command = [sys.executable, '-c', server, str(scratch), when, str(os.getpid())]\n"
    "child = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)\n"
    "(scratch / 'pid').write_text(str(child.pid))\n"
    "while not (scratch / 'ready').exists():\n"
    "    time.sleep(0.01)\n"
    "kill = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    "supervisor.kill_descendants = kill\n"
    "supervisor._end(child) if when == 'ends' else kill()\n"
)
"""A supervisor that is killed at the worst moment."""


@pytest.mark.parametrize("when", ["starts", "ends"])
def test_no_server_is_left_by_a_supervisor_that_is_killed_while_the_server(when: str, tmp_path: Path) -> None:
    """A server that starts has not asked to end with its supervisor; one that is ended was stopped."""
    killed = subprocess.run([sys.executable, "-c", SUPERVISOR, str(tmp_path), when, SERVER], check=False)
    assert killed.returncode == -signal.SIGKILL
    server = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 60
    while alive(server):
        assert time.monotonic() < until, f"the server goes on: {Path(f'/proc/{server}/stat').read_text()}"
        time.sleep(0.05)
