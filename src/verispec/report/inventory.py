"""Inventory of the ops: contract, oracle, kernels and tests, found by their common name.

This module reads suites but never imports them, so that it works without an engine, torch and pytest. Ops of other
packages have a contract and an oracle, which they register, and a suite.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module, resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from verispec.reference import contracts
from verispec.run.plan import suites_folder

WANTED: dict[str, tuple[str, ...]] = {
    "flat": ("oracle", "cpu", "triton", "suite", "call", "mutants"),
    "request_state": ("oracle", "cpu", "triton", "suite", "call"),
    "fused": ("oracle", "cpu", "triton", "suite", "call"),
    "tree": ("oracle", "cpu", "triton", "suite", "call", "mutants"),
    "shared": ("oracle", "suite"),
    "sampler": ("suite",),
    "generation": ("suite",),
    "serving": ("suite",),
    "signature": ("suite",),
    "every": ("suite",),
}
"""Cells that a contract of each family must have. Shared ops are plain functions or parts of other kernels. The last
five families describe end-to-end samplers and engines, which have clauses alone."""


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op with its cells.

    Attributes:
        tests: number of test functions.
        untested: clauses without a test.
        missing: cells of `WANTED` that are empty; "suite" stands for the clauses without a test.
    """

    op: str
    family: str
    clauses: int
    oracle: bool
    cpu: bool
    triton: bool
    tests: int
    untested: tuple[str, ...]
    missing: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON-serialisable dictionary."""
        return asdict(self)


def rows(folders: tuple[Path, ...] = ()) -> list[OpRow]:
    """Return all ops, by family.

    Args:
        folders: suites of other packages.
    """
    found = []
    tests, calls, mutated = tests_by_clause(folders), call_makers(), mutated_ops()
    for name in contracts.names():
        contract = contracts.load(name)
        of_op = {test for clause in contract.clauses for test in tests.get(clause.id, ())}
        untested = tuple(c.id for c in contract.clauses if c.id not in tests)
        cells = {
            "oracle": has_oracle(name),
            "cpu": has_cpu_kernel(name),
            "triton": has_triton_kernel(name),
            "suite": not untested,
            "call": name in calls or bool(contract.returns),
            "mutants": mutated is None or name in mutated,
        }
        found.append(
            OpRow(
                name,
                contract.family,
                len(contract.clauses),
                cells["oracle"],
                cells["cpu"],
                cells["triton"],
                len(of_op),
                untested,
                tuple(cell for cell in WANTED.get(contract.family, ()) if not cells[cell]),
            )
        )
    return sorted(found, key=lambda row: (row.family, row.op))


def has_oracle(name: str) -> bool:
    """Return True if the op has an oracle, of verispec or registered with its contract."""
    return contracts.registered_oracle(name) is not None or _file("oracle", f"{name}.py").is_file()


def has_triton_kernel(name: str) -> bool:
    """Return True if the op has a Triton kernel."""
    return _file("triton", f"{name}.py").is_file()


def has_cpu_kernel(name: str) -> bool:
    """Return True if there is a C++ kernel: in the source, else in the built extension module."""
    if _file("csrc", "module.cpp").is_file():
        return _file("csrc", f"{name}.cpp").is_file()
    try:
        return hasattr(import_module("verispec.reference._csrc"), name)
    except ImportError:
        return False


def _file(folder: str, name: str) -> Traversable:
    """Return a file of the reference; an editable installation spreads it over several folders."""
    return resources.files("verispec.reference") / folder / name


def call_makers() -> frozenset[str]:
    """Return the ops that have a maker of calls in ``suites/sampler/_calls.py``, which kernel tests use too."""
    module = ast.parse((suites_folder() / "sampler" / "_calls.py").read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in module.body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(decorator, ast.Name) and decorator.id == "maker" for decorator in node.decorator_list)
    )


def mutated_ops() -> frozenset[str] | None:
    """Return the ops of ``tests/mutants/mutants_csrc.py``, or None where the tests are not installed."""
    source = _file("csrc", "module.cpp")
    if not isinstance(source, Path) or not source.is_file():
        return None
    listed = source.resolve().parents[2] / "tests" / "mutants" / "mutants_csrc.py"
    return ops_with_mutants(listed) if listed.is_file() else None


def ops_with_mutants(listed: Path) -> frozenset[str]:
    """Return the keys of the table MUTANTS in the file `listed`."""
    module = ast.parse(listed.read_text(encoding="utf-8"))
    table = next(node.value for node in module.body if isinstance(node, ast.AnnAssign) and _name(node) == "MUTANTS")
    return frozenset(str(key.value) for key in getattr(table, "keys", ()) if isinstance(key, ast.Constant))


def _name(node: ast.AnnAssign) -> str:
    return node.target.id if isinstance(node.target, ast.Name) else ""


@cache
def tests_by_clause(folders: tuple[Path, ...] = (), naming: str = "") -> dict[str, tuple[str, ...]]:
    """Return the tests of each clause, as ``suite/file::test``.

    Args:
        folders: suites of other packages.
        naming: a clause; files that do not name it are not read, and tests of other clauses are then incomplete.
    """
    found: dict[str, list[str]] = defaultdict(list)
    paths = [*suites_folder().glob("*/test_*.py"), *(path for folder in folders for path in folder.glob("test_*.py"))]
    for path in sorted(paths):
        for clause, test in _cases_of(path) if naming in _text_of(path) else ():
            found[clause].append(f"{path.parent.name}/{path.name}::{test}")
    return {clause: tuple(tests) for clause, tests in found.items()}


def groups() -> tuple[str, ...]:
    """Return the groups of cases as ``suite/subject``: one per file of a suite, but for those on every op."""
    found = (f"{path.parent.name}/{path.stem.removeprefix('test_')}" for path in suites_folder().glob("*/test_*.py"))
    return tuple(sorted(group for group in found if not group.partition("/")[2].startswith("every_")))


@cache
def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _cases_of(path: Path) -> tuple[tuple[str, str], ...]:
    """Return `_cases` of a file: parsed once for all clauses of an op."""
    return tuple(_cases(ast.parse(_text_of(path)), path.parent))


def _cases(module: ast.Module, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield clause and name of every test of a suite: decorated with ``@case(clause, ...)``, or made by a factory.

    A factory stands in the module itself, or in a module of its folder from which it is imported.
    """
    factories: dict[str, tuple[int, str]] = {}
    for node in _statements(module):
        if isinstance(node, ast.ImportFrom):
            made = _factories_of(folder / f"{(node.module or '').rpartition('.')[2]}.py")
            factories |= {name.asname or name.name: made[name.name] for name in node.names if name.name in made}
        elif isinstance(node, ast.FunctionDef):
            yield from (
                (str(clause.value), node.name) for clause in _declared(node) if isinstance(clause, ast.Constant)
            )
            if parameter := _clause_parameter(node):
                factories[node.name] = parameter
        elif isinstance(node, ast.Assign) and isinstance(call := node.value, ast.Call):
            [test, made_by] = node.targets[0], call.func
            if isinstance(test, ast.Name) and isinstance(made_by, ast.Name) and made_by.id in factories:
                place, name = factories[made_by.id]
                clauses = [*call.args[place : place + 1], *(word.value for word in call.keywords if word.arg == name)]
                yield from ((str(clause.value), test.id) for clause in clauses if isinstance(clause, ast.Constant))


@cache
def _factories_of(path: Path) -> dict[str, tuple[int, str]]:
    """Return the `_clause_parameter` of each factory of a module; nothing if there is no such file."""
    module = ast.parse(_text_of(path)) if path.is_file() else ast.Module([], [])
    functions = (node for node in module.body if isinstance(node, ast.FunctionDef))
    return {node.name: parameter for node in functions if (parameter := _clause_parameter(node))}


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements inside of a node, in order; most nodes of a tree are expressions, which are not visited."""
    for part in ("body", "orelse", "handlers", "finalbody", "cases"):
        for inner in getattr(node, part, ()):
            yield inner
            yield from _statements(inner)


def _declared(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield the clauses of the ``@case(clause, ...)`` decorators of a function."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "case":
            yield from decorator.args[:1]


def _clause_parameter(function: ast.FunctionDef) -> tuple[int, str] | None:
    """Return place and name of the parameter that is the clause of a test which the function makes, if there is one."""
    inner = [node for node in _statements(function) if isinstance(node, ast.FunctionDef)]
    clauses = {clause.id for test in inner for clause in _declared(test) if isinstance(clause, ast.Name)}
    return next(((place, each.arg) for place, each in enumerate(function.args.args) if each.arg in clauses), None)
