"""Ops that Python code registers, and their fake implementations, read from a syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from verispec.static.facts import PythonOp
from verispec.static.readers.expressions import dotted
from verispec.static.readers.scope import FunctionNode, Scope

_REGISTER: Final = ("op_name", "op_func", "mutates_args", "fake_impl")
"""Parameters of ``direct_register_custom_op``, by position."""


def registered(node: ast.Call, scope: Scope) -> PythonOp | None:
    """Return the op that `node` registers, with names of `scope`; None if it registers none.

    The form is ``direct_register_custom_op(op_name=..., op_func=...)``.
    """
    if not dotted(node.func).endswith("register_custom_op"):
        return None
    given: dict[str, ast.expr] = dict(zip(_REGISTER, node.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    name = _text(given.get("op_name"))
    if not name or "op_func" not in given or any(isinstance(argument, ast.Starred) for argument in node.args):
        return None
    function, fake = (scope.one(dotted(given[key])) if key in given else "" for key in ("op_func", "fake_impl"))
    return PythonOp(name, function, fake, _names(given.get("mutates_args")), node.lineno)


def decorated(node: FunctionNode, name: str, scope: Scope) -> Iterator[PythonOp]:
    """Yield the ops that the decorators of a function make it into, or whose fake implementation it is.

    Args:
        node: the function.
        name: its qualified name.
        scope: scope that its decorators are resolved in.
    """
    here = f"#{name}:{node.lineno}"
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        text = dotted(call.func if call else decorator)
        owner, _, last = text.rpartition(".")
        op = _text(call.args[0]) if call and call.args else ""
        if last == "custom_op" and op and call:
            mutates = next((keyword.value for keyword in call.keywords if keyword.arg == "mutates_args"), None)
            yield PythonOp(op, here, "", _names(mutates), node.lineno)
        elif last == "register_custom_op" and call:
            # As a decorator it takes the function below; the op may be named like it.
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            fake = scope.one(dotted(given.get("fake_impl")))
            yield PythonOp(
                _text(given.get("op_name")) or node.name, here, fake, _names(given.get("mutates_args")), node.lineno
            )
        elif last in {"register_fake", "impl_abstract"} and op:
            yield PythonOp(op, "", here, (), node.lineno)
        elif last == "register_fake" and call is None and owner:
            # ``@op.register_fake`` below ``op``, which `custom_op` made.
            yield PythonOp("", scope.one(owner), here, (), node.lineno)


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _names(node: ast.expr | None) -> tuple[str, ...]:
    """Return the strings of a list or tuple; nothing for anything else."""
    return tuple(filter(None, map(_text, node.elts))) if isinstance(node, (ast.List, ast.Tuple, ast.Set)) else ()
