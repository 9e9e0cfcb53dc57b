"""Fork servers of runs, forked from a process that has imported torch: most of a short run's time otherwise."""

from __future__ import annotations

import functools
import importlib
import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import popen_forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.forkserver import ForkServer, read_signed
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any
from unittest.mock import patch

from verispec.run import plan as plans
from verispec.run.plan import Plan, start_server

READ_AT_START = ("LD_", "MKL_", "OMP_", "OPENBLAS_", "PYTHON", "TORCH", "TRITON_")
"""Beginnings of the variables that the interpreter or an imported library reads once."""
SET_BY_TORCH = "TORCHINDUCTOR_CACHE_DIR"
"""Set to its own default in a process that generates, so that it speaks against nothing."""

PRELOADED = [
    "verispec.pytest_plugin",
    "hypothesis.strategies",
    "scipy.stats",
    *(f"_pytest.{plugin}" for plugin in ("debugging", "junitxml", "pastebin", "terminal")),
    *(f"verispec.suites.sampler.test_every_op{axis}" for axis in ("", "_large", "_rows", "_values")),
]
"""Loaded for every run: what the fork server imports before its first case, whatever the suite."""
GENERATION = ["verispec.suites.e2e._parameters"]
"""Loaded for cases that generate: it imports transformers' models, and with them triton, which no other run has."""


class WarmServer:
    """The part of a subprocess.Popen that `Supervisor` uses."""

    def __init__(
        self, arguments: Sequence[str], log: IO[bytes], environment: dict[str, str], modules: Sequence[str]
    ) -> None:
        reader, writer = os.pipe()
        self.stdin = os.fdopen(writer, "wb")
        with Connection(reader, writable=False) as stdin, Connection(os.dup(log.fileno()), readable=False) as output:
            about = (list(arguments), environment, str(Path.cwd()), _path(), stdin, output)
            self._process = multiprocessing.get_context("forkserver").Process(target=_serve, args=about)
            with patch.object(popen_forkserver, "forkserver", _own_server(tuple(modules))):
                self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode


def start(plan: Plan, scratch: Path, log: IO[bytes], *, collect_only: bool = False) -> Any:
    """Do what `start_server` does, with torch imported already unless the environment speaks against it."""
    command, environment = plan.command(scratch, collect_only=collect_only), plans.environment(plan)
    if _read_at_start(environment) != _read_at_start(_environment()):
        return start_server(plan, scratch, log, collect_only=collect_only)
    modules = [*PRELOADED, *(GENERATION if plan.generates else ())]
    return WarmServer(command[command.index("verispec.run.collecting_process") + 1 :], log, environment, modules)


def _read_at_start(environment: dict[str, str]) -> dict[str, str]:
    return {
        k: v for k, v in environment.items() if k.startswith(READ_AT_START) and k not in ("PYTHONPATH", SET_BY_TORCH)
    }


@functools.cache
def _environment() -> dict[str, str]:
    """Return the environment of the process that forks."""
    return {k: v for k, v in plans.environment(Plan("reference")).items() if k != "PYTHONPATH"}


@functools.cache
def _path() -> list[str]:
    """Return the path of an interpreter without a PYTHONPATH."""
    command = [sys.executable, "-P", "-c", "import json, sys; print(json.dumps(sys.path))"]
    path: list[str] = json.loads(subprocess.check_output(command, env=_environment()))
    return path


def share() -> list[tuple[list[str], dict[str, Any]]]:
    """Start both servers, and return what `use` needs in processes that this one starts.

    They end with this process. One import for all workers of xdist takes the place of one in each.
    """
    every = ((*PRELOADED,), (*PRELOADED, *GENERATION))
    return [(list(modules), {name: vars(_server(modules)).get(name) for name in _REACHED_BY}) for modules in every]


def use(servers: list[tuple[list[str], dict[str, Any]]]) -> None:
    """Fork from servers that another process has started."""
    _shared.update({tuple(modules): _SharedServer(reached_by) for modules, reached_by in servers})


_REACHED_BY = ("_forkserver_address", "_forkserver_authkey")
"""Attributes of a ForkServer by which another process reaches it; the key is of Python 3.14."""


class _SharedServer(ForkServer):
    """A server that runs as long as the process that started it."""

    def __init__(self, reached_by: dict[str, Any]) -> None:
        super().__init__()
        vars(self).update(reached_by, _forkserver_alive_fd=os.open(os.devnull, os.O_RDONLY))

    def ensure_running(self) -> None:
        resource_tracker.ensure_running()


_shared: dict[tuple[str, ...], ForkServer] = {}
"""Servers of another process by the modules that they have loaded."""


@functools.cache
def _server(modules: tuple[str, ...]) -> ForkServer:
    """Return a running server that has loaded `modules`; it is not the first one, which engines use."""
    if modules in _shared:
        return _shared[modules]
    server = ForkServer()
    server.set_forkserver_preload(list(modules))
    with patch.dict(os.environ, _environment(), clear=True):
        server.ensure_running()
    return server


def _own_server(modules: tuple[str, ...]) -> SimpleNamespace:
    """Return the functions of `multiprocessing.forkserver` over a server of the tests."""
    return SimpleNamespace(connect_to_new_process=_server(modules).connect_to_new_process, read_signed=read_signed)


def _serve(
    arguments: list[str],
    environment: dict[str, str],
    folder: str,
    path: list[str],
    stdin: Connection,
    output: Connection,
) -> None:
    """Become the process that a command with these arguments would have started."""
    from verispec.run.collecting_process import main

    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for source, targets in ((stdin, (0,)), (output, (1, 2))):
        for target in targets:
            os.dup2(source.fileno(), target)
        source.close()
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    added = [folder for folder in environment.get("PYTHONPATH", "").split(":") if folder]
    sys.path[:] = [*added, *path]
    if any(Path(folder, "sitecustomize.py").exists() for folder in added):
        sys.modules.pop("sitecustomize", None)
        importlib.import_module("sitecustomize")
    sys.argv = ["pytest", *arguments]
    raise SystemExit(main())
