"""Fixtures of all tests: runs that a test starts in its own process begin with torch imported.

Tests are collected without garbage collection, as suites are (`verispec.run.collecting_process`), and the objects of
all modules are left out of later ones.
"""

from __future__ import annotations

import atexit
import gc
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import warm_start

from verispec.judge import _explained
from verispec.judge._poison_rng import seed_poison_rng
from verispec.run import supervisor

gc.disable()


def pytest_collection_finish() -> None:
    """Begin garbage collection, without what the collection of tests has made."""
    gc.freeze()
    gc.enable()


# The interpreter collects at its end what a library of C++ would report as leaked. Before, pytest collects twice, and
# looking at the objects of all modules would take seconds in each worker.
atexit.register(gc.unfreeze)


def pytest_configure(config: pytest.Config) -> None:
    """In a worker of xdist, use the fork servers of the process that started it."""
    if servers := getattr(config, "workerinput", {}).get("fork_servers"):
        warm_start.use(servers)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist where the fork servers are."""
    node.workerinput["fork_servers"] = warm_start.share()


@pytest.fixture(autouse=True, scope="session")
def warm() -> Iterator[None]:
    """Fork the servers of runs from one process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "start_server", warm_start.start)
        yield


@pytest.fixture(autouse=True)
def mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what explained a failure of one test explain none of another."""
    monkeypatch.setattr(_explained, "_found", {})
    monkeypatch.setattr(_explained, "_named", defaultdict(set))
    monkeypatch.setattr(_explained, "_searched", defaultdict(float))
    monkeypatch.setattr(_explained, "_fruitless", Counter())
    monkeypatch.setattr(_explained, "_in_vain", defaultdict(float))


@pytest.fixture(autouse=True)
def memory() -> None:
    """Let the memory beside tensors not depend on the tests before."""
    seed_poison_rng(20)
