"""An object in its own process: one that needs another environment, may crash, or exists once per process.

Requests and answers are pickled over two pipes, so stdout and stderr of the other side stay free for the
output of engines; both go to our stderr.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, Protocol

from verispec.errors import portable as portable_paths

_SERVE = "from verispec.engines.process.proxy import serve; serve()"
"""Not ``-m``: an exception of a module that runs as __main__ cannot be pickled for this side."""


FRAMES = 12
"""Innermost frames of an exception that travel with it."""


class RemoteError(Exception):
    """An exception of the other side that cannot be pickled; carries its type and text."""


class RemoteDied(Exception):
    """The other side ended in the middle of a call."""


class Process(Protocol):
    """The common interface of `subprocess.Popen` and `Forked`."""

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, negative for a signal, or raise subprocess.TimeoutExpired after `timeout` seconds."""
        ...

    def kill(self) -> None:
        """Kill the process."""
        ...


class Remote:
    """An object made by ``factory`` ("module:callable") in a new process with `environment` added to ours.

    The process starts with the first call, and again with the first call after it died. The object's
    exceptions come through. `preload` names a module that takes long to import: one process imports it once, and the
    processes of all objects with it are forked from there. That module sets its environment itself.
    """

    def __init__(
        self, factory: str, *args: Any, environment: Mapping[str, str] | None = None, preload: str = ""
    ) -> None:
        self._start = (factory, args)
        self._environment = dict(environment or {})
        self._preload = preload
        self._process: Process | None = None
        self._requests: Connection | None = None
        self._answers: Connection | None = None

    def call(self, method: str, *args: Any) -> Any:
        """Call ``object.method(*args)`` in the other process, and return its result.

        Args:
            method: name of the method.
            args: picklable arguments.

        Raises:
            RemoteDied: the process ended instead, with its signal or exit code.
        """
        self.start()
        return self._exchange((method, args))

    def start(self) -> None:
        """Make the object now, where it is not there yet; an exception of its factory ends the process."""
        if self._process is not None:
            return
        self._launch()
        try:
            self._exchange(self._start)
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        """End the process; a later call would start another."""
        if self._process is None:
            return
        for connection in (self._requests, self._answers):
            if connection is not None:
                connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        self._process.kill()
        self._process.wait()
        self._process = None

    def _launch(self) -> None:
        their_in, our_out = os.pipe()
        our_in, their_out = os.pipe()
        try:
            self._process = self._fork(their_in, their_out) if self._preload else self._spawn(their_in, their_out)
        finally:
            os.close(their_in)
            os.close(their_out)
        self._requests, self._answers = Connection(our_out, readable=False), Connection(our_in, writable=False)

    def _spawn(self, requests: int, answers: int) -> Process:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE, str(requests), str(answers)],
            pass_fds=(requests, answers),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno() if _has_fileno(sys.stderr) else None,
            env={**os.environ, **self._environment},
        )

    def _fork(self, requests: int, answers: int) -> Process:
        # Duplicates: each Connection closes its own, and `_launch` the originals.
        pipes = Connection(os.dup(requests), writable=False), Connection(os.dup(answers), readable=False)
        try:
            return Forked(self._preload, *pipes)
        finally:
            for pipe in pipes:
                pipe.close()

    def _exchange(self, request: Any) -> Any:
        assert self._process is not None
        assert self._requests is not None
        assert self._answers is not None
        try:
            self._requests.send(request)
            good, value = self._answers.recv()
        except (EOFError, OSError) as error:
            code = self._process.wait()
            self.close()
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise RemoteDied(f"the process of {self._start[0]} ended with {how}") from error
        if good:
            return value
        raise value


def _has_fileno(stream: Any) -> bool:
    try:
        stream.fileno()
    except (AttributeError, OSError, ValueError):
        return False
    return True


class Forked:
    """A process that serves over two pipes, forked from one that has imported `preload`."""

    def __init__(self, preload: str, requests: Connection, answers: Connection) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([preload])
        # Not a daemon, which may have no children: engines start one process per rank.
        self._process = context.Process(target=_serve_forked, args=(requests, answers))
        self._process.start()
        atexit.register(self.kill)  # before multiprocessing waits for its end

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, negative for a signal.

        Args:
            timeout: seconds; None waits without a limit.

        Raises:
            subprocess.TimeoutExpired: the process runs on after `timeout`.
        """
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0.0)
        return self._process.exitcode

    def kill(self) -> None:
        """Kill the process."""
        atexit.unregister(self.kill)
        self._process.kill()


def _serve_forked(requests: Connection, answers: Connection) -> None:
    os.dup2(2, 1)
    threading.Thread(target=_end_with_our_owner, daemon=True).start()
    _serve(requests, answers)
    sys.stdout.flush()
    os._exit(0)  # engines take seconds to take themselves apart, and nothing of it is wanted


def _end_with_our_owner() -> None:
    """End with the parent: it may be killed while this process is busy."""
    owner = multiprocessing.parent_process()
    assert owner is not None
    owner.join()
    os._exit(1)


def serve() -> None:
    """Answer calls in a worker process; the numbers of its pipes are its arguments."""
    _serve(Connection(int(sys.argv[1]), writable=False), Connection(int(sys.argv[2]), readable=False))


def _serve(requests: Connection, answers: Connection) -> None:
    """Make the object that the first request names, then call its methods until the owner hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    made: Any = None
    while True:
        try:
            what, args = requests.recv()
        except EOFError:
            return
        answer: tuple[bool, Any]
        try:
            if made is None:
                module, _, attribute = what.partition(":")
                gc.disable()  # while torch is imported, collections find nothing
                try:
                    made = getattr(importlib.import_module(module), attribute)(*args)
                finally:
                    gc.freeze()
                    gc.enable()
                answer = (True, None)
            else:
                answer = (True, getattr(made, what)(*args))
        except Exception as error:
            answer = (False, portable(error))
        answers.send(answer)


def portable(error: Exception) -> Exception:
    """Return `error` if pickling keeps it, else a `RemoteError` with its text; its frames here are a note of it."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first one is this module's
    try:
        is_kept = str(pickle.loads(pickle.dumps(error))) == str(error)
    except Exception:
        is_kept = False
    sent = error if is_kept else RemoteError(f"{type(error).__name__}: {error}")
    if frames:
        listed = "".join(traceback.format_list(frames[-FRAMES:])).rstrip()
        sent.add_note(portable_paths(f"in the process of the engine:\n{listed}"))
    return sent
