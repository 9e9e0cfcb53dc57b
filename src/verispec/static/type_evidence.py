"""Levels of the type checker's errors: does the code fail when it runs, and did the change take the name away?"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from verispec.static.finding import Level
from verispec.static.import_roots import import_roots
from verispec.static.readers.expressions import dotted
from verispec.static.readers.scope import FUNCTIONS, FunctionNode
from verispec.static.tree import Tree, content_of, is_test

_ATTRIBUTE: Final = re.compile(
    r"(?:Object of class|Class) `([\w.]+)` has no (?:class )?attribute `(\w+)`"
    r"|No attribute `(\w+)` in module `([\w.]+)`"
)
_OF_TYPE: Final = re.compile(r"^Object of type `.*` has no attribute")
_IMPORTED: Final = re.compile(r"Could not import `\w+` from `([\w.]+)`")
_OVERRIDE: Final = re.compile(r"Class member `([\w.]+)\.(\w+)` overrides parent class `([\w.]+)`")
_CALLED: Final = re.compile(r"in function `(?:([\w.]+)\.)?(\w+)\.(\w+)`")
_FUNCTION: Final = re.compile(r"in function `(?:[\w.]+\.)?(\w+)`")
_COUNTED: Final = frozenset({"bad-argument-count", "missing-argument", "bad-keyword-argument"})
_MAKERS: Final = frozenset({"__init__", "__new__"})
_OWN_MAKERS: Final = _MAKERS | {"cls", "__class__", "type"}
"""Names by which a class calls its own constructor or that of its base."""

_UNPACKED: Final = re.compile(r"into (\d+) values")
_HEADER: Final = re.compile(rb"(?m)^[ \t]*class[ \t]+(\w+)[ \t]*(?:\(([^)]*)\))?[ \t]*:")


class Method(NamedTuple):
    """A method, and where it stands."""

    path: str
    owner: str
    node: FunctionNode


class Definitions:
    """The names that the classes of some trees have, and all names that the trees define; each is read once."""

    def __init__(self, trees: list[Tree]) -> None:
        files = [
            file for tree in trees for file in tree.files() if file.path.endswith(".py") and not is_test(file.path)
        ]
        self._sources = [content_of(file) or b"" for file in files]
        self._paths = [file.path for file in files]
        self.packages = {name for tree in trees for name in import_roots(tree)[1]}
        self._classes: dict[int, list[ast.ClassDef]] = {}
        self._members: dict[str, set[str]] = {}
        self._methods: dict[str, list[Method]] = {}
        self._functions: dict[str, list[FunctionNode]] = {}
        self._names: dict[str, bool] = {}
        self._by_name: dict[str, bool] = {}
        self._fallbacks: dict[str, bool] = {}
        self._open: dict[str, bool] = {}

    @cached_property
    def _headers(self) -> dict[str, list[tuple[int, set[str]]]]:
        """The places of each class by its last name, and the words among its bases."""
        found: dict[str, list[tuple[int, set[str]]]] = defaultdict(list)
        for number, source in enumerate(self._sources):
            for match in _HEADER.finditer(source):
                bases = {word.decode() for word in re.findall(rb"\w+", match[2] or b"")}
                found[match[1].decode()].append((number, bases))
        return found

    def has_class(self, name: str) -> bool:
        """Return True if a class has the last name `name`."""
        return name in self._headers

    def family(self, name: str) -> set[str]:
        """Return the class `name` and all classes that it descends from."""
        known = {name}
        queue = [name]
        while queue:
            more = {base for _, bases in self._headers.get(queue.pop(), ()) for base in bases} - known
            known |= more
            queue += more
        return known

    def is_mixed(self, name: str) -> bool:
        """Return True if a class descends from `name` and from another class beside it."""
        return any(name in bases and len(bases) > 1 for places in self._headers.values() for _, bases in places)

    def members(self, classes: set[str]) -> set[str]:
        """Return the names that the bodies and methods of `classes` define."""
        for name in classes & self._headers.keys() - self._members.keys():
            nodes = (node for number, _ in self._headers[name] for node in self._nodes(number) if node.name == name)
            self._members[name] = {member for node in nodes for member in _members(node)}
        return {member for name in classes for member in self._members.get(name, ())}

    def methods(self, name: str) -> list[Method]:
        """Return every method `name`."""
        if name not in self._methods:
            word = f"def {name}".encode()
            numbers = (number for number, source in enumerate(self._sources) if word in source)
            self._methods[name] = [
                Method(self._paths[number], node.name, function)
                for number in numbers
                for node in self._nodes(number)
                for function in node.body
                if isinstance(function, FUNCTIONS) and function.name == name
            ]
        return self._methods[name]

    def functions(self, name: str) -> list[FunctionNode]:
        """Return every function and method `name`."""
        if name not in self._functions:
            word = f"def {name}".encode()
            trees = [_parsed(source) for source in self._sources if word in source]
            nodes = (node for tree in trees if tree is not None for node in ast.walk(tree))
            self._functions[name] = [node for node in nodes if isinstance(node, FUNCTIONS) and node.name == name]
        return self._functions[name]

    def is_fallback(self, name: str) -> bool:
        """Return True if the class `name` is there only where an import fails, instead of a package's class."""
        if name not in self._fallbacks:
            places = self._headers.get(name, ())
            sources = [self._sources[number] for number in {number for number, _ in places}]
            trees = [_parsed(source) for source in sources if b"except" in source]
            handlers = (n for tree in trees if tree for n in ast.walk(tree) if isinstance(n, ast.ExceptHandler))
            inside = sum(isinstance(n, ast.ClassDef) and n.name == name for handler in handlers for n in handler.body)
            self._fallbacks[name] = inside > 0 and inside == len(places)
        return self._fallbacks[name]

    def is_open(self, module: str) -> bool:
        """Return True if `module` imports all names of a module that the trees do not have."""
        if module not in self._open:
            place = module.replace(".", "/")
            ends = f"/{place}.py", f"/{place}/__init__.py"
            sources = (s for path, s in zip(self._paths, self._sources, strict=True) if f"/{path}".endswith(ends))
            trees = (_parsed(source) for source in sources if b"*" in source)
            self._open[module] = any(
                isinstance(node, ast.ImportFrom)
                and node.names[0].name == "*"
                and not node.level
                and (node.module or "").partition(".")[0] not in self.packages
                for tree in trees
                if tree is not None
                for node in ast.walk(tree)
            )
        return self._open[module]

    def sets_by_name(self, classes: set[str]) -> bool:
        """Return True if a method of `classes` gives its instance attributes whose names are not in its source."""
        for name in classes - self._by_name.keys():
            nodes = [n for number, _ in self._headers.get(name, ()) for n in self._nodes(number) if n.name == name]
            self._by_name[name] = any(map(_sets_by_name, nodes))
        return any(self._by_name[name] for name in classes)

    def has_name(self, name: str) -> bool:
        """Return True if anything defines `name`, or a string holds it, by which it may be set."""
        if name not in self._names:
            word = re.escape(name.encode())
            pattern = re.compile(
                rb"\b(?:def|class)\s+%b\b|\b%b\s*(?::[^=\n]+)?=(?!=)|[\"']%b[\"']|(?m:^\s+%b\s*:)"
                % (word, word, word, word)
            )
            # A search for the bytes alone is much faster.
            self._names[name] = any(name.encode() in source and pattern.search(source) for source in self._sources)
        return self._names[name]

    def _nodes(self, number: int) -> list[ast.ClassDef]:
        if number not in self._classes:
            tree = _parsed(self._sources[number])
            self._classes[number] = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)] if tree else []
        return self._classes[number]


def _sets_by_name(klass: ast.ClassDef) -> bool:
    return any(
        isinstance(node, ast.Call)
        and dotted(node.func) == "setattr"
        and len(node.args) == 3
        and not isinstance(node.args[1], ast.Constant)
        for node in ast.walk(klass)
    )


def _members(klass: ast.ClassDef) -> Iterator[str]:
    for inner in ast.walk(klass):
        if isinstance(inner, (*FUNCTIONS, ast.ClassDef)):
            yield inner.name
        elif isinstance(inner, (ast.Attribute, ast.Name)) and isinstance(inner.ctx, ast.Store):
            yield inner.attr if isinstance(inner, ast.Attribute) else inner.id


class ChangeEvidence:
    """The definitions before and after a change, which tell errors of new code from names that it removed."""

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
        if not self._new.has_class(owner) and not self._old.has_class(owner):
            return None
        if self._new.is_fallback(owner):
            return None
        family = self._new.family(owner)
        by_name = self._new.sets_by_name(family)
        if name in self._old.members(self._old.family(owner)) and name not in self._new.members(family) and not by_name:
            return Level.ERROR
        # A class that it is mixed into, or something that sets it from outside, may give the attribute.
        vague = by_name or "Protocol" in family or self._new.is_mixed(owner)
        return Level.NOTE if vague or self._new.has_name(name) else Level.ERROR

    def of_import(self, text: str) -> Level | None:
        """Return the level of a name that cannot be imported; None if a package outside the trees may provide it."""
        match = _IMPORTED.match(text)
        if match is None:
            return Level.ERROR
        known = match[1].partition(".")[0] in self._new.packages and not self._new.is_open(match[1])
        return Level.ERROR if known else None

    def of_override(self, text: str) -> Level | None:
        """Return the level of an override; None if it takes the calls of its base, so that only types differ.

        It is an error if it was there before, and lost a parameter or does not take the base's required parameters. A
        new class may be called in a way of its own.
        """
        match = _OVERRIDE.match(text)
        if match is None:
            return None
        owner, name, base = match[1].rpartition(".")[2], match[2], match[3].rpartition(".")[2]
        family = self._new.family(base) - {owner}
        own = [method.node for method in self._new.methods(name) if method.owner == owner]
        bases = [method.node for method in self._new.methods(name) if method.owner in family]
        if not own or not bases:
            return None
        differs = any(_is_property(one) != _is_property(other) for one in own for other in bases)
        if not differs and any(_is_property(o) or _takes_calls_of(o, b) for o in own for b in bases):
            return None
        if all(method.owner != owner for method in self._old.methods(name)):
            return Level.WARNING
        if differs or not any(_takes_required_of(o, b) for o in own for b in bases):
            return Level.ERROR
        # A base that takes more than before does not show that anybody passes it to this class.
        then = {ast.dump(method.node.args) for method in self._old.methods(name) if method.owner == owner}
        return Level.WARNING if any(ast.dump(o.args) in then for o in own) else Level.ERROR

    def of_unpacking(self, text: str, source: bytes, line: int, column: int) -> Level | None:
        """Return the level of values that are unpacked; None if a return statement of the function has that many."""
        match = _UNPACKED.search(text)
        if " | " in text or match is None:
            return None if " | " in text else Level.ERROR
        tree = _parsed(source)
        nodes = list(_around(tree, line)) if tree is not None else []
        called = {dotted(n.value.func) for n in nodes if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call)}
        names = {name.rpartition(".")[2] for name in called} - {""}
        # The type checker trusts annotations.
        annotated = (node for name in names for node in self._new.functions(name) if node.returns is not None)
        lengths = {length for node in annotated for length in _lengths(node)}
        return None if int(match[1]) in lengths else Level.ERROR

    def of_call(self, text: str, path: str, source: bytes, line: int, column: int) -> Level | None:
        """Return the level of a call in `path` that does not bind; None if a decorator may have changed the function.

        A receiver may be of one of several classes. It is a warning if the change left the chosen method alone, and
        a method of that name of another class takes the call. So is a call of a protocol, whose methods only
        describe those of other classes.
        """
        match = _CALLED.search(text)
        if match is None or not self._new.has_class(match[2]):
            function = _FUNCTION.search(text)
            is_other = function is not None and _is_called_otherwise(source, line, column, function[1])
            return None if is_other else Level.ERROR
        if match[3] in _MAKERS:
            return Level.ERROR if self._is_made_by_name(match[2], source, line, column) else Level.WARNING
        if match[3] == "__replace__":
            fields = set(re.findall(r"argument `(\w+)`", text))
            lost = self._old.members(self._old.family(match[2])) - self._new.members(self._new.family(match[2]))
            return Level.WARNING if fields.isdisjoint(lost) else Level.ERROR
        place = match[1].replace(".", "/") if match[1] else path.removesuffix(".py")
        chosen = place, match[2], match[3]
        call = _call_at(source, line, column, match[3])
        # A placeholder was not what the call meant.
        then = _headers(self._old, *chosen, with_code=True)
        if call is None or (then and _headers(self._new, *chosen) != then):
            return Level.ERROR
        if "Protocol" in self._new.family(match[2]):
            return Level.WARNING
        others = [method for method in self._new.methods(match[3]) if method.owner != match[2]]
        if match[3].startswith("__"):
            others = [m for m in others if re.search(rb"\b%b\b" % m.owner.encode(), source)]
        return Level.WARNING if any(_binds(call, method.node) for method in others) else Level.ERROR

    def _is_made_by_name(self, owner: str, source: bytes, line: int, column: int) -> bool:
        """Return True if a call at a place names the class `owner` or one that descends from it.

        A variable or a table may hold another class than the one that the type checker chose.
        """
        calls = _calls_at(source, line, column)
        names = {_called_name(call.func) for call in calls} - {""}
        word = owner.encode()
        renamed = re.search(rb"\b%b\s+as\s+\w|=\s*(?:\w+\.)*%b\b(?!\s*\()" % (word, word), source)
        known = any(name in _OWN_MAKERS or owner in self._new.family(name) for name in names)
        return not calls or known or renamed is not None


def _called_name(function: ast.expr) -> str:
    """Return the last name of ``a.b(...)``, ``super().b(...)`` or ``type(x)(...)``; empty for an entry of a table."""
    if isinstance(function, ast.Attribute):
        return function.attr
    if isinstance(function, ast.Call):
        return _called_name(function.func)
    return function.id if isinstance(function, ast.Name) else ""


def _lengths(node: FunctionNode) -> Iterator[int]:
    """Yield the numbers of values that the return statements of a function give."""
    for inner in ast.walk(node):
        value = inner.value if isinstance(inner, ast.Return) else None
        if isinstance(value, ast.Tuple) and not any(isinstance(element, ast.Starred) for element in value.elts):
            yield len(value.elts)


def _headers(definitions: Definitions, place: str, owner: str, name: str, *, with_code: bool = False) -> set[str]:
    """Return the parameters of a method of the module at `place`; `with_code` leaves out those that do nothing."""
    found = [method for method in definitions.methods(name) if method.owner == owner]
    if with_code:
        idle = (ast.Expr, ast.Pass, ast.Raise)
        found = [m for m in found if not all(isinstance(statement, idle) for statement in m.node.body)]
    near = [m for m in found if m.path.removesuffix(".py").removesuffix("/__init__").endswith(place)]
    return {ast.dump(method.node.args) for method in near}


def _is_called_otherwise(source: bytes, line: int, column: int, name: str) -> bool:
    """Return True if the call at a place names another function than `name`, and the file gives it no other name."""
    names = {dotted(call.func).rpartition(".")[2] for call in _calls_at(source, line, column)} - {""}
    word = name.encode()
    given = rb"=\s*(?:\w+\.)*%b\b|import\b[^\n]*\b%b\b|(?m:^\s+%b\b(?: as \w+)?,?\s*$)" % (word, word, word)
    return bool(names) and name not in names and re.search(given, source) is None


def _calls_at(source: bytes, line: int, column: int) -> list[ast.Call]:
    tree = _parsed(source)
    nodes = _around(tree, line) if tree is not None else ()
    return [node for node in nodes if isinstance(node, ast.Call) and _holds(node, line, column)]


def _call_at(source: bytes, line: int, column: int, name: str) -> ast.Call | None:
    calls = _calls_at(source, line, column)
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


def _takes_required_of(override: FunctionNode, base: FunctionNode) -> bool:
    """Return True if `override` takes a call with the required parameters of `base` alone."""
    places, others = _positional(base), _keyword_only(base)
    arguments: list[ast.expr] = [ast.Constant(None) for _, optional in places if not optional]
    keywords = [ast.keyword(name, ast.Constant(None)) for name, optional in others.items() if not optional]
    return _binds(ast.Call(ast.Name(override.name), arguments, keywords), override)


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
    scope: ast.AST = tree
    for node in _around(tree, line):
        if isinstance(node, ast.If) and dotted(node.test).rpartition(".")[2] == "TYPE_CHECKING":
            if node.body[0].lineno <= line <= (node.body[-1].end_lineno or line):
                return True
        elif isinstance(node, ast.AnnAssign):
            # Python does not evaluate the annotation of a variable of a function.
            is_local = isinstance(scope, FUNCTIONS) and isinstance(node.target, ast.Name)
            if is_local and _holds(node.annotation, line, column):
                return True
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            scope = node
            if not isinstance(node, ast.ClassDef) and any(_holds(n, line, column) for n in _unevaluated(node, lazy)):
                return True
    return False


def _unevaluated(node: FunctionNode, lazy: bool) -> list[ast.expr]:
    """Return the annotations of a function that stay text; `lazy` says that the module keeps all of them so."""
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    notes = [note for note in (*(a.annotation for a in arguments), node.returns) if note is not None]
    # A decorator may evaluate annotations, but it leaves those alone that are strings.
    if lazy and not node.decorator_list:
        return notes
    return [n for note in notes for n in ast.walk(note) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def _around(node: ast.AST, line: int) -> Iterator[ast.AST]:
    """Yield the nodes inside `node` that hold `line`, from the outermost."""
    for child in ast.iter_child_nodes(node):
        first = getattr(child, "lineno", None)
        if first is None or first <= line <= (getattr(child, "end_lineno", None) or first):
            yield child
            yield from _around(child, line)


def has_open_arguments(source: bytes, line: int, column: int) -> bool:
    """Return True if the call at a place passes a starred argument, whose length the type checker guesses."""
    calls = _calls_at(source, line, column)
    inner = min(calls, key=lambda n: ((n.end_lineno or 0) - n.lineno, n.end_col_offset or 0), default=None)
    around = [call for call in calls if call is inner or any(_holds(a, line, column) for a in call.args)]
    return any(isinstance(argument, ast.Starred) for call in around for argument in call.args)


def counts_arguments(kind: str) -> bool:
    """Return True if an error of this kind is about the number of arguments."""
    return kind in _COUNTED


@lru_cache(4)
def _parsed(source: bytes) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _holds(node: ast.AST, line: int, column: int) -> bool:
    if not isinstance(node, ast.expr):
        return False
    first, last = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return first <= (line, column - 1) < last
