"""Alternatives of one node of a Python syntax tree, the replacements that faults make."""

from __future__ import annotations

import ast
import copy
import math
from dataclasses import dataclass
from typing import Any, Final

COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE, ast.Eq),
    ast.LtE: (ast.Lt, ast.Gt, ast.Eq),
    ast.Gt: (ast.GtE, ast.LtE, ast.Eq),
    ast.GtE: (ast.Gt, ast.Lt, ast.Eq),
    ast.Eq: (ast.NotEq, ast.LtE, ast.GtE),
    ast.NotEq: (ast.Eq, ast.Lt, ast.Gt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: Final[dict[type[ast.operator], tuple[type[ast.operator], ...]]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.FloorDiv, ast.Add),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitOr,),
}
NARROWER: Final = {"int64": "int32", "float64": "float32", "float32": "float16", "uint64": "uint32", "int32": "int16"}
PAIRED: Final = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "argmax": "argmin", "any": "all",
    "all": "any", "extend": "append", "floor": "ceil", "popleft": "pop", "appendleft": "append",
}  # fmt: skip
COPIES: Final = frozenset({"clone", "copy", "deepcopy", "contiguous", "list", "sorted", "detach", "clamp", "clamp_"})
CASTS: Final = frozenset({"to", "float", "double", "long", "int", "astype"})
TUNING: Final = ("num_warps", "num_stages")
"""Arguments of a launch that change its speed alone."""
PLACES: Final = ("device",)
"""Arguments that put a tensor on a GPU: on the CPU, where cases run, their absence changes nothing."""
CHECKS: Final = ("strict",)
"""Arguments that only check, as an assertion does, which no mutant changes either."""
COMMUTATIVE: Final = frozenset({"maximum", "minimum", "max", "min"})
"""Functions whose result does not depend on the order of their arguments."""
MASKS: Final = frozenset({"mask", "other"})


@dataclass(slots=True)
class Place:
    """A node, the list or field of its parent that holds it, and the function and statement around it.

    `repeats` is True if the node may be evaluated more often than its statement.
    """

    node: ast.AST
    parent: ast.AST | None
    name: str
    index: int | None
    function: ast.FunctionDef | None
    statement: int
    number: int
    repeats: bool


Made = list[tuple[str, "ast.AST | list[ast.stmt]"]]


def alternatives(place: Place) -> Made:
    """Return the replacements of a node, always in the same order for a tree."""
    node = place.node
    if place.function is None and not isinstance(node, (ast.Constant, ast.BinOp)):
        return []
    maker = _MAKERS.get(type(node))
    made = [(operator, copy.deepcopy(new)) for operator, new in maker(node, place)] if maker else []
    for _, new in made:
        for root in new if isinstance(new, list) else [new]:
            ast.fix_missing_locations(ast.copy_location(root, node))
    return made


def _compare(node: ast.Compare, place: Place) -> Made:
    if len(node.ops) > 1:
        made: Made = []
        for i, operator in enumerate(node.ops):
            for new in COMPARISONS.get(type(operator), ())[:2]:
                changed = copy.deepcopy(node)
                changed.ops[i] = new()
                made.append(("comparison", changed))
        first = ast.Compare(node.left, node.ops[:1], node.comparators[:1])
        rest = ast.Compare(node.comparators[0], node.ops[1:], node.comparators[1:])
        return [*made, ("guard dropped", first), ("guard dropped", rest)]
    swapped: Made = [
        ("comparison", ast.Compare(node.left, [new()], node.comparators))
        for new in COMPARISONS.get(type(node.ops[0]), ())
    ]
    return swapped


def _bool_op(node: ast.BoolOp, place: Place) -> Made:
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    made: Made = [("logical", ast.BoolOp(other, node.values))]
    for i in range(len(node.values)):
        left = [value for j, value in enumerate(node.values) if j != i]
        made.append(("guard dropped", left[0] if len(left) == 1 else ast.BoolOp(node.op, left)))
    return made


def _bin_op(node: ast.BinOp, place: Place) -> Made:
    if isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
        return []
    dropped = "guard dropped" if isinstance(node.op, (ast.BitAnd, ast.BitOr)) else "operand dropped"
    made: Made = [("arithmetic", ast.BinOp(node.left, new(), node.right)) for new in ARITHMETIC.get(type(node.op), ())]
    return [*made, (dropped, node.left), (dropped, node.right)]


def _unary_op(node: ast.UnaryOp, place: Place) -> Made:
    if isinstance(node.op, (ast.Not, ast.Invert)):
        return [("condition", node.operand)]
    return [("arithmetic", node.operand)] if isinstance(node.op, ast.USub) else []


def _constant(node: ast.Constant, place: Place) -> Made:
    value = node.value
    if isinstance(place.parent, (ast.JoinedStr, ast.FormattedValue)):
        return []
    if isinstance(place.parent, ast.keyword) and place.parent.arg in CHECKS:
        return []
    if isinstance(value, bool):
        return [("constant", ast.Constant(not value))]
    if isinstance(value, int):
        changed = [value + 1, value - 1, *([0] if value > 1 else [])]
        return [("constant", _number(new)) for new in changed]
    if isinstance(value, float) and not math.isnan(value):
        return [("constant", ast.Constant(new)) for new in ([value / 2, value * 2] if value else [1.0])]
    return []


def _number(value: int) -> ast.expr:
    return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))


def is_type_checking(node: ast.If) -> bool:
    """Return True if a branch is for type checkers alone."""
    return "TYPE_CHECKING" in ast.unparse(node.test)


def _if(node: ast.If, place: Place) -> Made:
    if is_type_checking(node) or (len(node.body) == 1 and isinstance(node.body[0], ast.Raise)):
        return []
    return [
        ("condition", ast.If(ast.Constant(True), node.body, node.orelse)),
        ("condition", ast.If(ast.Constant(False), node.body, node.orelse)),
        ("condition", ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)),
    ]


def _if_exp(node: ast.IfExp, place: Place) -> Made:
    return [
        ("branch", node.body),
        ("branch", node.orelse),
        ("branch", ast.IfExp(node.test, node.orelse, node.body)),
    ]


def _while(node: ast.While, place: Place) -> Made:
    return [("condition", ast.While(ast.Constant(False), node.body, node.orelse))]


def _for(node: ast.For, place: Place) -> Made:
    shorter = ast.Subscript(_call("list", node.iter), ast.Slice(None, _number(-1)), ast.Load())
    later = ast.Subscript(_call("list", node.iter), ast.Slice(_number(1), None), ast.Load())
    backward = _call("reversed", _call("list", node.iter))
    made: Made = [("loop bound", _with_iter(node, it)) for it in (shorter, later)]
    return [*made, ("order", _with_iter(node, backward))]


def _with_iter(node: ast.For, iterated: ast.expr) -> ast.For:
    return ast.For(node.target, iterated, node.body, node.orelse)


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def _expression_statement(node: ast.Expr, place: Place) -> Made:
    if not isinstance(node.value, ast.Call):
        return []
    made: Made = [("statement dropped", [ast.Pass()])]
    if "store" not in ast.unparse(node.value.func):  # storing twice is storing once
        made.append(("statement doubled", [node, node]))
    return made


def _assign(node: ast.Assign, place: Place) -> Made:
    made: Made = []
    target = node.targets[0]
    if (len(node.targets) == 1 and isinstance(target, (ast.Attribute, ast.Subscript))) or (
        isinstance(target, ast.Name) and place.function is not None and _assigned_before(target.id, node, place)
    ):
        made.append(("statement dropped", [ast.Pass()]))
    if isinstance(target, ast.Name) and isinstance(node.value, (ast.Call, ast.BinOp, ast.Subscript, ast.Compare)):
        key = ast.Constant(f"{place.number}")
        stale = ast.Call(ast.Name("_verispec_previous", ast.Load()), [key, node.value], [])
        made.append(("stale", ast.Assign(node.targets, stale)))
    return made


def _assigned_before(name: str, node: ast.Assign, place: Place) -> bool:
    assert place.function is not None
    arguments = place.function.args
    if name in [a.arg for a in (*arguments.args, *arguments.kwonlyargs)]:
        return True
    others = [n for n in ast.walk(place.function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return any(n.id == name and n.lineno < node.lineno for n in others)


def _aug_assign(node: ast.AugAssign, place: Place) -> Made:
    made: Made = [("statement dropped", [ast.Pass()]), ("statement doubled", [node, node])]
    made += [("arithmetic", ast.AugAssign(node.target, new(), node.value)) for new in ARITHMETIC.get(type(node.op), ())]
    return made


def _jump(node: ast.AST, place: Place) -> Made:
    return [
        ("statement dropped", [ast.Pass()]),
        ("jump", [ast.Break() if isinstance(node, ast.Continue) else ast.Continue()]),
    ]


def _return(node: ast.Return, place: Place) -> Made:
    return [("statement dropped", [ast.Pass()])] if isinstance(place.parent, ast.If) else []


def _call_node(node: ast.Call, place: Place) -> Made:
    made: Made = []
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name.startswith("_verispec"):
        return []
    for i in range(0 if name in COMMUTATIVE else len(node.args) - 1):
        if any(isinstance(a, ast.Starred) for a in node.args[i : i + 2]):
            continue
        swapped = [*node.args[:i], node.args[i + 1], node.args[i], *node.args[i + 2 :]]
        made.append(("arguments exchanged", ast.Call(node.func, swapped, node.keywords)))
    for i, keyword in enumerate(node.keywords):
        if keyword.arg is not None and keyword.arg not in (*TUNING, *PLACES, *CHECKS):
            kept = [k for j, k in enumerate(node.keywords) if j != i]
            operator = "mask dropped" if keyword.arg in MASKS else "keyword dropped"
            made.append((operator, ast.Call(node.func, node.args, kept)))
    if name in PAIRED:
        made.append(("reduction", ast.Call(_renamed(node.func, PAIRED[name]), node.args, node.keywords)))
    if name in ("min", "max", "minimum", "maximum") and len(node.args) == 2 and not node.keywords:
        made += [("bound dropped", argument) for argument in node.args]
    if name in ("range", "arange") and node.args:
        made += _shorter_range(node)
    if name in COPIES | CASTS:
        operator = "copy dropped" if name in COPIES else "cast dropped"
        if isinstance(node.func, ast.Attribute) and not (name == "copy" and node.args):
            made.append((operator, node.func.value))
        elif len(node.args) == 1:
            made.append((operator, node.args[0]))
    if name == "where" and len(node.args) == 3:
        made += [("branch", node.args[1]), ("branch", node.args[2])]
    if name == "program_id" and node.args:
        made.append(("wrong index", ast.BinOp(node, ast.Mult(), ast.Constant(0))))
        made.append(("wrong index", ast.Call(node.func, [ast.Constant(1)], [])))
    return made


def _shorter_range(node: ast.Call) -> Made:
    last = min(len(node.args), 2) - 1
    shorter = [*node.args]
    shorter[last] = ast.BinOp(node.args[last], ast.Sub(), ast.Constant(1))
    made: Made = [("loop bound", ast.Call(node.func, shorter, node.keywords))]
    if len(node.args) == 1 and not node.keywords:
        made.append(("loop bound", ast.Call(node.func, [ast.Constant(1), *node.args], [])))
    return made


def _renamed(function: ast.expr, name: str) -> ast.expr:
    if isinstance(function, ast.Attribute):
        return ast.Attribute(function.value, name, ast.Load())
    return ast.Name(name, ast.Load())


def _subscript(node: ast.Subscript, place: Place) -> Made:
    if not isinstance(node.ctx, ast.Load):
        return []
    index = node.slice
    if isinstance(index, ast.Slice):
        made: Made = []
        if index.upper is not None:
            longer = ast.BinOp(index.upper, ast.Add(), ast.Constant(1))
            shorter = ast.BinOp(index.upper, ast.Sub(), ast.Constant(1))
            made += [("loop bound", _sliced(node, index.lower, upper)) for upper in (longer, shorter, None)]
        if index.lower is not None:
            later = ast.BinOp(index.lower, ast.Add(), ast.Constant(1))
            made += [("loop bound", _sliced(node, lower, index.upper)) for lower in (later, None)]
        return made
    if isinstance(index, (ast.Name, ast.BinOp, ast.Attribute)):
        return [
            ("off by one", ast.Subscript(node.value, ast.BinOp(index, ast.Sub(), ast.Constant(1)), ast.Load())),
            ("wrong index", ast.Subscript(node.value, ast.Constant(0), ast.Load())),
        ]
    return []


def _sliced(node: ast.Subscript, lower: ast.expr | None, upper: ast.expr | None) -> ast.Subscript:
    return ast.Subscript(node.value, ast.Slice(lower, upper), ast.Load())


def _attribute(node: ast.Attribute, place: Place) -> Made:
    if not isinstance(node.ctx, ast.Load):
        return []
    if node.attr in NARROWER and not isinstance(place.parent, ast.Compare):
        return [("narrow", ast.Attribute(node.value, NARROWER[node.attr], ast.Load()))]
    owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
    if owner in ("options", "request", "params") and not (isinstance(place.parent, ast.Call) and place.name == "func"):
        fields = ast.parse("{}", mode="eval").body
        fields = ast.Attribute(_call("type", node.value), "__dataclass_fields__", ast.Load())
        field = ast.Subscript(fields, ast.Constant(node.attr), ast.Load())
        return [("option ignored", ast.Attribute(field, "default", ast.Load()))]
    return []


def _name(node: ast.Name, place: Place) -> Made:
    """Return the replacements of a name in an offset: another row, request or position."""
    if not isinstance(node.ctx, ast.Load) or place.function is None or not isinstance(place.parent, ast.BinOp):
        return []
    if not isinstance(place.parent.op, (ast.Mult, ast.Add)) or place.function is None:
        return []
    return [("off by one", ast.BinOp(node, ast.Add(), ast.Constant(1)))] if place.name == "left" else []


_MAKERS: Final[dict[type[ast.AST], Any]] = {
    ast.Compare: _compare,
    ast.BoolOp: _bool_op,
    ast.BinOp: _bin_op,
    ast.UnaryOp: _unary_op,
    ast.Constant: _constant,
    ast.If: _if,
    ast.IfExp: _if_exp,
    ast.While: _while,
    ast.For: _for,
    ast.Expr: _expression_statement,
    ast.Assign: _assign,
    ast.AugAssign: _aug_assign,
    ast.Continue: _jump,
    ast.Break: _jump,
    ast.Return: _return,
    ast.Call: _call_node,
    ast.Subscript: _subscript,
    ast.Attribute: _attribute,
    ast.Name: _name,
}
