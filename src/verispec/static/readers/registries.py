"""Registries that replace functions by dotted name, and the tables that they are given."""

from __future__ import annotations

import ast
import re
from typing import Final

from verispec.static.readers.expressions import dotted
from verispec.static.readers.scope import FUNCTIONS, Nodes, names_inside

_READS: Final = frozenset({"get", "keys", "values", "items", "copy"})
_FORGIVES: Final = re.compile(rb"\btry\s*:|\bsuppress\(")

Entry = tuple[ast.expr | None, ast.expr]
"""Key and value of a dict."""


def demands(tree: ast.Module, data: bytes) -> tuple[str, ...]:
    """Return the things whose absence the functions of a file answer with an error: a ``module``, a ``name`` in one.

    A file that catches errors may go on without either, so nothing is returned for it.

    Args:
        tree: syntax tree of the file.
        data: source of the file.
    """
    if b"import_module(" not in data or _FORGIVES.search(data):
        return ()
    found: set[str] = set()
    for function in (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)):
        inside = list(ast.walk(function))
        calls = {_by_name(node) for node in inside if isinstance(node, ast.Call)}
        found |= {"module"} & calls
        if "test" in calls and not any(isinstance(node, ast.Raise) for node in inside):
            found.add("skip")
        elif calls & {"name", "test"}:
            found.add("name")
    return tuple(sorted(found)) if "skip" not in found else tuple(sorted(found & {"module"}))


def _by_name(call: ast.Call) -> str:
    """Return the kind of lookup by a computed name: of a ``module``, of a ``name``, or only a ``test`` of one."""
    text = dotted(call.func)
    given = call.args[0 if text.endswith("import_module") else 1 : 2]
    if not given or isinstance(given[0], ast.Constant):
        return ""
    if text.endswith("import_module"):
        return "module"
    return {"getattr": "name" if len(call.args) == 2 else "", "hasattr": "test"}.get(text, "")


def entries(argument: ast.expr, nodes: Nodes, module: Nodes, data: bytes) -> list[Entry]:
    """Return the entries of a dict that is an argument of a call, written there or kept in a variable.

    A variable is followed if everything that happens to it is seen: one dict, further keys, this call.

    Args:
        argument: the argument.
        nodes: syntax nodes around the call.
        module: syntax nodes of the module.
        data: source of the file.
    """
    if isinstance(argument, ast.Dict):
        return list(zip(argument.keys, argument.values, strict=True))
    if not isinstance(argument, ast.Name):
        return []
    name = argument.id
    if name not in nodes.dicts and (name in nodes.stored or name not in module.dicts):
        return []
    if name in nodes.stored:
        inner = (*nodes.functions, *nodes.of(ast.ClassDef), *nodes.of(ast.Lambda))
        return [] if any(name in names_inside(node) for node in inner) else _kept(name, nodes)
    # One that the module makes is named once more, here.
    alone = name in module.stored and len(re.findall(rb"\b%b\b" % name.encode(), data)) == 2
    return _kept(name, module) if alone else []


def _kept(name: str, nodes: Nodes) -> list[Entry]:
    made: list[Entry] = []
    dicts = 0
    assignments: list[ast.Assign | ast.AnnAssign] = [*nodes.of(ast.Assign), *nodes.of(ast.AnnAssign)]
    for node in assignments:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if dotted(target) == name and isinstance(node.value, ast.Dict):
                made += zip(node.value.keys, node.value.values, strict=True)
                dicts += 1
            elif isinstance(target, ast.Subscript) and dotted(target.value) == name and node.value is not None:
                made.append((target.slice, node.value))
    given = [
        value
        for call in nodes.of(ast.Call)
        for value in (*call.args, *(keyword.value for keyword in call.keywords))
        if dotted(value) == name
    ]
    lost = [
        target
        for deletion in nodes.of(ast.Delete)
        for target in deletion.targets
        if isinstance(target, ast.Subscript) and dotted(target.value) == name
    ]
    changed = any(owner == name and attribute.attr not in _READS for owner, attribute in nodes.attributes)
    made_once = dicts == 1 and sum(store.id == name for store in nodes.stores) == 1
    return made if made_once and len(given) <= 1 and not lost and not changed else []
