"""Host-side uses of the triton module, under whatever name a file has it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

from verispec.static.facts import TritonUse
from verispec.static.readers.scope import Nodes, Scope

_MENTION: Final = re.compile(rb"triton(?![.\w])(?P<renamed>[ \t\\\r\n]+as\b)?")
_VALUE: Final = re.compile(rb"(?:=|\belse)[ \t\\\r\n(]*[\w.]*$")
_BEFORE: Final = 120
"""Bytes before a mention that are searched for the assignment."""


def may_rename(data: bytes) -> bool:
    """Return False if the module can only be called ``triton`` in the source `data`."""
    if b"sys.modules" in data or b"import_module" in data:
        return True
    for mention in _MENTION.finditer(data):
        if mention["renamed"] or _VALUE.search(data[max(mention.start() - _BEFORE, 0) : mention.start()]):
            return True
    return False


def uses(nodes: Nodes, scope: Scope, imports: Mapping[str, str], renamed: bool) -> Iterator[TritonUse]:
    """Yield the attributes of the module that a piece of code reads.

    Args:
        nodes: nodes of the code.
        scope: scope of the code.
        imports: imports of its file, by name.
        renamed: True if the module may have another name than its own.
    """
    targets: dict[str, str] = {}
    for name, node in nodes.attributes:
        if name != "triton" and not renamed:
            continue
        target = targets.get(name)
        if target is None:
            reference = scope.one(name)
            head = reference.removeprefix("$")
            target = imports.get(head, "") if reference.startswith("$") else head
            targets[name] = target
        if target.rpartition(".")[2] == "triton" and isinstance(node.ctx, ast.Load):
            yield TritonUse(scope.name, target, node.attr, node.lineno)
