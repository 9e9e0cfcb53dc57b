"""Attributes of instances that hold functions: ``self.kernel = accept_kernel``."""

from __future__ import annotations

import ast

from verispec.static.facts import Binding
from verispec.static.readers.expressions import dotted
from verispec.static.readers.scope import Nodes, Scope


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
