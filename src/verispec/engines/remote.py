"""An object in a process of its own: for what needs another environment, may crash, or exists once a process.

Requests and answers are pickled over two pipes, so stdout and stderr of the other side stay free for
what engines print; both go to our stderr.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

_SERVE = "from verispec.engines.remote import serve; serve()"
"""Not ``-m``: an exception of a module that runs as __main__ cannot be pickled for this side."""


class RemoteError(Exception):
    """An exception of the other side that cannot be pickled; carries its type and text."""


class RemoteDied(Exception):
    """The other side ended in the middle of a call."""


class Remote:
    """An object made by ``factory`` ("module:callable") in a new process with `environment` added to ours.

    The process starts with the first call, and again with the first call after it died. The object's
    exceptions come through.
    """

    def __init__(self, factory: str, *args: Any, environment: Mapping[str, str] | None = None) -> None:
        self._start = (factory, args)
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: Connection | None = None
        self._answers: Connection | None = None

    def call(self, method: str, *args: Any) -> Any:
        """``object.method(*args)`` over there. Raises `RemoteDied` with the signal or exit code if it ends instead."""
        self.start()
        return self._exchange((method, args))

    def start(self) -> None:
        """Make the object now, where it is not there yet; what its factory raises ends the process."""
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
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _SERVE, str(their_in), str(their_out)],
                pass_fds=(their_in, their_out),
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if _has_fileno(sys.stderr) else None,
                env={**os.environ, **self._environment},
            )
        finally:
            os.close(their_in)
            os.close(their_out)
        self._requests, self._answers = Connection(our_out, readable=False), Connection(our_in, writable=False)

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


def serve() -> None:
    """The other side: make the object that the first request names, then call its methods until we hang up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = Connection(int(sys.argv[1]), writable=False), Connection(int(sys.argv[2]), readable=False)
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
                made = getattr(importlib.import_module(module), attribute)(*args)
                answer = (True, None)
            else:
                answer = (True, getattr(made, what)(*args))
        except Exception as error:
            answer = (False, portable(error))
        answers.send(answer)


def portable(error: Exception) -> Exception:
    """`error` as it can travel: itself where pickling keeps it, else its text."""
    try:
        back = pickle.loads(pickle.dumps(error))
    except Exception:
        return RemoteError(f"{type(error).__name__}: {error}")
    return error if str(back) == str(error) else RemoteError(f"{type(error).__name__}: {error}")
