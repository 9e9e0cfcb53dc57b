"""Definitions of two versions of a tree and its host, and the files that mention a name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from verispec.static.facts import CPP
from verispec.static.finding import Finding, Level, Location, Side, fingerprint
from verispec.static.readers.expressions import dotted, imported
from verispec.static.readers.outline import words
from verispec.static.readers.scope import FUNCTIONS, FunctionNode
from verispec.static.tree import SourceFile, Tree, content_of, is_test

_CLASS: Final = re.compile(rb"(?m)^[ \t]*class[ \t]+(\w+)[ \t\n]*\(([^)]*)\)")

_CODE: Final = (".py", *CPP)

_MOST: Final = 150
"""Files that may mention a name; one in more of them, such as `forward`, tells nothing about who is meant."""


@dataclass(frozen=True, eq=False, slots=True)
class NamedCode:
    """A function, method or class (`owner` is the class of a method), where it stands."""

    path: str
    name: str
    node: FunctionNode | ast.ClassDef
    owner: str = ""

    @property
    def last(self) -> str:
        """The name without those around it."""
        return self.node.name

    @property
    def module(self) -> str:
        """The dotted name of the file, as far as its path shows it."""
        return self.path.removesuffix(".py").removesuffix("/__init__").removeprefix("src/").replace("/", ".")

    @property
    def location(self) -> Location:
        """Place of the header."""
        return Location(self.path, self.node.lineno)

    @property
    def decorators(self) -> tuple[str, ...]:
        """The decorators' names."""
        return tuple(dotted(d.func if isinstance(d, ast.Call) else d) for d in self.node.decorator_list)


@dataclass(frozen=True, slots=True)
class Alteration:
    """A definition before and after the change, and the definitions beside it."""

    old: NamedCode
    new: NamedCode
    old_file: dict[str, NamedCode]
    new_file: dict[str, NamedCode]


@dataclass(eq=False)
class File:
    """A parsed file, and its functions and classes by dotted name."""

    path: str
    tree: ast.Module
    lines: list[bytes]
    definitions: dict[str, NamedCode]

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node around each node."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def uses(self) -> dict[str, list[ast.Call | ast.Attribute | FunctionNode]]:
        """Calls, reads of attributes and functions, by the last name of each."""
        found: dict[str, list[ast.Call | ast.Attribute | FunctionNode]] = defaultdict(list)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                found[_called(node)].append(node)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found[node.attr].append(node)
            elif isinstance(node, FUNCTIONS):
                found[node.name].append(node)
        return found

    @cached_property
    def imports(self) -> dict[str, str]:
        """The dotted name behind each imported name."""
        found: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                found.update(imported(node))
        return found

    def text(self, definition: NamedCode) -> list[bytes]:
        """Return the lines of `definition` with its decorators."""
        node = definition.node
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        return self.lines[first - 1 : node.end_lineno]

    def around(self, node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> ast.AST | None:
        """Return the nearest node of one of `kinds` around `node`."""
        here = self.parents.get(node)
        while here is not None and not isinstance(here, kinds):
            here = self.parents.get(here)
        return here

    def location(self, node: ast.expr | ast.stmt) -> Location:
        """Return the place of a node."""
        return Location(self.path, node.lineno)

    def scope(self, node: ast.AST) -> str:
        """Return the dotted name of the functions and classes around `node`."""
        names: list[str] = []
        here = self.around(node, (*FUNCTIONS, ast.ClassDef))
        while isinstance(here, (*FUNCTIONS, ast.ClassDef)):
            names.append(here.name)
            here = self.around(here, (*FUNCTIONS, ast.ClassDef))
        return ".".join(reversed(names))


def parsed(path: str, data: bytes) -> File | None:
    """Return the file at `path`; None if it is not valid Python."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found: dict[str, list[NamedCode]] = defaultdict(list)
    _collect(tree.body, path, "", "", found)
    # A name with two definitions depends on a condition.
    return File(path, tree, data.splitlines(), {name: same[0] for name, same in found.items() if len(same) == 1})


def _collect(statements: list[ast.stmt], path: str, prefix: str, owner: str, found: dict[str, list[NamedCode]]) -> None:
    for node in statements:
        if isinstance(node, FUNCTIONS):
            found[f"{prefix}{node.name}"].append(NamedCode(path, f"{prefix}{node.name}", node, owner))
        elif isinstance(node, ast.ClassDef):
            name = f"{prefix}{node.name}"
            found[name].append(NamedCode(path, name, node))
            _collect(node.body, path, f"{name}.", name, found)
        else:
            for field in ("body", "orelse", "finalbody"):
                _collect(getattr(node, field, []), path, prefix, owner, found)
            for handler in getattr(node, "handlers", []):
                _collect(handler.body, path, prefix, owner, found)


class Versions:
    """The files of both versions. `altered` are the functions that differ, `vanished` those that are gone."""

    def __init__(self, tree: Tree, before: Tree, host: Tree | None, host_before: Tree | None) -> None:
        self.own = _python(tree)
        self.before = _python(before)
        self.host = _python(host) if host is not None else {}
        self.host_before = _python(host_before) if host_before is not None else self.host
        self._trees = (tree, before, host)
        self._files: dict[str, File | None] = {}
        self._bytes: dict[str, bytes] = {}
        self.altered: list[Alteration] = []
        self.vanished: list[NamedCode] = []
        self.added: list[NamedCode] = []
        pairs = [(self.own, self.before)] + ([(self.host, self.host_before)] if host_before is not None else [])
        for new, old in pairs:
            # A file of one version alone has nothing to be compared with.
            for path in sorted(new.keys() & old.keys()):
                if not _equal(new[path], old[path]):
                    self._compare(path, new[path], old[path])

    def _compare(self, path: str, new: SourceFile, old: SourceFile) -> None:
        # A file that cannot be read has not lost its definitions.
        contents = content_of(new), content_of(old)
        after, older = (None if content is None else parsed(path, content) for content in contents)
        if after is None or older is None:
            return
        if new is (self.own.get(path) or self.host.get(path)):
            self._files[path] = after
        now, then = after.definitions, older.definitions
        self.vanished += (then[name] for name in then.keys() - now.keys())
        self.added += (now[name] for name in now.keys() - then.keys())
        for name in now.keys() & then.keys():
            if after.text(now[name]) != older.text(then[name]):
                self.altered.append(Alteration(then[name], now[name], then, now))

    def is_changed(self, path: str) -> bool:
        """Return True if the change altered or brought the file at `path` of the newer tree."""
        return path in self.own and (path not in self.before or not _equal(self.own[path], self.before[path]))

    def changed(self, *, before: bool) -> Iterator[bytes]:
        """Yield the files that may register an op and that the change altered, of the newer or the older tree."""
        old, new = ({f.path: f for f in tree.files() if f.path.endswith(_CODE)} for tree in self._trees[1::-1])
        for path in old.keys() | new.keys():
            file, other = (old.get(path), new.get(path)) if before else (new.get(path), old.get(path))
            if file is not None and (other is None or not _equal(file, other)):
                yield content_of(file) or b""

    def all_sources(self) -> Iterator[bytes]:
        """Yield the files of the newer tree and its host that may register an op."""
        for tree in (self._trees[0], self._trees[2]):
            files = tree.files() if tree is not None else ()
            yield from (content_of(file) or b"" for file in files if file.path.endswith(_CODE))

    def functions(self) -> Iterator[Alteration]:
        """Yield the altered functions and methods."""
        for change in self.altered:
            if isinstance(change.old.node, FUNCTIONS) and isinstance(change.new.node, FUNCTIONS):
                yield change

    def read(self, path: str) -> bytes:
        """Return the file at `path` of the newer tree, else of its host."""
        if path not in self._bytes:
            file = self.own.get(path) or self.host.get(path)
            self._bytes[path] = (content_of(file) if file is not None else None) or b""
        return self._bytes[path]

    def mentioning(self, name: str, *, host: bool = False) -> Iterator[File]:
        """Yield the files of the newer tree, or of its `host`, that contain the word `name`."""
        paths = self._mentions[host].get(name.encode(), [])
        # A definition that is found by its name alone must have a name of its own.
        for path in paths if len(paths) <= _MOST else ():
            file = self.file(path)
            if file is not None:
                yield file

    @cached_property
    def _mentions(self) -> tuple[dict[bytes, list[str]], dict[bytes, list[str]]]:
        """The paths in the newer tree and in its host, by the words that anybody may ask for."""
        changed = [change.new for change in self.altered]
        wanted = {definition.last.encode() for definition in (*changed, *self.vanished, *self.added)}
        # Functions beside the changed ones may hand on their results.
        wanted.update(name.rpartition(".")[2].encode() for change in self.altered for name in change.new_file)
        for change in self.altered:
            if isinstance(change.old.node, ast.ClassDef):
                wanted.update(word.encode() for word in _names(change.old.node) - _names(change.new.node))
        for definition in changed:
            if definition.last == "__init__":
                wanted.add(definition.owner.rpartition(".")[2].encode())
                wanted.update(n.attr.encode() for n in ast.walk(definition.node) if isinstance(n, ast.Attribute))
        found: tuple[dict[bytes, list[str]], dict[bytes, list[str]]] = ({}, {})
        for number, files in enumerate((self.own, self.host)):
            for path in files:
                for word in (
                    wanted.intersection(words(self.read(path)).split()) if not number or path not in self.own else ()
                ):
                    found[number].setdefault(word, []).append(path)
        return found

    @cached_property
    def bases(self) -> dict[str, set[str]]:
        """The words among the bases of each class of the newer tree and its host, by name."""
        found: dict[str, set[str]] = defaultdict(set)
        for path in self.own.keys() | self.host.keys():
            for match in _CLASS.finditer(self.read(path)):
                found[match[1].decode()].update(word.decode() for word in re.findall(rb"\w+", match[2]))
        return found

    def descendants(self, name: str) -> set[str]:
        """Return the class `name` and all classes that descend from it."""
        known = {name}
        while more := {klass for klass, bases in self.bases.items() if klass not in known and known & bases}:
            known |= more
        return known

    def file(self, path: str) -> File | None:
        """Return the parsed file at `path` of the newer tree or its host."""
        if path not in self._files:
            self._files[path] = parsed(path, self.read(path))
        return self._files[path]

    def named(self, name: str) -> list[NamedCode]:
        """Return every definition of a function `name` in the newer tree and its host."""
        files = [*self.mentioning(name), *self.mentioning(name, host=True)]
        return [
            NamedCode(file.path, node.name, node, getattr(file.parents.get(node), "name", ""))
            for file in files
            for node in file.uses[name]
            if isinstance(node, FUNCTIONS)
        ]

    def calls(self, name: str) -> Iterator[tuple[File, ast.Call]]:
        """Yield the calls of anything called `name` in the newer tree."""
        for file in self.mentioning(name):
            for node in file.uses[name]:
                if isinstance(node, ast.Call):
                    yield file, node


def _names(node: ast.AST) -> set[str]:
    """Return the names that a class defines, as far as its text says."""
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    names |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    return names | {n.name for n in ast.walk(node) if isinstance(n, (*FUNCTIONS, ast.ClassDef))}


def _called(call: ast.Call) -> str:
    function = call.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def reaches(file: File, call: ast.Call, definition: NamedCode) -> bool:
    """Return True if `call`, which has the right name, may reach `definition`: a function must be imported here."""
    function = call.func
    if isinstance(function, ast.Name):
        if definition.owner:
            return False
        if file.path == definition.path:
            return True
        target = file.imports.get(function.id, "")
        return target.lstrip(".").endswith(f"{definition.module.rpartition('.')[2]}.{definition.last}")
    receiver = dotted(function.value) if isinstance(function, ast.Attribute) else ""
    if not definition.owner:
        target = file.imports.get(receiver.partition(".")[0], "")
        return target.rpartition(".")[2] == definition.module.rpartition(".")[2] and "." not in receiver
    if receiver in {"self", "cls", "super()"}:
        around = file.around(call, (ast.ClassDef,))
        own = {n.name for n in around.body if isinstance(n, FUNCTIONS)} if isinstance(around, ast.ClassDef) else set()
        return isinstance(around, ast.ClassDef) and (around.name == definition.owner or definition.last not in own)
    return True


def finding(
    rule: str, level: Level, message: str, file: File, node: ast.expr | ast.stmt, sides: tuple[Side, ...], fix: str
) -> Finding:
    """Return the finding of a use at `node` in `file`."""
    here = Location(file.path, node.lineno, end_line=getattr(node, "end_lineno", None))
    module = file.path.removesuffix(".py").replace("/", ".")
    scope = f"{module}.{file.scope(node)}".rstrip(".")
    code = Side("code", here, " ".join(ast.unparse(node).split())[:160])
    return Finding(rule, level, message, here, scope, (code, *sides), fix, fingerprint(rule, scope, message), scope)


def _python(tree: Tree) -> dict[str, SourceFile]:
    return {file.path: file for file in tree.files() if file.path.endswith(".py") and not is_test(file.path)}


def _equal(one: SourceFile, other: SourceFile) -> bool:
    return one.blob == other.blob if one.blob and other.blob else content_of(one) == content_of(other)
