"""The object of the tests of `Remote`, in a module that its process imports in no time: it needs no torch."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import time

from verispec.engines import UnsupportedCall
from verispec.errors import VerispecError


class Lossy(Exception):
    """Its text is not what it is made from, so pickling would change it."""

    def __init__(self, code: str) -> None:
        super().__init__(f"code {code}")


class Subject:
    """Runs on the other side."""

    def __init__(self, start: int) -> None:
        self.count = start

    def add(self, n: int) -> int:
        self.count += n
        return self.count

    def environment(self, name: str) -> str:
        return os.environ.get(name, "")

    def raise_unsupported(self) -> None:
        raise UnsupportedCall("not here")

    def raise_user_error(self) -> None:
        raise VerispecError("V-TEST", "wrong", where="there", hint="do so", exit_code=7)

    def raise_odd(self) -> None:
        class Odd(Exception):
            pass

        raise Odd("strange")

    def raise_lossy(self) -> None:
        raise Lossy("5")

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def leave(self) -> None:
        os._exit(3)

    def pid(self) -> int:
        return os.getpid()

    def imported_by(self) -> int:
        return int(importlib.import_module("remote_preload").PID)

    def sleep(self) -> None:
        time.sleep(600)

    def children(self) -> int | None:
        """Start a process as engines do for their ranks, and return its exit code."""
        child = multiprocessing.get_context("spawn").Process(target=os.getpid)
        child.start()
        child.join()
        return child.exitcode

    def chatter(self) -> str:
        print("noise on stdout")
        return "answer"
