"""Assignments of a function that may still hold where one of its expressions reads the variable."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

_State = frozenset[ast.stmt]
_NOTHING: Final[_State] = frozenset()
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def reaching(body: Sequence[ast.stmt], use: ast.expr, definitions: Iterable[ast.stmt]) -> frozenset[ast.stmt]:
    """Return those of `definitions` of one variable that may reach `use`; nothing if no statement in `body` reads it.

    Args:
        body: statements of the function.
        use: the expression that reads the variable; it is no part of a function or class inside.
        definitions: the assignments, loops and imports that give the variable a value.
    """
    flow = _Flow(use, definitions)
    flow.block(body, _NOTHING)
    return flow.found


def _join(states: Iterable[_State | None]) -> _State | None:
    """Return the union of `states`; None, a place that is never reached, if all of them are."""
    known = [state for state in states if state is not None]
    return _NOTHING.union(*known) if known else None


class _Flow:
    """Follows the definitions through the statements; a state of None is a place that is never reached."""

    def __init__(self, use: ast.expr, definitions: Iterable[ast.stmt]) -> None:
        self.use = use
        self.definitions = set(definitions)
        self.found = _NOTHING
        self.breaks: list[_State | None] = []
        self.continues: list[_State | None] = []
        self.raised: list[_State | None] = []  # What a handler around may see.

    def block(self, body: Sequence[ast.stmt], state: _State | None) -> _State | None:
        """Return the state behind the statements `body`."""
        for statement in body:
            if state is None:
                return None
            state = self._statement(statement, state)
        return state

    def _statement(self, node: ast.stmt, state: _State) -> _State | None:
        if isinstance(node, ast.If):
            self._look(node.test, state)
            return _join((self.block(node.body, state), self.block(node.orelse, state)))
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            return self._loop(node, state)
        if isinstance(node, (ast.Try, ast.TryStar)):
            return self._try(node, state)
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                self._look(item.context_expr, state)
            return self.block(node.body, state)
        if isinstance(node, ast.Match):
            self._look(node.subject, state)
            return _join((state, *(self.block(case.body, state) for case in node.cases)))
        if isinstance(node, _DEFINITIONS):
            return state
        self._look(node, state)
        if isinstance(node, (ast.Return, ast.Raise)):
            return None
        if isinstance(node, (ast.Break, ast.Continue)):
            (self.breaks if isinstance(node, ast.Break) else self.continues).append(state)
            return None
        return self._define(node, state)

    def _look(self, node: ast.AST, state: _State) -> None:
        if any(inner is self.use for inner in ast.walk(node)):
            self.found |= state

    def _define(self, node: ast.stmt, state: _State) -> _State:
        if node not in self.definitions:
            return state
        self.raised.append(frozenset({node}))
        return frozenset({node})

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, state: _State) -> _State | None:
        head = node.test if isinstance(node, ast.While) else node.iter
        around = self.breaks, self.continues
        entry = state
        # The second round starts with what the first one leaves behind.
        for _ in range(2):
            self.breaks, self.continues = [], []
            self._look(head, entry)
            end = self.block(node.body, self._define(node, entry))
            entry = _join((entry, end, *self.continues)) or entry
        forever = isinstance(head, ast.Constant) and bool(head.value)
        left = None if forever else self.block(node.orelse, entry)
        breaks = self.breaks
        self.breaks, self.continues = around
        return _join((left, *breaks))

    def _try(self, node: ast.Try | ast.TryStar, state: _State) -> _State | None:
        around, self.raised = self.raised, []
        end = self.block(node.body, state)
        seen = _NOTHING.union(state, *(s for s in self.raised if s is not None))
        self.raised = [*around, *self.raised]
        result = _join((
            self.block(node.orelse, end),
            *(self.block(handler.body, seen) for handler in node.handlers),
        ))  # fmt: skip
        if node.finalbody:
            self.block(node.finalbody, _join((seen, result)))
            result = self.block(node.finalbody, result)
        return result


def kept(
    body: Sequence[ast.stmt], use: ast.expr, values: Mapping[ast.stmt, Sequence[str]], references: tuple[str, ...]
) -> tuple[str, ...]:
    """Return those of `references` that `use` may read; all of them if the statements do not show it.

    Args:
        body: statements of the function.
        use: the expression that reads the variable.
        values: the references that each definition of the variable gives it.
        references: every reference that the variable has somewhere in the function.
    """
    allowed = {value for definition in reaching(body, use, values) for value in values[definition]}
    return tuple(reference for reference in references if reference in allowed) or references
