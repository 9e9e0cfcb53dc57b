"""Ray clusters for tests: their machines are processes here, which a test can kill."""

from __future__ import annotations

import random
import socket
from typing import Any

MIB = 1 << 20


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Machines:
    """A cluster with a head that runs nothing, and machines with one core each."""

    def __init__(self, count: int) -> None:
        from ray.cluster_utils import Cluster

        self.port = free_port()
        small = {"object_store_memory": 80 * MIB, "include_dashboard": False, "memory": 16 << 30}
        self._small = {**small, "num_cpus": 1}
        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={**small, "num_cpus": 0, "ray_client_server_port": self.port},
        )
        self.nodes: list[Any] = []
        for _ in range(count):
            self.add()

    def add(self, **resources: float) -> None:
        self.nodes.append(self.cluster.add_node(**self._small, resources=resources))

    def kill_one(self, rng: random.Random) -> None:
        """End a machine without a warning."""
        self.cluster.remove_node(self.nodes.pop(rng.randrange(len(self.nodes))), allow_graceful=False)
