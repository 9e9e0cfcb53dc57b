"""Engines with one fault outside of what an op computes: in a phase of their life, or in what a call does around it.

`test_lifecycle.py` says what the result of each must be.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import torch
from broken_engines import OP, Broken, WritesBeyond, is_the_one
from broken_engines import _correct as correct

from verispec.engines import Description, OpFunction, Unsupported, UnsupportedCall

FOLDER = "VERISPEC_TEST_FOLDER"
"""Environment variable: where engines leave traces for their test."""


def sleep_forever() -> None:
    while True:
        time.sleep(3600)


def leave(name: str, text: str) -> None:
    (Path(os.environ[FOLDER]) / name).write_text(text)


class HangsAtStart(Broken):
    """Never ends its constructor."""

    def __init__(self) -> None:
        sleep_forever()


class HangsInDescribe(Broken):
    def describe(self) -> Description:
        sleep_forever()
        raise AssertionError


class RaisesInDescribe(Broken):
    def describe(self) -> Description:
        raise RuntimeError("no description today")


class ExitsAtStart(Broken):
    """Calls sys.exit(0), which must not look like a run that went well."""

    def __init__(self) -> None:
        sys.exit(0)


class InterruptsAtStart(Broken):
    def __init__(self) -> None:
        raise KeyboardInterrupt


class HangsAtClose(Broken):
    def close(self) -> None:
        sleep_forever()


class RaisesAtClose(Broken):
    def close(self) -> None:
        raise RuntimeError("the server is gone")


class ExitsAtClose(Broken):
    def close(self) -> None:
        sys.exit(3)


class EndsAtClose(Broken):
    def close(self) -> None:
        os._exit(4)


class Interrupts(Broken):
    """Raises KeyboardInterrupt in one case."""

    def expand(self, **arguments: Any) -> None:
        if is_the_one(arguments):
            raise KeyboardInterrupt
        correct(**arguments)


class InterruptsInOp(Broken):
    """Raises KeyboardInterrupt whenever it is asked for the op again, which is before the call itself."""

    asked = False

    def op(self, name: str) -> OpFunction | Unsupported:
        if name == OP and self.asked:
            raise KeyboardInterrupt("while looking for the kernel")
        self.asked |= name == OP
        return super().op(name)


class RaisesABaseException(Broken):
    """Raises what no `except Exception` catches."""

    def expand(self, **arguments: Any) -> None:
        if is_the_one(arguments):
            raise GeneratorExit("from a kernel")
        correct(**arguments)


class RaisesWithoutText(Broken):
    """Raises an exception whose text cannot be read."""

    def expand(self, **arguments: Any) -> None:
        class NoText(Exception):
            def __str__(self) -> str:
                raise ValueError

        if is_the_one(arguments):
            raise NoText
        correct(**arguments)


class RaisesALot(Broken):
    """Raises an exception with a text of 64 MB."""

    def expand(self, **arguments: Any) -> None:
        if is_the_one(arguments):
            raise RuntimeError("x" * (64 << 20))
        correct(**arguments)


class Forks(Broken):
    """Forks in every call, and lets the copy of the process return from the op as well."""

    def expand(self, **arguments: Any) -> None:
        os.fork()
        correct(**arguments)


class LeavesAServer(Broken):
    """Starts a process in a session of its own that does not end."""

    def __init__(self) -> None:
        server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
        leave("server", str(server.pid))


class LeavesADaemon(Broken):
    """Starts a process that has left its parent and its session behind, and crashes afterwards."""

    def expand(self, **arguments: Any) -> None:
        if is_the_one(arguments):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    leave("daemon", str(os.getpid()))
                    sleep_forever()
                os._exit(0)
            while not (Path(os.environ[FOLDER]) / "daemon").exists():
                time.sleep(0.01)
            os.abort()
        correct(**arguments)


class PrintsWithoutEnd(Broken):
    """Prints 1 GB, and aborts."""

    def expand(self, **arguments: Any) -> None:
        if is_the_one(arguments):
            line = b"x" * 1023 + b"\n"
            for _ in range(1 << 10):
                os.write(1, line * (1 << 10))
            os.abort()
        correct(**arguments)


class ClosesEverything(Broken):
    """Closes every file descriptor of its process, the event log's included."""

    def expand(self, **arguments: Any) -> None:
        if is_the_one(arguments):
            os.closerange(0, 4096)
        correct(**arguments)


class ClosesItsOutput(Broken):
    """Closes stdin, stdout and stderr in one case, and is right."""

    def expand(self, **arguments: Any) -> None:
        if is_the_one(arguments):
            os.closerange(0, 3)
        correct(**arguments)


class BeginsToReject(Broken):
    """Rejects every call after the fifth of its process."""

    calls: ClassVar[int] = 0

    def expand(self, **arguments: Any) -> None:
        BeginsToReject.calls += 1
        if self.calls > 5:
            raise UnsupportedCall("the queue is full")
        correct(**arguments)


class BeginsToLackTheOp(Broken):
    """Answers for the op five times, then says that it does not have it."""

    asked: ClassVar[int] = 0

    def op(self, name: str) -> OpFunction | Unsupported:
        BeginsToLackTheOp.asked += 1
        return Unsupported("the kernel is gone") if self.asked > 5 else super().op(name)


class RejectsEveryCall(Broken):
    """Offers the op, and rejects every call of it."""

    def expand(self, **arguments: Any) -> None:
        raise UnsupportedCall("not on this machine")


class IsKilled(Broken):
    """Is ended from outside in one case, as by a system without memory."""

    def expand(self, **arguments: Any) -> None:
        if is_the_one(arguments):
            os.kill(os.getpid(), signal.SIGKILL)
        correct(**arguments)


class IsKilledOnce(Broken):
    """Is ended from outside in one case, when that runs for the first time."""

    def expand(self, **arguments: Any) -> None:
        mark = Path(os.environ["VERISPEC_TEST_MARK"])
        if is_the_one(arguments) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        correct(**arguments)


class CrashesInEveryCase(Broken):
    def expand(self, **arguments: Any) -> None:
        os.abort()


class StartsOnce(Broken):
    """Starts in its first process only, where one case crashes."""

    def __init__(self) -> None:
        if (Path(os.environ[FOLDER]) / "started").exists():
            raise RuntimeError("the device is still busy")
        leave("started", "")

    def expand(self, **arguments: Any) -> None:
        if is_the_one(arguments):
            os.abort()
        correct(**arguments)


class ChangesItsVersion(Broken):
    """Has another version in each process, and ends the first one in one case."""

    def describe(self) -> Description:
        return Description("changing", f"1.{os.getpid()}", platform="cpu")

    def expand(self, **arguments: Any) -> None:
        if is_the_one(arguments):
            os.abort()
        correct(**arguments)


class IsStarved(Broken):
    """Correct, and slow in one case because other processes keep its processor busy."""

    NEEDED, RIVALS = 1.0, 5
    starved = False

    def expand(self, **arguments: Any) -> None:
        if is_the_one(arguments) and not self.starved:
            self.starved = True
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # children inherit it
            rivals = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(self.RIVALS)]
            end = time.process_time() + self.NEEDED
            while time.process_time() < end:
                pass
            for rival in rivals:
                rival.kill()
                rival.wait()
        correct(**arguments)


class DamagesMemory(WritesBeyond):
    """Writes behind the output in one case, and is wrong in its process from then on, as with a damaged heap."""

    damaged = False

    def expand(self, *, output_ptr: torch.Tensor, **arguments: Any) -> None:
        if DamagesMemory.damaged:
            return
        if is_the_one({"output_ptr": output_ptr, **arguments}):
            DamagesMemory.damaged = True
            super().expand(output_ptr=output_ptr, **arguments)
        else:
            Broken.expand(self, output_ptr=output_ptr, **arguments)
