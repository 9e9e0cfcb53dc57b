"""Files of a tree that a change can break: those that it touches, and those that mention a name it touches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from verispec.static.readers.expressions import dotted
from verispec.static.readers.outline import words
from verispec.static.readers.scope import FUNCTIONS, FunctionNode
from verispec.static.tree import SourceFile, Tree, is_test

_MAKERS: Final = frozenset({"__init__", "__new__", "__call__"})
"""Methods that callers reach by the name of the class."""

_CLASS: Final = re.compile(rb"class[ \t]+(\w+)[ \t\n]*\(([^)]*)\)")


def affected(tree: Tree, before: Tree, host: Tree | None, host_before: Tree | None) -> frozenset[str] | None:
    """Return the paths, of either tree, in which the change from `before` to `tree` can bring an error.

    Args:
        tree: the tree under test.
        before: an older version of it.
        host: tree that it extends; None for none.
        host_before: host of the older version.

    Returns:
        The paths without tests; None if a changed file cannot be read, so that any file may be affected.
    """
    pairs = [(_python(tree), _python(before))]
    if host is not None and host_before is not None:
        pairs.append((_python(host), _python(host_before)))
    names: set[str] = set()
    paths: set[str] = set()
    for number, (new, old) in enumerate(pairs):
        different = {path for path in new.keys() | old.keys() if not _equal(new.get(path), old.get(path))}
        if number == 0:
            paths |= different
        for path in different:
            surfaces = [_surface(files[path]) if path in files else {} for files in (new, old)]
            if None in surfaces:
                return None
            if not all(path in files for files in (new, old)):
                names.update(path.removesuffix(".py").removesuffix("/__init__").rsplit("/", 2)[-2:])
            names |= _changed(*(surface or {} for surface in surfaces))
    texts = {path: file.read() for path, file in (pairs[0][1] | pairs[0][0]).items() if path not in paths}
    wanted = {name.encode() for name in names | _subclasses(names, texts.values())}
    found = (path for path, data in texts.items() if wanted and not wanted.isdisjoint(words(data).split()))
    return frozenset({*paths, *found})


def _python(tree: Tree) -> dict[str, SourceFile]:
    return {file.path: file for file in tree.files() if file.path.endswith(".py") and not is_test(file.path)}


def _equal(one: SourceFile | None, other: SourceFile | None) -> bool:
    if one is None or other is None:
        return False
    return one.blob == other.blob if one.blob and other.blob else one.read() == other.read()


def _surface(file: SourceFile) -> dict[str, str] | None:
    """Return the interface of a file: a text for each dotted name in it; None if it cannot be parsed."""
    try:
        return dict(_block(ast.parse(file.read()).body, ""))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _block(statements: Iterable[ast.stmt], prefix: str) -> Iterator[tuple[str, str]]:
    for statement in statements:
        if isinstance(statement, FUNCTIONS):
            yield f"{prefix}{statement.name}", _header(statement)
            yield from _attributes(statement, prefix) if prefix else ()
        elif isinstance(statement, ast.ClassDef):
            name = f"{prefix}{statement.name}"
            yield name, " ".join(map(ast.unparse, (*statement.decorator_list, *statement.bases, *statement.keywords)))
            yield from _block(statement.body, f"{name}.")
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                yield f"{prefix}{alias.asname or alias.name}", ast.unparse(statement)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            for target in statement.targets if isinstance(statement, ast.Assign) else (statement.target,):
                for node in ast.walk(target):
                    if isinstance(node, ast.Name):
                        yield f"{prefix}{node.id}", ast.unparse(statement)
        else:
            for field in ("body", "orelse", "finalbody"):
                yield from _block(getattr(statement, field, ()), prefix)
            for handler in getattr(statement, "handlers", ()):
                yield from _block(handler.body, prefix)


def _header(node: FunctionNode) -> str:
    """Return the text by which callers and type inference know a function."""
    parts = [type(node).__name__, *map(ast.unparse, node.decorator_list), ast.unparse(node.args)]
    if node.returns is not None:
        return " ".join([*parts, ast.unparse(node.returns)])
    results = (inner for inner in ast.walk(node) if isinstance(inner, (ast.Return, ast.Yield)))
    return " ".join([*parts, *map(ast.unparse, results)])


def _attributes(method: FunctionNode, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the attributes that a method gives its instance."""
    first = method.args.args[0].arg if method.args.args else ""
    for node in ast.walk(method):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets if isinstance(node, (ast.Assign, ast.AnnAssign)) else ():
            if isinstance(target, ast.Attribute) and dotted(target.value) == first:
                yield f"{prefix}{target.attr}", ast.unparse(node)


def _changed(new: Mapping[str, str], old: Mapping[str, str]) -> set[str]:
    """Return the names by which other files reach the differences."""
    found: set[str] = set()
    for key in new.keys() | old.keys():
        if new.get(key) != old.get(key):
            owner, _, name = key.rpartition(".")
            found.add(name)
            if name in _MAKERS or (owner and (key in new) != (key in old)):
                # A constructor, or a field that it takes.
                found.add(owner.rpartition(".")[2])
    return found - {"", "__init__", "__new__"}


def _subclasses(names: set[str], texts: Iterable[bytes]) -> set[str]:
    """Return the classes that descend from a class in `names`, by the names in their headers."""
    headers = [(match[1], set(re.findall(rb"\w+", match[2]))) for data in texts for match in _CLASS.finditer(data)]
    known = {name.encode() for name in names}
    while more := {name for name, bases in headers if name not in known and not known.isdisjoint(bases)}:
        known |= more
    return {name.decode() for name in known} - names
