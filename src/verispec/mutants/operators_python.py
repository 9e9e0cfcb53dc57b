"""Faults of a Python file by its syntax tree: host code, oracles and Triton kernels."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from verispec.mutants.model import ALWAYS
from verispec.mutants.python_alternatives import Place, alternatives, is_type_checking

IN_LATER_PROGRAMS: Final = "program >= 64"
ON_REPETITION: Final = "repeated"
TRIGGERS: Final = (ALWAYS, IN_LATER_PROGRAMS, ON_REPETITION)
"""Conditions of a fault: always, in programs from the 64th on (Triton), or from the 20th evaluation on."""
REPEATED: Final = 20
_AGAIN: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
"""Expressions whose parts are evaluated more often than the statement around them."""


@dataclass(frozen=True, slots=True)
class PythonFault:
    """The alternative `choice` of the site `site`; `statement` is the number of the statement it belongs to."""

    site: int
    choice: int
    line: int
    column: int
    operator: str
    before: str
    after: str
    statement: int
    in_kernel: bool
    is_expression: bool
    """True if it can have a trigger."""
    repeats: bool
    """True if it may be evaluated more often than its statement."""
    function: str
    """Name of the function around it; empty outside of functions."""
    once: bool
    """True in what makes an object, or reads the options of an engine: a case makes few of either."""


def faults(source: str) -> list[PythonFault]:
    """Return every fault of a source file."""
    found = []
    tree = ast.parse(source)
    kernels = _kernels(tree)
    for place in _places(tree):
        for choice, (operator, new) in enumerate(alternatives(place)):
            node = place.node
            before, after = _shown(node), _shown(new)
            if before == after or not isinstance(node, (ast.expr, ast.stmt)):
                continue
            in_kernel = place.function is not None and place.function in kernels
            is_expression = isinstance(node, ast.expr) and isinstance(new, ast.expr) and place.function is not None
            found.append(
                PythonFault(place.number, choice, node.lineno, node.col_offset + 1, operator, before, after,
                      place.statement, in_kernel, is_expression, place.repeats,
                      place.function.name if place.function else "", _runs_once(place.function))
            )  # fmt: skip
    return found


def _runs_once(function: ast.FunctionDef | None) -> bool:
    """Return True for a constructor, and for a function of an engine's options."""
    if function is None:
        return False
    given = [ast.unparse(a.annotation) for a in function.args.args if a.annotation is not None]
    return function.name == "__init__" or "LoadOptions" in given


def mutated(source: str, fault: PythonFault, trigger: str = ALWAYS) -> str:
    """Return the source with `fault` made, which acts under the condition `trigger`."""
    tree = ast.parse(source)
    place = next(p for p in _places(tree) if p.number == fault.site)
    _, new = alternatives(place)[fault.choice]
    if trigger != ALWAYS:
        assert isinstance(new, ast.expr)
        assert isinstance(place.node, ast.expr)
        call = ast.Call(ast.Name("_verispec_acts", ast.Load()), [ast.Constant(trigger)], [])
        new = ast.IfExp(call, new, place.node)
    _put(place, new)
    _import_helpers(tree)
    return ast.unparse(ast.fix_missing_locations(tree))


def covered(source: str) -> str:
    """Return the source with a call before each statement of each function that records that it was reached."""
    tree = ast.parse(source)
    calls = []
    for place in _places(tree):
        inside = isinstance(place.node, ast.stmt) and place.function is not None and place.index is not None
        if inside and not _is_docstring(place):
            calls.append((getattr(place.parent, place.name), place.node, place.statement))
    for body, node, number in calls:
        call = ast.Call(ast.Name("_verispec_reached", ast.Load()), [ast.Constant(number)], [])
        body.insert(next(i for i, other in enumerate(body) if other is node), ast.Expr(call))
    _import_helpers(tree)
    return ast.unparse(ast.fix_missing_locations(tree))


def _import_helpers(tree: ast.Module) -> None:
    names = ["_verispec_acts", "_verispec_reached", "_verispec_previous"]
    line = ast.ImportFrom("verispec.mutants.switches", [ast.alias(n.removeprefix("_verispec_"), n) for n in names], 0)
    first = 1 if ast.get_docstring(tree, clean=False) is not None else 0
    while first < len(tree.body):
        node = tree.body[first]
        if not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        first += 1
    tree.body.insert(first, line)


def _is_docstring(place: Place) -> bool:
    node = place.node
    return (
        place.index == 0
        and isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _kernels(tree: ast.Module) -> set[ast.AST]:
    """Return the functions with a ``jit`` decorator."""
    return {
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list)
    }


def _places(tree: ast.Module) -> Iterator[Place]:
    """Yield every node that may change, in one fixed order, without annotations, imports and docstrings."""
    counter = iter(range(1 << 30))

    def visit(node: ast.AST, parent: ast.AST | None, name: str, index: int | None,
              function: ast.FunctionDef | None, statement: int, repeats: bool) -> Iterator[Place]:  # fmt: skip
        number = next(counter)
        if isinstance(node, ast.stmt):
            statement, repeats = number, False
        repeats = repeats or isinstance(node, _AGAIN) or (isinstance(parent, ast.While) and name == "test")
        place = Place(node, parent, name, index, function, statement, number, repeats)
        if _is_docstring(place) or isinstance(node, (ast.Import, ast.ImportFrom)):
            return
        yield place
        if isinstance(node, ast.FunctionDef):
            function = node
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_params", "bases", "names", "type_comment"):
                continue
            if isinstance(node, (ast.Raise, ast.Assert)) or (isinstance(node, ast.If) and is_type_checking(node)):
                continue
            if isinstance(value, list):
                for i, item in enumerate(value):
                    if isinstance(item, ast.AST):
                        yield from visit(item, node, field, i, function, statement, repeats)
            elif isinstance(value, ast.AST):
                yield from visit(value, node, field, None, function, statement, repeats)

    yield from visit(tree, None, "", None, None, -1, repeats=False)


def _put(place: Place, new: ast.AST | list[ast.stmt]) -> None:
    if isinstance(new, list):
        assert place.index is not None
        getattr(place.parent, place.name)[place.index : place.index + 1] = new
    elif place.index is None:
        setattr(place.parent, place.name, new)
    else:
        getattr(place.parent, place.name)[place.index] = new


def _shown(node: ast.AST | list[ast.stmt]) -> str:
    if isinstance(node, list):
        return "; ".join(map(_shown, node)) or "(nothing)"
    text = ast.unparse(node) if not isinstance(node, ast.FunctionDef) else f"def {node.name}: ..."
    text = " ".join(text.split())
    return text if len(text) <= 160 else text[:157] + "..."
