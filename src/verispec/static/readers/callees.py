"""Callees of launches, through the expressions that programs use: partials, tables, ``kernel.run``, results."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from verispec.static.readers.expressions import dotted
from verispec.static.readers.functions import short
from verispec.static.readers.scope import FUNCTIONS, FunctionNode, Scope, nodes_of

_WRAPPERS: Final = frozenset({"wrap_triton", "capture_triton"})
_METHODS: Final = frozenset({"run", "warmup"})
"""Methods of a kernel that take its arguments, and the grid by keyword."""

_DEEPEST: Final = 4


class Callee(NamedTuple):
    """The kernels that a launch may reach, and the arguments that a partial has added already.

    `chosen` says that one of several is taken; `grid` is the expression of the grid, if there is one.
    """

    targets: tuple[str, ...]
    chosen: bool = False
    positional: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    grid: ast.expr | None = None


def callee_of(call: ast.Call, scope: Scope) -> Callee | None:
    """Return the targets that the launch `call` in `scope` reaches; None if it is no launch, or cannot be followed."""
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "grid"), None)
    return _callee(call.func, scope, given, 0)


def launcher(value: ast.expr, scope: Scope) -> Callee | None:
    """Return the callee of the launcher `value`, such as ``kernel[grid]``; None if it cannot be followed."""
    return _callee(value, scope, None, 0)


def held(node: ast.expr, scope: Scope, launchers: Mapping[str, Callee]) -> Callee | None:
    """Return the one of `launchers` that `node` reads off the instance; None for anything else."""
    if not launchers or not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return None
    return launchers.get(node.attr) if node.value.id == scope.instance else None


def _callee(node: ast.expr, scope: Scope, grid: ast.expr | None, depth: int) -> Callee | None:
    if depth > _DEEPEST:
        return None
    if isinstance(node, ast.Subscript):
        targets, chosen = _kernels(node.value, scope)
        return Callee(targets, chosen, grid=node.slice) if targets else None
    if isinstance(node, ast.Attribute) and node.attr in _METHODS and grid is not None:
        targets, chosen = _kernels(node.value, scope)
        return Callee(targets, chosen, grid=grid) if targets else None
    if isinstance(node, ast.Call):
        return _partial(node, scope, grid, depth)
    if isinstance(node, ast.Name):
        value, where = value_of(node.id, scope)
        if isinstance(value, (ast.Subscript, ast.Call)) and where is not None:
            return _callee(value, where, grid, depth + 1)
    return None


def _partial(node: ast.Call, scope: Scope, grid: ast.expr | None, depth: int) -> Callee | None:
    """Return the callee of ``partial(launcher, ...)``; None for any other call, and for one that is not closed."""
    if dotted(node.func).rpartition(".")[2] != "partial" or not node.args:
        return None
    if any(isinstance(argument, ast.Starred) for argument in node.args) or any(not k.arg for k in node.keywords):
        return None
    given = next((keyword.value for keyword in node.keywords if keyword.arg == "grid"), grid)
    inner = _callee(node.args[0], scope, given, depth + 1)
    if inner is None:
        return None
    return inner._replace(
        positional=(*inner.positional, *map(short, node.args[1:])),
        keywords=(*inner.keywords, *(keyword.arg for keyword in node.keywords if keyword.arg)),
    )


def _kernels(node: ast.expr, scope: Scope) -> tuple[tuple[str, ...], bool]:
    """Return the references that an expression may be, and whether one of several is chosen."""
    text = dotted(node)
    if text:
        references = scope.read(node)
        return references or _made(text, scope), text in scope.chosen
    if isinstance(node, ast.NamedExpr):
        return _kernels(node.value, scope)
    if isinstance(node, ast.IfExp):
        both = [_kernels(node.body, scope)[0], _kernels(node.orelse, scope)[0]]
        return (tuple(dict.fromkeys((*both[0], *both[1]))), False) if all(both) else ((), False)
    if isinstance(node, ast.Call):
        return _result(node, scope)
    entries = scope.choices(node)
    if not entries and isinstance(node, ast.Subscript):
        # A table that an instance, a class or another module holds.
        entries = tuple(f"{reference}[]" for reference in scope.resolve(dotted(node.value)))
    return entries, True


def _made(text: str, scope: Scope) -> tuple[str, ...]:
    """Return the references of a name, or of its attribute, that holds the result of a call."""
    head, dot, rest = text.partition(".")
    value, where = value_of(head, scope)
    if not isinstance(value, ast.Call) or where is None:
        return ()
    return tuple(f"{reference}{dot}{rest}" for reference in _result(value, where)[0])


def _result(node: ast.Call, scope: Scope) -> tuple[tuple[str, ...], bool]:
    """Return the references that a call may give."""
    name = dotted(node.func)
    last = name.rpartition(".")[2]
    if last in _WRAPPERS and len(node.args) == 1:
        return _kernels(node.args[0], scope)
    if name == "getattr" and len(node.args) == 2 and isinstance(node.args[1], ast.Constant):
        owner, attribute = dotted(node.args[0]), node.args[1].value
        return (scope.resolve(f"{owner}.{attribute}") if owner and isinstance(attribute, str) else ()), False
    entries = scope.choices(node)
    if entries:
        return entries, True
    return tuple(f"{reference}()" for reference in scope.resolve(name)), False


def value_of(name: str, scope: Scope) -> tuple[ast.AST | None, Scope | None]:
    """Return the only value that `name` has where it is read, a function or an expression, and the scope around it.

    Both are None for a name with several values, and for one that nothing here gives a value.
    """
    where: Scope | None = scope
    while where is not None:
        nodes = where.nodes
        if nodes is not None:
            values: list[ast.AST] = [
                statement.value
                for statement in nodes.of(ast.Assign)
                if len(statement.targets) == 1 and dotted(statement.targets[0]) == name
            ]
            stores = sum(node.id == name for node in nodes.stores)
            functions = [function for function in nodes.functions if function.name == name]
            if stores or functions:
                outer = [s.names for s in nodes.of(ast.Global)] + [s.names for s in nodes.of(ast.Nonlocal)]
                shared = any(name in names for names in outer)
                values += functions
                return (
                    (values[0], where) if len(values) == stores + len(functions) == 1 and not shared else (None, None)
                )
        if where.parent is not None and name in where.ready().names:
            return None, None
        where = where.parent
    return None, None


def keys_of(grid: ast.expr | None, scope: Scope) -> tuple[str, ...]:
    """Return the names that a grid function reads of the arguments of its launch; nothing if it cannot be followed."""
    function: ast.AST | None = grid
    body: Sequence[ast.stmt]
    if isinstance(grid, ast.Name):
        function, _ = value_of(grid.id, scope)
    if isinstance(function, ast.Lambda):
        arguments, body = function.args, [ast.Expr(function.body)]
    elif isinstance(function, FUNCTIONS):
        arguments, body = function.args, function.body
    else:
        return ()
    places = [*arguments.posonlyargs, *arguments.args]
    if len(places) != 1 or arguments.vararg or arguments.kwarg or arguments.kwonlyargs or _is_used(body, places[0].arg):
        return ()
    read = (node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Subscript))
    keys = (
        node.slice.value
        for node in read
        if dotted(node.value) == places[0].arg and isinstance(node.slice, ast.Constant)
    )
    return tuple(dict.fromkeys(key for key in keys if isinstance(key, str)))


def _is_used(body: Sequence[ast.stmt], name: str) -> bool:
    """Return whether a grid function asks for a key before it reads it, or catches that it is missing."""
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, (ast.Compare, ast.Try, ast.IfExp, ast.If, ast.BoolOp)):
                return True
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
                return True
    return False


def returned(node: FunctionNode, scope: Scope, known: set[str]) -> tuple[str, ...]:
    """Return the references that a function may return; nothing unless each leads to one of `known`.

    Args:
        node: the function.
        scope: scope of its body.
        known: names of functions and imports of the module.
    """
    found: list[str] = []
    for result in nodes_of(node).of(ast.Return):
        value = result.value
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            continue
        references = _kernels(value, scope)[0] if isinstance(value, (ast.Name, ast.Attribute, ast.IfExp)) else ()
        if not references or any(r.lstrip("$").partition(".")[0] not in known for r in references):
            return ()
        found += references
    return tuple(dict.fromkeys(found))
