"""The plan of a fleet: its cells, each an engine on a platform, with the resources of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verispec.run.plan import Plan

PIECE = 200
"""Maximum cases per piece: enough to pay for collecting the suites and starting an engine."""
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that one piece of a cell reserves.

    Attributes:
        cores: processor cores.
        memory: bytes.
        gpus: accelerators, as Ray counts them.
        custom: amounts of a cluster's own resources, such as ``ascend``.
    """

    cores: int = 1
    memory: int = GIB
    gpus: float = 0
    custom: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Environment:
    """A recipe for a Python environment, or the path of an existing one.

    Attributes:
        name: name of the recipe in FLEET.toml.
        python: interpreter of an existing environment; empty for one that is made.
        installer: uv or pip.
        requirements: requirement lines, installed with their dependencies.
        without_dependencies: requirement lines that are installed afterwards, alone.
        options: further words for each call of the installer.
        extras: extras of verispec whose requirements are installed too.
    """

    name: str
    python: str = ""
    installer: str = "pip"
    requirements: tuple[str, ...] = ()
    without_dependencies: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    extras: tuple[str, ...] = ("judge",)


@dataclass(frozen=True, slots=True)
class CellPlan:
    """One cell of the matrix.

    Attributes:
        name: unique in the fleet; the results file has it too.
        plan: plan of the cell's run.
        platform: name of the platform.
        resources: resources that each piece reserves.
        environment: environment in which it runs; None for the environment of this process.
        variables: environment variables of its processes.
        runtime_env: runtime environment of Ray, unchanged.
        at_once: maximum pieces at the same time; 0 for no maximum.
        expect: path of the known failures; empty for none.
        min_judged: the coverage floor, as ``verispec run --min-judged`` takes it.
    """

    name: str
    plan: Plan
    platform: str = ""
    resources: Resources = Resources()
    environment: Environment | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    at_once: int = 0
    expect: str = ""
    min_judged: str = "claimed"


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """A fleet: its cells, and the maximum number of cases per piece."""

    cells: tuple[CellPlan, ...]
    piece: int = PIECE

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {"piece": self.piece, "cells": [dataclasses.asdict(cell) for cell in self.cells]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> FleetPlan:
        """Return the plan that `to_json` wrote."""
        return cls(tuple(map(_cell, values["cells"])), values["piece"])


def plan_from_json(values: Mapping[str, Any]) -> Plan:
    """Return the plan of a run from its fields, where JSON has made lists of tuples."""
    return Plan(**_tuples(values))


def environment_from_json(values: Mapping[str, Any] | None) -> Environment | None:
    """Return the environment from its fields, or None."""
    return Environment(**_tuples(values)) if values else None


def _cell(values: Mapping[str, Any]) -> CellPlan:
    made = {
        "plan": plan_from_json(values["plan"]),
        "resources": Resources(**values["resources"]),
        "environment": environment_from_json(values["environment"]),
    }
    return CellPlan(**{**values, **made})


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, Sequence) and not isinstance(v, str) else v for name, v in values.items()}
