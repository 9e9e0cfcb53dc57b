"""The arguments of a call, followed through unpacked lists and dicts."""

from __future__ import annotations

import ast
from typing import Final

from verispec.static.facts import Call
from verispec.static.readers import functions
from verispec.static.readers.expressions import dotted, mapping_of
from verispec.static.readers.scope import Scope

_PASSED: Final = 2
"""Arguments of a plain call that are followed: a function that launches what it is given takes the kernel first."""


def bound(node: ast.Call, targets: tuple[str, ...], scope: Scope, grid: bool) -> Call:
    """Return the call `node` of `targets`, with its arguments followed in `scope`."""
    positional: list[str] = []
    keywords: list[str] = []
    open_positional = open_keywords = False
    for argument in node.args:
        if not isinstance(argument, ast.Starred):
            positional.append(functions.short(argument))
            continue
        length = functions.length(argument.value, scope)
        if length is None:
            open_positional = True
        else:
            positional.extend("..." for _ in range(length))
    constants = tuple(k.arg for k in node.keywords if k.arg and isinstance(k.value, ast.Constant))
    for keyword in node.keywords:
        if keyword.arg:
            keywords.append(keyword.arg)
            continue
        mapping = mapping_of(keyword.value) or functions.mapping(dotted(keyword.value), scope)
        if mapping is None:
            open_keywords = True
        else:
            keywords.extend(mapping[0])
            open_keywords = open_keywords or mapping[1]
    return Call(
        targets,
        scope.name,
        node.lineno,
        node.end_lineno or node.lineno,
        grid,
        tuple(positional),
        tuple(keywords),
        open_positional,
        open_keywords,
        constants,
        passed=() if grid else _passed(node, scope),
    )


def _passed(node: ast.Call, scope: Scope) -> tuple[str, ...]:
    first = node.args[:_PASSED]
    if any(isinstance(argument, ast.Starred) for argument in first):
        return ()
    return tuple(scope.one(dotted(argument)) for argument in first)
