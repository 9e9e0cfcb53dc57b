"""What a tree says about an error of the type checker: whether it fails when the code runs, and whether it is sure."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import Final

from verispec.static.finding import Level
from verispec.static.readers.expressions import dotted
from verispec.static.readers.scope import FUNCTIONS, FunctionNode
from verispec.static.tree import Tree, is_test

_ATTRIBUTE: Final = re.compile(
    r"(?:Object of class|Class) `([\w.]+)` has no (?:class )?attribute `(\w+)`|No attribute `(\w+)` in module `([\w.]+)`"
)
_OF_TYPE: Final = re.compile(r"^Object of type `.*` has no attribute")
_IMPORTED: Final = re.compile(r"Could not import `\w+` from `([\w.]+)`")
_OVERRIDE: Final = re.compile(r"Class member `([\w.]+)\.(\w+)` overrides parent class `([\w.]+)`")
_CALLED: Final = re.compile(r"in function `(?:[\w.]+\.)?(\w+)\.(\w+)`")
_COUNTED: Final = frozenset({"bad-argument-count", "missing-argument"})
_MAKERS: Final = frozenset({"__init__", "__new__"})
_HEADER: Final = re.compile(rb"(?m)^[ \t]*class[ \t]+(\w+)[ \t]*(?:\(([^)]*)\))?[ \t]*:")


class Definitions:
    """The names that the classes of some trees have, and all names that the trees define."""

    def __init__(self, trees: list[Tree]) -> None:
        files = [file for tree in trees for file in tree.files() if file.path.endswith(".py") and not is_test(file.path)]
        self._sources = [file.read() for file in files]
        tops = (re.sub(r"^(?:src|python)/", "", file.path).partition("/")[0] for file in files)
        self.packages = {top.removesuffix(".py") for top in tops}

    @cached_property
    def bases(self) -> dict[str, set[str]]:
        """The last names of the bases of each class, by the last name of the class."""
        found: dict[str, set[str]] = defaultdict(set)
        for source in self._sources:
            for match in _HEADER.finditer(source):
                found[match[1].decode()].update(word.decode() for word in re.findall(rb"\w+", match[2] or b""))
        return found

    def family(self, name: str) -> set[str]:
        """Return the class `name` and all classes that it descends from."""
        known = {name}
        queue = [name]
        while queue:
            more = self.bases.get(queue.pop(), set()) - known
            known |= more
            queue += more
        return known

    def members(self, classes: set[str]) -> set[str]:
        """Return what the bodies and methods of `classes` define."""
        found: set[str] = set()
        words = [name.encode() for name in classes if name in self.bases]
        for source in self._sources:
            if any(b"class " + word in source for word in words):
                found.update(_members(source, classes))
        return found

    def methods(self, name: str, classes: set[str] | None = None) -> list[tuple[str, FunctionNode]]:
        """Return the methods `name` of some classes, or of all, each with the last name of its class."""
        found: list[tuple[str, FunctionNode]] = []
        word = re.compile(rb"\bdef %b\b" % re.escape(name.encode()))
        for tree in (_parsed(source) for source in self._sources if word.search(source)):
            for node in ast.walk(tree) if tree is not None else ():
                if isinstance(node, ast.ClassDef) and (classes is None or node.name in classes):
                    found += ((node.name, f) for f in node.body if isinstance(f, FUNCTIONS) and f.name == name)
        return found

    def has_name(self, name: str) -> bool:
        """Return True if anything defines `name`, or a string holds it, by which it may be set."""
        word = re.escape(name.encode())
        pattern = re.compile(
            rb"\b(?:def|class)\s+%b\b|\b%b\s*(?::[^=\n]+)?=(?!=)|[\"']%b[\"']|(?m:^\s+%b\s*:)" % (word, word, word, word)
        )
        return any(pattern.search(source) for source in self._sources)


def _members(source: bytes, classes: set[str]) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or node.name not in classes:
            continue
        for inner in ast.walk(node):
            if isinstance(inner, (*FUNCTIONS, ast.ClassDef)):
                yield inner.name
            elif isinstance(inner, (ast.Attribute, ast.Name)) and isinstance(inner.ctx, ast.Store):
                yield inner.attr if isinstance(inner, ast.Attribute) else inner.id


class Evidence:
    """The definitions before and after a change, by which errors of new code are told from names that it removed."""

    def __init__(self, now: list[Tree], before: list[Tree]) -> None:
        self._now = now
        self._before = before

    @cached_property
    def _new(self) -> Definitions:
        return Definitions(self._now)

    @cached_property
    def _old(self) -> Definitions:
        return Definitions(self._before)

    def of_attribute(self, text: str) -> Level | None:
        """Return the level of an attribute that is missing; None if the object is not of the trees."""
        match = _ATTRIBUTE.search(text)
        if match is None:
            return None if _OF_TYPE.match(text) else Level.ERROR
        if match[3]:
            return Level.ERROR if match[4].partition(".")[0] in self._new.packages else None
        owner, name = match[1].rpartition(".")[2], match[2]
        if owner not in self._new.bases and owner not in self._old.bases:
            return None
        if name in self._old.members(self._old.family(owner)) and name not in self._new.members(
            self._new.family(owner)
        ):
            return Level.ERROR
        # A class that is mixed into another, or something that sets it from outside, may give the attribute.
        return Level.NOTE if self._new.has_name(name) else Level.ERROR

    def of_import(self, text: str) -> Level | None:
        """Return the level of a name that cannot be imported; None if its package is not of the trees."""
        match = _IMPORTED.match(text)
        return Level.ERROR if match is None or match[1].partition(".")[0] in self._new.packages else None

    def of_override(self, text: str) -> Level | None:
        """Return the level of an override; None if it takes the calls of its base, so that only types differ."""
        match = _OVERRIDE.match(text)
        if match is None:
            return Level.ERROR
        owner, name, base = match[1].rpartition(".")[2], match[2], match[3].rpartition(".")[2]
        own = [node for _, node in self._new.methods(name, {owner})]
        bases = [node for _, node in self._new.methods(name, self._new.family(base) - {owner})]
        if not own or not bases:
            return None
        if any(_is_property(one) != _is_property(other) for one in own for other in bases):
            return Level.ERROR
        fits = any(_is_property(o) or _takes_calls_of(o, b) for o in own for b in bases)
        return None if fits else Level.ERROR

    def of_call(self, text: str, source: bytes, line: int, column: int) -> Level:
        """Return the level of a call that does not bind to a method.

        A receiver may be of one of several classes. If the change left the method alone that the type checker chose,
        and another class has a method of that name that takes the call, it is a warning.
        """
        match = _CALLED.search(text)
        if match is None or match[1] not in self._new.bases or match[2] in _MAKERS:
            return Level.ERROR
        owner, name = match[1], match[2]
        now = {ast.dump(node.args) for _, node in self._new.methods(name, {owner})}
        then = {ast.dump(node.args) for _, node in self._old.methods(name, {owner})}
        call = _call_at(source, line, column, name)
        if call is None or (then and now != then):
            return Level.ERROR
        others = [(klass, node) for klass, node in self._new.methods(name) if klass != owner]
        if name.startswith("__"):
            others = [(k, node) for k, node in others if re.search(rb"\b%b\b" % k.encode(), source)]
        return Level.WARNING if any(_binds(call, node) for _, node in others) else Level.ERROR


def _call_at(source: bytes, line: int, column: int, name: str) -> ast.Call | None:
    tree = _parsed(source)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and _holds(n, line, column)] if tree else []
    named = [c for c in calls if name == "__call__" or dotted(c.func).rpartition(".")[2] == name]
    return min(named, key=lambda c: ((c.end_lineno or 0) - c.lineno, c.end_col_offset or 0), default=None)


def _positional(node: FunctionNode) -> list[tuple[str, bool]]:
    """Return the positional parameters of a method without the instance, each with True if it has a default."""
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    optional = [False] * (len(names) - len(node.args.defaults)) + [True] * len(node.args.defaults)
    static = any(dotted(d).rpartition(".")[2] == "staticmethod" for d in node.decorator_list)
    return list(zip(names, optional, strict=True))[0 if static else 1 :]


def _keyword_only(node: FunctionNode) -> dict[str, bool]:
    pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return {argument.arg: default is not None for argument, default in pairs}


def _binds(call: ast.Call, node: FunctionNode) -> bool:
    """Return True if `call` fits the method `node`, or passes arguments that are not known."""
    passed = {keyword.arg for keyword in call.keywords}
    if None in passed or any(isinstance(argument, ast.Starred) for argument in call.args):
        return True
    places, others = _positional(node), _keyword_only(node)
    names = {name for name, _ in places}
    if (len(call.args) > len(places) and not node.args.vararg) or (
        not passed <= names | others.keys() and not node.args.kwarg
    ):
        return False
    left = [name for name, optional in places[len(call.args) :] if not optional]
    left += [name for name, optional in others.items() if not optional]
    return all(name in passed for name in left)


def _takes_calls_of(override: FunctionNode, base: FunctionNode) -> bool:
    """Return True if the parameters of `override` take every call that those of `base` take, whatever the types."""
    places, expected = _positional(override), _positional(base)
    others, wanted = _keyword_only(override), _keyword_only(base)
    open_base = base.args.vararg is not None or base.args.kwarg is not None
    if len(expected) > len(places) and override.args.vararg is None:
        return False
    if any(was and not now for (_, now), (_, was) in zip(places, expected, strict=False)):
        return False
    if any(not optional for _, optional in places[len(expected) :]) and not open_base:
        return False
    known = others | dict(places)
    if any(name not in known for name in wanted) and override.args.kwarg is None:
        return False
    required = {name for name, optional in others.items() if not optional}
    given = {name for name, optional in wanted.items() if not optional}
    return open_base or required <= given | {name for name, _ in expected}


def _is_property(node: FunctionNode) -> bool:
    return any(dotted(d).rpartition(".")[2] in {"property", "cached_property", "setter"} for d in node.decorator_list)


def is_for_types_alone(source: bytes, line: int, column: int) -> bool:
    """Return True if a place is in code that does not run: below TYPE_CHECKING, or in an annotation kept as text."""
    tree = _parsed(source)
    if tree is None:
        return False
    lazy = any(
        isinstance(s, ast.ImportFrom) and s.module == "__future__" and "annotations" in {a.name for a in s.names}
        for s in tree.body
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and dotted(node.test).rpartition(".")[2] == "TYPE_CHECKING":
            if node.body[0].lineno <= line <= (node.body[-1].end_lineno or line):
                return True
        elif isinstance(node, FUNCTIONS) and column:
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            notes = [note for note in (*(a.annotation for a in arguments), node.returns) if note is not None]
            # A decorator may evaluate annotations, but it leaves those alone that are strings.
            if not lazy or node.decorator_list:
                notes = [inner for note in notes for inner in ast.walk(note) if _is_text(inner)]
            notes += [n.annotation for n in ast.walk(node) if isinstance(n, ast.AnnAssign) and _is_local(n, node)]
            if any(_holds(note, line, column) for note in notes):
                return True
    return False


def has_open_arguments(source: bytes, line: int, column: int) -> bool:
    """Return True if the call at a place passes a starred argument, whose length the type checker guesses."""
    tree = _parsed(source)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and _holds(n, line, column)] if tree else []
    inner = min(calls, key=lambda n: ((n.end_lineno or 0) - n.lineno, n.end_col_offset or 0), default=None)
    around = [call for call in calls if call is inner or any(_holds(a, line, column) for a in call.args)]
    return any(isinstance(argument, ast.Starred) for call in around for argument in call.args)


def counts_arguments(kind: str) -> bool:
    """Return True if an error of this kind is about the number of arguments."""
    return kind in _COUNTED


def _parsed(source: bytes) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_local(note: ast.AnnAssign, function: FunctionNode) -> bool:
    """Return True if Python does not evaluate the annotation of a variable: one of a function."""
    return isinstance(note.target, ast.Name) and not any(
        isinstance(node, ast.ClassDef) and node.lineno <= note.lineno <= (node.end_lineno or 0)
        for node in ast.walk(function)
    )


def _holds(node: ast.AST, line: int, column: int) -> bool:
    if not isinstance(node, ast.expr):
        return False
    first, last = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return first <= (line, column - 1) < last
