"""Attributes of instances that hold functions or launchers: ``self.kernel = accept_kernel``."""

from __future__ import annotations

import ast
import re

from verispec.static.facts import Binding
from verispec.static.readers import callees
from verispec.static.readers.expressions import dotted
from verispec.static.readers.scope import Nodes, Scope, function_scope, nodes_of

_WORD = re.compile(rb"\w")


def table(name: str, value: ast.expr, scope: Scope, line: int) -> list[Binding]:
    """Return the values of a dict, list or tuple, bound to `name` with ``[]``; nothing unless each is a name."""
    values = value.values if isinstance(value, ast.Dict) else getattr(value, "elts", [])
    references = [scope.one(dotted(element)) for element in values]
    return (
        [Binding(f"{name}[]", "alias", one, (), line) for one in dict.fromkeys(references)] if all(references) else []
    )


def held(nodes: Nodes, scope: Scope, known: set[str]) -> list[Binding]:
    """Return the attributes that a method sets on its instance.

    Args:
        nodes: syntax nodes of the method.
        scope: scope of the method.
        known: names of functions and imports of the module.

    Returns:
        Bindings of kind ``alias`` for a value that leads to one name of `known`, else of kind ``other``.
    """
    found: list[Binding] = []
    for assignment in nodes.of(ast.Assign):
        for target in assignment.targets:
            if not isinstance(target, ast.Attribute) or dotted(target.value) != scope.instance:
                continue
            value = assignment.value
            if isinstance(value, ast.Constant) and value.value is None:
                continue
            found += table(f"{scope.owner}.{target.attr}", value, scope, assignment.lineno)
            for choice in [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]:
                references = [r for r in scope.resolve(dotted(choice)) if r.lstrip("$").partition(".")[0] in known]
                kind, reference = ("alias", references[0]) if len(references) == 1 else ("other", "")
                found.append(Binding(f"{scope.owner}.{target.attr}", kind, reference, (), assignment.lineno))
    return found


def launchers(node: ast.ClassDef, name: str, parent: Scope, data: bytes) -> dict[str, callees.Callee]:
    """Return the launchers that instances of a class hold: ``self.launch = kernel[grid]``, and nothing else anywhere.

    Args:
        node: the class.
        name: its qualified name.
        parent: scope around it.
        data: source of the file, in which no other line may give an attribute of this name a value.
    """
    found: dict[str, callees.Callee] = {}
    for method in nodes_of(node).functions:
        for assignment in nodes_of(method).of(ast.Assign):
            target, value = assignment.targets[0], assignment.value
            if not isinstance(target, ast.Attribute) or not isinstance(value, (ast.Subscript, ast.Call)):
                continue
            called = f"{dotted(target)}(".encode()
            if len(assignment.targets) != 1 or called not in data or not _is_alone(target.attr.encode(), data):
                continue
            scope, _ = function_scope(method, f"{name}.{method.name}", parent, name)
            callee = callees.launcher(value, scope) if dotted(target.value) == scope.instance else None
            if callee is not None:
                found[target.attr] = callee
    return found


def _is_alone(name: bytes, data: bytes) -> bool:
    """Return True if `name` stands once in `data`, calls of it left out."""
    found = 0
    at = data.find(name)
    while at >= 0 and found <= 1:
        after = at + len(name)
        inside = _WORD.match(data, after) or (at > 0 and _WORD.match(data, at - 1))
        found += not inside and data[after : after + 1] != b"("
        at = data.find(name, after)
    return found == 1
