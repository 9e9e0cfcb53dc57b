"""Dotted names, modules and keys, as single expressions and import statements state them."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def dotted(node: ast.AST | None) -> str:
    """Return ``a.b.c`` if `node` is a chain of attributes on a name, else the empty string."""
    if type(node) is ast.Name:
        return node.id
    rest = ""
    while type(node) is ast.Attribute:
        rest = f".{node.attr}{rest}"
        node = node.value
    return f"{node.id}{rest}" if type(node) is ast.Name and rest else ""


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Yield the names that the import `node` binds, each with its target; ``import a.b`` binds ``a``."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                yield alias.asname, alias.name
            else:
                yield alias.name.partition(".")[0], alias.name.partition(".")[0]
        return
    module = "." * node.level + (node.module or "")
    for alias in node.names:
        dot = "" if module.endswith(".") or not module else "."
        yield alias.asname or alias.name, f"{module}{dot}{alias.name}"


def module_named(node: ast.AST) -> str:
    """Return the module that ``sys.modules["a.b"]``, ``sys.modules.get("a.b")`` or ``import_module("a.b")`` gives.

    Any other `node` gives the empty string.
    """
    if isinstance(node, ast.Subscript) and dotted(node.value) == "sys.modules":
        name: ast.expr | None = node.slice
    elif isinstance(node, ast.Call) and node.args:
        found = dotted(node.func) == "sys.modules.get" or dotted(node.func).endswith("import_module")
        name = node.args[0] if found else None
    else:
        name = None
    return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ""


def mapping_of(node: ast.AST) -> tuple[tuple[str, ...], bool] | None:
    """Return the keys of ``{...}``, ``dict(...)`` or ``a | b``, and True if there may be others; None for others."""
    keys: list[str] = []
    unknown = False
    if isinstance(node, ast.Dict):
        for key in node.keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                keys.append(key.value)
            else:
                unknown = True
        return tuple(keys), unknown
    if isinstance(node, ast.Call) and dotted(node.func) == "dict":
        for keyword in node.keywords:
            if keyword.arg:
                keys.append(keyword.arg)
            else:
                unknown = True
        return tuple(keys), unknown or bool(node.args)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        left, right = mapping_of(node.left), mapping_of(node.right)
        return ((*left[0], *right[0]), left[1] or right[1]) if left is not None and right is not None else None
    return None
