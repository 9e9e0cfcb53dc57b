"""Mistakes in the rule of an op: its oracle, with one expression or statement of its source otherwise.

These are on no list, but made by syntax: an operand, a bound or a condition is left out, or a comparison decides
equality, or unequal numbers, otherwise. A constant is the next one, an index that of something else, or the last of
equals counts. Engines are written by the same rules, so that a fault of one is often such a change.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from verispec.judge._mistake import Inputs, Mistake, Outputs
from verispec.reference import contracts, oracle

FOLDER = f"{oracle.__name__}."
SHOWN = 70
"""Characters of an expression that is shown around a changed name or number."""
FUTURE = annotations.compiler_flag
"""Annotations stay text."""
BOUNDARY: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE,), ast.LtE: (ast.Lt,), ast.Gt: (ast.GtE,), ast.GtE: (ast.Gt,),
    ast.Eq: (ast.LtE, ast.GtE), ast.NotEq: (ast.Lt, ast.Gt),
}  # fmt: skip
"""Comparisons by those that decide other numbers, or equality, otherwise."""
OPPOSITE: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
NO_INDEX = {"np", "min", "max", "int", "str", "Array"}
"""Names in indices that are none themselves."""
TENSOR = "_ptr"
"""End of the names of tensors, where an op has such; they exchange no names with numbers."""
BOUNDS = ("min", "max", "minimum", "maximum", "clip")
"""Functions that are left out, so that a bound is lost."""
COUNTED = ("range", "arange", "zeros", "full", "repeat")
"""Functions whose arguments exchange no names: another number may be too large to count to."""
LAST_OF_EQUALS = ast.parse("lambda row: row.shape[-1] - 1 - row[..., ::-1].argmax(-1)", mode="eval").body
SKIPPED = (ast.While, ast.Lambda, ast.arguments, ast.AnnAssign, ast.ClassDef, ast.JoinedStr)
"""Nodes that stay as they are: a changed loop may not end, and declarations have no part in a rule."""


@dataclass(frozen=True, slots=True)
class Change:
    """A node of a function of the oracle, and the one that takes its place.

    Attributes:
        module: name of the function's module.
        function: the function.
        parent: node that holds the one to change.
        field: field of `parent`.
        at: index in the field, where that is a list; else None.
        node: node that takes the place.
        words: the change in words.
    """

    module: str
    function: ast.FunctionDef
    parent: ast.AST
    field: str
    at: int | None
    node: ast.AST
    words: str

    def compiled(self) -> Any:
        """Return the code of the function with the change; its tree stays as it was."""
        before = self._put(self.node)
        try:
            tree = ast.fix_missing_locations(ast.Module([self.function], []))
            return compile(tree, self.module, "exec", FUTURE)
        finally:
            self._put(before)

    def shown(self, around: ast.AST) -> str:
        """Return the source of the code around the node, with the change."""
        before = self._put(self.node)
        try:
            return ast.unparse(around)
        finally:
            self._put(before)

    def _put(self, node: Any) -> Any:
        """Put `node` in the place, and return the one that was there."""
        value = getattr(self.parent, self.field)
        if self.at is None:
            setattr(self.parent, self.field, node)
            return value
        before, value[self.at] = value[self.at], node
        return before


@functools.cache
def of_rule(op: str) -> tuple[Mistake, ...]:
    """Return the mistakes in the rule of an op, exchanged names last; none for an op whose oracle is not ours."""
    if contracts.registered_oracle(op) is not None:
        return ()
    changes = sorted(_changes(op), key=lambda change: isinstance(change.node, ast.Name))
    return tuple(Mistake(change.words, _Changed(op, change), is_listed=True) for change in changes)


class _Changed:
    """The oracle of an op with a change."""

    def __init__(self, op: str, change: Change) -> None:
        self._op, self._change = op, change

    def __call__(self, op: str, inputs: Inputs) -> Outputs | None:
        own = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in inputs.items()}
        outputs: Outputs = self._function(**own)
        return outputs

    @functools.cached_property
    def _function(self) -> Any:
        return _namespace(FOLDER + self._op, self._change)[self._op]


def _namespace(module: str, change: Change) -> dict[str, Any]:
    """Return the names of a module of the oracle, whose functions call the changed one."""
    names = dict(vars(_module(module)))
    for name, value in vars(_module(module)).items():
        if isinstance(value, FunctionType) and value.__module__ == module:
            names[name] = FunctionType(value.__code__, names, name, value.__defaults__, value.__closure__)
            names[name].__kwdefaults__ = value.__kwdefaults__
    if module == change.module:
        exec(change.compiled(), names)
    for imported, taken in _imports(module):
        if module != change.module and change.module in _needed(imported):
            of = _namespace(imported, change)
            names.update({own: of[name] for name, own in taken})
    return names


@functools.cache
def _module(name: str) -> ModuleType:
    return importlib.import_module(name)


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(_module(module)))


@functools.cache
def _imports(module: str) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Return the modules of the oracle that a module takes names from, and each name with the module's own."""
    return tuple(
        (node.module, tuple((alias.name, alias.asname or alias.name) for alias in node.names))
        for node in _tree(module).body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(FOLDER)
    )


@functools.cache
def _needed(module: str) -> tuple[str, ...]:
    """Return a module and those that it imports, each once."""
    found = [module, *(name for imported, _ in _imports(module) for name in _needed(imported))]
    return tuple(dict.fromkeys(found))


def _changes(op: str) -> Iterator[Change]:
    """Yield the changes of the functions that an op's rule calls; those of random numbers are listed elsewhere."""
    used = {op}
    for module in _needed(FOLDER + op):
        functions = [node for node in _tree(module).body if isinstance(node, ast.FunctionDef)]
        grown = True
        while grown:  # until no function calls another one that is not known to be used
            grown = False
            for function in functions:
                names = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
                if function.name in used and not names <= used:
                    used |= names
                    grown = True
        if not module.endswith(".philox"):
            for function in functions:
                if function.name in used:
                    yield from _of_function(module, function)


def _of_function(module: str, function: ast.FunctionDef) -> Iterator[Change]:
    nodes = list(ast.walk(function))
    slices = [node.slice for node in nodes if isinstance(node, ast.Subscript)]
    loops = [node.target for node in nodes if isinstance(node, (ast.For, ast.comprehension))]
    inside = [n for index in [*slices, *loops] for n in ast.walk(index)]
    indices = sorted({n.id for n in inside if isinstance(n, ast.Name)} - NO_INDEX)
    arguments = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]
    where = f"of the oracle's {Path(_module(module).__file__ or module).name}"
    counted = {id(n) for call in nodes if _is_counted(call) for n in ast.walk(call)}
    parents = {id(child): node for node in nodes for child in ast.iter_child_nodes(node)}
    sizes = [name for name in arguments if not name.endswith(TENSOR) and name.islower()]
    for parent, field, at, node, is_index in _places(function):
        names = [] if id(node) in counted else indices if is_index else arguments
        for put, words in _instead(node, names, sizes, is_index):
            change = Change(module, function, parent, field, at, put, f"{words} in line {node.lineno} {where}")
            if isinstance(node, (ast.Constant, ast.Name)) and (around := _around(node, parents)):
                before, after = ast.unparse(around), change.shown(around)
                change = replace(change, words=f"`{before}` were `{after}` in line {node.lineno} {where}")
            yield change


def _around(node: ast.AST, parents: Mapping[int, ast.AST]) -> ast.AST | None:
    """Return the code around a name or a number that shows its use; None if that is long."""
    around = parents.get(id(node))
    while isinstance(around, (ast.UnaryOp, ast.Tuple, ast.Slice, ast.Attribute)):
        around = parents.get(id(around))
    is_shown = isinstance(around, (ast.expr, ast.Assign, ast.AugAssign)) and len(ast.unparse(around)) <= SHOWN
    return around if is_shown else None


def _is_counted(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in COUNTED


def _places(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str, int | None, Any, bool]]:
    """Yield the nodes that may be changed, each with its parent, field and index, and if it is in an index."""
    is_documented = isinstance(function.body[0], ast.Expr) and isinstance(function.body[0].value, ast.Constant)
    stack: list[tuple[ast.AST, bool]] = [(function, False)]
    while stack:
        parent, is_index = stack.pop()
        for field, value in ast.iter_fields(parent):
            if parent is function and field != "body":
                continue
            nodes = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
            for at, node in nodes[1:] if parent is function and is_documented else nodes:
                if isinstance(node, (ast.stmt, ast.expr, ast.comprehension)) and not isinstance(node, SKIPPED):
                    inside = is_index or (isinstance(parent, ast.Subscript) and field == "slice")
                    stack.append((node, inside))
                    if not isinstance(node, ast.comprehension):
                        yield parent, field, at, node, inside


def _instead(node: Any, names: list[str], sizes: list[str], is_index: bool) -> Iterator[tuple[ast.AST, str]]:
    """Yield the nodes that may take the place of one, each with the change in words.

    Args:
        node: an expression or a statement.
        names: names that may be exchanged with each other: those of indices, or those of arguments.
        sizes: names of arguments that are numbers, which may take the place of a sum in an index.
        is_index: True in an index.
    """
    own = f"`{ast.unparse(node)}`"

    def put(other: ast.AST) -> tuple[ast.AST, str]:
        return other, f"{own} were `{ast.unparse(other)}`"

    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in BOUNDARY:
            yield from (put(ast.Compare(left, [other()], [right])) for other in BOUNDARY[type(operator)])
        case ast.BoolOp(op=operator, values=values):
            for left_out in values:
                rest = [value for value in values if value is not left_out]
                yield put(ast.BoolOp(operator, rest) if len(rest) > 1 else rest[0])
        case ast.BinOp(left=left, op=operator, right=right):
            if type(operator) in OPPOSITE:
                yield put(ast.BinOp(left, OPPOSITE[type(operator)](), right))
            yield put(left)
            if isinstance(operator, (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr)):
                yield put(right)
            if is_index and not isinstance(right, ast.Constant):
                yield from (put(ast.Name(name, ast.Load())) for name in sizes)
            if isinstance(operator, (ast.Mod, ast.FloorDiv)) and isinstance(left, ast.Name):
                for step in (ast.Sub(), ast.Add()):
                    yield put(ast.BinOp(ast.BinOp(left, step, ast.Constant(1)), operator, right))
        case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
            yield put(operand)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *others]) if name in BOUNDS:
            for argument in (first, *others[:1]) if name != "clip" else (first,):
                yield put(argument)
        case ast.Call(func=ast.Attribute(attr="argmax", value=of)):
            row = node.args[0] if isinstance(of, ast.Name) and of.id == "np" else of
            yield ast.Call(LAST_OF_EQUALS, [row], []), f"{own} were the last of equals"
        case ast.Constant(value=bool(value)):
            yield put(ast.Constant(not value))
        case ast.Constant(value=int(value) | float(value)):
            yield put(ast.Constant(value + 1))
            yield put(ast.Constant(value - 1))
        case ast.Name(id=name, ctx=ast.Load()) if name in names:
            for exchanged in names:
                if exchanged != name and exchanged.endswith(TENSOR) == name.endswith(TENSOR):
                    yield put(ast.Name(exchanged, ast.Load()))
            if is_index:
                for step in (ast.Add(), ast.Sub()):
                    yield put(ast.BinOp(node, step, ast.Constant(1)))
        case ast.If(test=test, body=body, orelse=orelse):
            for holds, words in ((True, "always"), (False, "never")):
                yield ast.If(ast.Constant(holds), body, orelse), f"`{ast.unparse(test)}` {words} held"
        case ast.IfExp(test=test, body=then, orelse=other):
            for holds, words in ((True, "always"), (False, "never")):
                yield ast.IfExp(ast.Constant(holds), then, other), f"`{ast.unparse(test)}` {words} held"
        case ast.Assign(targets=[ast.Subscript()]) | ast.AugAssign() | ast.Expr() | ast.Continue() | ast.Break():
            yield ast.Pass(), f"{own} were left out"
        case _:
            pass
