"""Names of other modules that a Python file gives a new value: by assignment, setattr or a registry's table."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from verispec.static.facts import Binding, Override
from verispec.static.readers import prefilter, registries
from verispec.static.readers.expressions import dotted
from verispec.static.readers.scope import Nodes, Scope


class Overrides:
    """The overrides of one file, collected while its syntax tree is read.

    Args:
        data: source of the file.
        imports: targets of the module's imports, by name.
        module: scope of the module.
        bindings: list that gets the results of calls which become new values, by names that no source can use.
    """

    def __init__(self, data: bytes, imports: Mapping[str, str], module: Scope, bindings: list[Binding]) -> None:
        self.found: list[Override] = []
        self._data, self._imports, self._module, self._bindings = data, imports, module, bindings
        self._has_tables = prefilter.has_table(data)

    def assigned(self, node: ast.Assign, scope: Scope) -> None:
        """Note ``module.name = value``."""
        for target in node.targets:
            owner = self._owner(dotted(target.value), scope) if isinstance(target, ast.Attribute) else ""
            if owner and isinstance(target, ast.Attribute):
                value = self._reference(node.value, scope)
                self.found.append(Override(f"{owner}.{target.attr}", value, "", scope.name, node.lineno))

    def set_by_name(self, node: ast.Call, scope: Scope) -> None:
        """Note ``setattr(module, "name", value)``."""
        key = node.args[1]
        name = key.value if isinstance(key, ast.Constant) else scope.ready().strings.get(dotted(key))
        owner = self._owner(dotted(node.args[0]), scope)
        if owner and isinstance(name, str):
            value = self._reference(node.args[2], scope)
            self.found.append(Override(f"{owner}.{name}", value, "", scope.name, node.lineno))

    def registered(self, node: ast.Call, scope: Scope, nodes: Nodes) -> None:
        """Note the entries ``{"module.name": value}`` of a call's dicts, among the `nodes` of its function."""
        if not (nodes.of(ast.Dict) or self._has_tables) or not (text := dotted(node.func)):
            return
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            for key, value in registries.entries(argument, nodes, self._module.nodes or nodes, self._data):
                name = key.value if isinstance(key, ast.Constant) else None
                if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*(\.\w+){2,}", name):
                    continue
                if reference := self._reference(value, scope):
                    line = key.lineno if key else node.lineno
                    self.found.append(Override(name, reference, scope.one(text), scope.name, line))

    def _owner(self, text: str, scope: Scope) -> str:
        """Return the import that `text` leads to; "" if its first name is anything else."""
        reference = scope.one(text)
        if not reference or reference.startswith("@"):
            return ""
        if reference.startswith("$"):
            head, dot, rest = reference[1:].partition(".")
            return f"{self._imports[head]}{dot}{rest}" if head in self._imports else ""
        return reference

    def _reference(self, value: ast.expr, scope: Scope) -> str:
        """Return the name that `value` refers to. The result of a call gets a name that no source can use."""
        if not isinstance(value, ast.Call) or not dotted(value.func):
            return scope.one(dotted(value))
        name = f"<{value.lineno}:{value.col_offset}>"
        arguments = tuple(scope.one(dotted(argument)) for argument in value.args)
        self._bindings.append(Binding(name, "call", scope.one(dotted(value.func)), arguments, value.lineno))
        return f"${name}"
