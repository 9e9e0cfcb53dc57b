"""Tests of revisions on a Ray cluster: each is one task, wherever a core is free."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verispec import exits
from verispec.bisect.case_probe import run_here
from verispec.errors import VerispecError, describe_exception
from verispec.fleet.on_ray import RayExecutor
from verispec.fleet.plan import Resources

RETRIES = 10
"""Machines that may be lost with one revision."""


def run_there(
    packed: bytes, name: str, case: str, engine: str, source: str, timeout: float
) -> subprocess.CompletedProcess[str] | None:
    """Run a case on a machine of the cluster; `packed` are the revision's files, or nothing for a release.

    The other arguments are those of `run_here`.
    """
    if not packed:
        return run_here(name, case, engine, source, timeout)
    with tempfile.TemporaryDirectory(prefix="verispec-") as folder:
        file = Path(folder) / "revision.tar.gz"
        file.write_bytes(packed)
        return run_here(name, case, engine, str(file), timeout)


class Cluster:
    """A place for a `CaseProbe`: a Ray cluster, which runs a lost task again.

    Args:
        address: ``ray`` or ``ray://HOST:PORT``, as a fleet takes it.
        packed: function that returns the files of a revision, as `History.packed` does.
        gpus: accelerators per revision.

    Raises:
        VerispecError: V-FLEET-RAY, Ray is not installed or the cluster does not answer; V-FLEET-RESOURCES, no machine
            has these resources.
    """

    def __init__(self, address: str, packed: Callable[[str], bytes], gpus: float = 0) -> None:
        self._executor = RayExecutor(address)
        import ray

        self._packed = packed
        self._running: set[Any] = set()
        self._lock = threading.Lock()
        if refusal := self._executor.refusal(Resources(memory=0, gpus=gpus)):
            self._executor.close()
            raise VerispecError(
                "V-FLEET-RESOURCES",
                f"no revision can ever run: {refusal}",
                where=f"--on {address}",
                hint="change --gpus, or add such a machine to the cluster",
                exit_code=exits.CANNOT_TELL,
            )
        self._ray = ray
        self._remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(run_there)

    def __call__(
        self, name: str, case: str, engine: str, source: str, timeout: float
    ) -> subprocess.CompletedProcess[str] | None:
        """Run a case as a task of the cluster; see `run_here`.

        Raises:
            VerispecError: V-BIS-CLUSTER, the cluster lost the task for good.
        """
        task = self._remote.remote(self._packed(name), name, case, engine, source, timeout)
        with self._lock:
            self._running.add(task)
        try:
            ended: subprocess.CompletedProcess[str] | None = self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            raise VerispecError(
                "V-BIS-CLUSTER",
                "the cluster did not carry out a revision",
                where=name,
                cause=describe_exception(error),
                hint="look at its machines with: ray status",
                exit_code=exits.CANNOT_TELL,
            ) from error
        finally:
            with self._lock:
                self._running.discard(task)
        return ended

    def close(self) -> None:
        """End the tasks that run, and leave the cluster."""
        with self._lock:
            for task in self._running:
                self._ray.cancel(task, force=True)
        self._executor.close()
