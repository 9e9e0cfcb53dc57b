"""The executor of a Ray cluster: tasks placed by resources, messages streamed back as they come.

A `Courier` owns the streams of all tasks. Beside a cluster it is an object of the driver. Through ``ray://``, whose
clients cannot own streams, it is an actor of the cluster, and the driver asks it for new messages.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from verispec import exits
from verispec.errors import VerispecError, describe_exception
from verispec.fleet import node
from verispec.fleet.local import loss
from verispec.fleet.messages import Done, Message, Refused, parsed
from verispec.fleet.plan import Resources
from verispec.fleet.tasks import Lost, Task
from verispec.run.logs import last_lines
from verispec.run.process_tree import kill_descendants

AHEAD = 1.25
"""Share of a cluster's resources that waiting and running tasks ask for, so that no machine waits for the driver."""
LOOK_EVERY = 2.0
"""Seconds between two looks at the machines of the cluster."""
BLOCK = 1 << 18
"""Bytes of messages that travel together at the most."""

Heard = bytes | Lost | None
"""Whole lines of messages, a loss, or None at the end."""


def carry_out(task: Mapping[str, Any]) -> Iterator[bytes | tuple[int, str]]:
    """Run `task` in a process below this one: yield its lines as they come, then its exit status and last words."""
    with tempfile.NamedTemporaryFile(prefix="verispec-") as log:
        process = node.start(task, log.file)
        assert process.stdout is not None
        rest = b""
        try:
            while block := os.read(process.stdout.fileno(), BLOCK):
                lines, newline, rest = (rest + block).rpartition(b"\n")
                if newline:
                    yield lines
            yield process.wait(), last_lines(Path(log.name))
        finally:
            if process.poll() is None:
                kill_descendants(process.pid)
                process.kill()
                process.wait()


class Courier:
    """Owns the streams of tasks, and gathers their messages."""

    def __init__(self) -> None:
        import ray

        # Ray would start a lost task again from its beginning; the driver knows which cases are left.
        self._remote = ray.remote(num_returns="streaming", max_retries=0)(carry_out)
        self._streams: dict[int, Any] = {}

    def start(self, key: int, task: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        """Start a task under the number `key`, with Ray's options."""
        self._streams[key] = self._remote.options(**options).remote(task)

    def stop(self, key: int) -> None:
        """Kill the process of a task."""
        import ray

        if (stream := self._streams.pop(key, None)) is not None:
            with contextlib.suppress(ray.exceptions.RayError, ValueError, TypeError):
                ray.cancel(stream, force=True)

    def poll(self, seconds: float) -> list[tuple[int, Heard]]:
        """Return the messages of tasks, after waiting for at most `seconds` for the first words."""
        import ray

        if not self._streams:
            time.sleep(seconds)
            return []
        keys = {stream: key for key, stream in self._streams.items()}
        ready, _ = ray.wait(list(keys), num_returns=1, timeout=seconds, fetch_local=False)
        if ready:
            ready, _ = ray.wait(list(keys), num_returns=len(keys), timeout=0, fetch_local=False)
        heard: list[tuple[int, Heard]] = []
        for stream in ready:
            said = self._next(stream)
            heard.append((keys[stream], said))
            if not isinstance(said, bytes):
                del self._streams[keys[stream]]
        return heard

    def _next(self, stream: Any) -> Heard:
        import ray

        try:
            said = ray.get(next(stream))
        except StopIteration:
            return None
        except ray.exceptions.RayTaskError as error:
            return Lost(str(error), by_itself=True)
        except ray.exceptions.RuntimeEnvSetupError as error:
            return Lost(f"runtime_env: {error}", by_itself=True)
        except ray.exceptions.RayError as error:
            return Lost(describe_exception(error).partition("\n")[0])
        if isinstance(said, bytes):
            return said
        return loss(*said)


class RayExecutor:
    """Runs tasks on a Ray cluster.

    Args:
        address: ``ray`` for the cluster of this machine, or one that starts here; ``ray://HOST:PORT`` for another.

    Raises:
        VerispecError: V-FLEET-RAY, Ray is not installed or the cluster does not answer.
    """

    def __init__(self, address: str) -> None:
        try:
            import ray
        except ImportError as error:
            raise VerispecError(
                "V-FLEET-RAY", "Ray is not installed", where="--on", hint="pip install 'verispec[fleet]'"
            ) from error
        self._ray = ray
        self._began = not ray.is_initialized()
        self._through_client = address.startswith("ray://")
        try:
            if self._began:
                where = address if self._through_client else None
                ray.init(where, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise VerispecError(
                "V-FLEET-RAY",
                "the cluster does not answer",
                where=f"--on {address}",
                cause=describe_exception(error),
                hint="is it up, and does it run the Ray and the Python of this environment? Try: ray status",
                exit_code=exits.CANNOT_TELL,
            ) from error
        self._courier: Any = self._new_courier()
        self._tasks: dict[int, Task] = {}
        self._said: set[int] = set()
        """Tasks that have said their last word."""
        self._number = 0
        self._asked: Counter[str] = Counter()
        """Resources of all tasks together."""
        self._machines: list[dict[str, float]] = []
        self._looked = float("-inf")

    def refusal(self, resources: Resources) -> str:
        """Return the resources that no machine of the cluster has; machines that come later are not known."""
        if any(_holds(machine, resources) for machine in self._seen()):
            return ""
        wanted = ", ".join(f"{name} {amount:g}" for name, amount in _demand(resources).items())
        return f"no machine of the cluster has {wanted}"

    def slots(self, resources: Resources) -> int:
        """Return how many tasks with `resources` fit into the cluster."""
        return max(sum(_times(machine, resources) for machine in self._seen()), 1)

    def fits(self, resources: Resources) -> bool:
        """Return True if the tasks that were started leave any of the resources that `resources` need."""
        whole = self._seen()
        return all(
            self._asked[name] < AHEAD * sum(machine.get(name, 0) for machine in whole) for name in _demand(resources)
        )

    def start(self, task: Task) -> None:
        """Hand a task to the cluster."""
        self._number += 1
        resources = task.resources
        options = {
            "num_cpus": resources.cores,
            "num_gpus": resources.gpus,
            "memory": resources.memory,
            "resources": dict(resources.custom),
            "runtime_env": dict(task.cell.runtime_env),
        }
        self._tasks[self._number] = task
        self._asked.update(_demand(task.resources))
        with contextlib.suppress(self._ray.exceptions.RayActorError):  # noticed at the next look
            self._ask("start", self._number, task.to_json(), options)

    def messages(self, seconds: float) -> Iterator[tuple[Task, Message | Lost]]:
        """Yield the messages of tasks; those of a lost courier are lost."""
        try:
            heard: list[tuple[int, Heard]] = self._ask("poll", seconds)
        except self._ray.exceptions.RayActorError as error:
            lost = Lost(describe_exception(error).partition("\n")[0])
            heard = [(key, lost) for key in self._tasks]
            self._courier = self._new_courier()
        for key, said in heard:
            task = self._tasks.get(key)
            if task is None:  # stopped meanwhile
                continue
            if isinstance(said, bytes):
                for line in said.split(b"\n"):
                    message = parsed(line)
                    if isinstance(message, (Done, Refused)):
                        self._said.add(key)
                    yield task, message
                continue
            self._forget(key)
            if key not in self._said:
                yield task, said or Lost("its stream ended")
            self._said.discard(key)

    def stop(self, task: Task) -> None:
        """Kill the process of a task."""
        for key in [key for key, known in self._tasks.items() if known is task]:
            self._forget(key)
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ask("stop", key)

    def close(self) -> None:
        """Kill the processes of all tasks, and leave the cluster."""
        for task in list(self._tasks.values()):
            self.stop(task)
        if self._began:
            self._ray.shutdown()

    def _forget(self, key: int) -> None:
        self._asked.subtract(_demand(self._tasks.pop(key).resources))

    def _new_courier(self) -> Any:
        if not self._through_client:
            return Courier()
        return self._ray.remote(num_cpus=0, max_restarts=0)(Courier).remote()

    def _ask(self, method: str, *arguments: Any) -> Any:
        if not self._through_client:
            return getattr(self._courier, method)(*arguments)
        return self._ray.get(getattr(self._courier, method).remote(*arguments))

    def _seen(self) -> list[dict[str, float]]:
        """Return the resources of each machine that is up."""
        now = time.monotonic()
        if now - self._looked > LOOK_EVERY:
            self._looked = now
            self._machines = [machine["Resources"] for machine in self._ray.nodes() if machine["Alive"]]
        return self._machines


def _demand(resources: Resources) -> dict[str, float]:
    """Return the resources that a task needs, in Ray's names."""
    wanted = {"CPU": resources.cores, "memory": resources.memory, "GPU": resources.gpus, **resources.custom}
    return {name: amount for name, amount in wanted.items() if amount}


def _times(machine: Mapping[str, float], resources: Resources) -> int:
    return min(int(machine.get(name, 0) // amount) for name, amount in _demand(resources).items())


def _holds(machine: Mapping[str, float], resources: Resources) -> bool:
    return _times(machine, resources) > 0
