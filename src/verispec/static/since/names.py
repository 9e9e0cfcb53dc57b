"""Uses of members and ops that a change took away, without a type checker."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from verispec.static.finding import Finding, Level, Side
from verispec.static.readers.expressions import dotted
from verispec.static.readers.scope import FUNCTIONS
from verispec.static.since.versions import Alteration, File, Versions, finding

_REGISTERED: Final = re.compile(
    rb"""op_name\s*=\s*["'](?:\w+::)?(\w+)["']"""
    rb"""|(?:custom_op|triton_op|register_fake|define|impl|def)\(\s*["'](?:\w+::)?(\w+)\s*[("']"""
    rb"""|(?m:^[ \t]*@[^\n]*(?:custom_op|register)[^\n]*(?:\n[^\n]*){0,8}?\n[ \t]*def (\w+))"""
)
_UNPACKED: Final = re.compile(rb"(?m)^[ \t]*(\w+(?:[ \t]*,[ \t]*\w+)+)[ \t]*=[ \t]*[\w.]+[ \t]*$")
_OP: Final = re.compile(rb"\btorch\.ops\.(\w+)\.(\w+)")


def removed(versions: Versions) -> Iterator[Finding]:
    """Yield the uses of class members and of ops that were there before the change, and that nothing defines now."""
    for change in versions.altered:
        if isinstance(change.old.node, ast.ClassDef) and isinstance(change.new.node, ast.ClassDef):
            yield from _members(versions, change, _defined(change.old.node) - _defined(change.new.node))
    yield from _ops(versions)


# Tuples with names


def tuples(versions: Versions) -> Iterator[Finding]:
    """Yield the assignments that unpack a NamedTuple into as many names as it had fields before the change."""
    for change in versions.altered:
        fields = [_fields(node) for node in (change.old.node, change.new.node)]
        if len(fields[0]) == len(fields[1]) or not all(fields):
            continue
        others: list[list[str]] | None = None
        for path in sorted(versions.own):
            for match in _UNPACKED.finditer(versions.read(path)):
                names = re.split(r"\s*,\s*", match[1].decode())
                if not _are_fields(names, fields[0]):
                    continue
                if others is None:
                    others = [_fields(node) for node in _classes(versions) if node.name != change.new.last]
                file = versions.file(path)
                line = versions.read(path).count(b"\n", 0, match.start(1)) + 1
                nodes = ast.walk(file.tree) if file is not None else iter(())
                node = next((n for n in nodes if isinstance(n, ast.Assign) and n.lineno == line), None)
                if file is None or node is None:
                    continue
                sides = (
                    Side("tuple", change.new.location, f"{change.new.name} has {len(fields[1])} fields"),
                    Side("before", change.old.location, f"{len(fields[0])} fields: {', '.join(fields[0])}"),
                )
                same = any(_are_fields(names, other) for other in others)
                yield finding(
                    "SIG701",
                    Level.WARNING if same else Level.ERROR,
                    f"{change.new.last} has {len(fields[1])} fields, and {len(names)} are unpacked here",
                    file,
                    node,
                    sides,
                    f"read the fields by name, or unpack {len(fields[1])}",
                )


def _fields(node: ast.AST) -> list[str]:
    """Return the fields of a NamedTuple in their order; empty for anything else."""
    if not isinstance(node, ast.ClassDef) or not any(dotted(b).rpartition(".")[2] == "NamedTuple" for b in node.bases):
        return []
    return [s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]


def _are_fields(names: list[str], fields: list[str]) -> bool:
    """Return True if `names` are as many as `fields`, and at least two are named like the field at their place."""
    pairs = list(zip(names, fields, strict=False))
    kept = [(name, field) for name, field in pairs if name.strip("_")]
    return len(names) == len(fields) and len(kept) > 1 and all(name == field for name, field in kept)


def _classes(versions: Versions) -> Iterator[ast.ClassDef]:
    for path in versions.own:
        file = versions.file(path) if b"NamedTuple" in versions.read(path) else None
        yield from (node for node in ast.walk(file.tree) if isinstance(node, ast.ClassDef)) if file is not None else ()


# Members


def _defined(node: ast.ClassDef) -> set[str]:
    """Return the names that the body of a class defines and that its methods give to the instance."""
    found: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, (*FUNCTIONS, ast.ClassDef)) and inner is not node:
            found.add(inner.name)
        elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            found.add(inner.attr)
    for statement in node.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        found.update(target.id for target in targets if isinstance(target, ast.Name))
    return found


def _members(versions: Versions, change: Alteration, lost: set[str]) -> Iterator[Finding]:
    node = change.new.node
    assert isinstance(node, ast.ClassDef)
    open_class = not {"__getattr__", "__getattribute__"}.isdisjoint(_defined(node))
    for name in sorted(lost) if not open_class else ():
        if name.startswith("__"):
            continue
        files = [*versions.mentioning(name), *versions.mentioning(name, host=True)]
        elsewhere = [file for file in files if _gives(file, name, change.new.last)]
        uses = [(f, a) for f in versions.mentioning(name) for a in f.uses[name] if isinstance(a, ast.Attribute)]
        for file, use in uses:
            of_class = _is_class(file, use.value, change)
            # Of an instance it is known only if nothing else has such a member.
            if not (of_class and not _is_inherited(versions, elsewhere, change, name)) and (
                elsewhere or not _is_instance(file, use.value, change.new.last)
            ):
                continue
            sides = (
                Side("class", change.new.location, f"class {change.new.name}"),
                Side("before", change.old.location, f"{change.old.name}.{name}"),
            )
            text = f"{change.new.last} has no {name} any more, which is read here"
            fix = f"use its present name, or restore it at {change.new.location}"
            yield finding("SIG707", Level.ERROR, text, file, use, sides, fix)


def _gives(file: File, name: str, owner: str) -> bool:
    """Return True if a file defines a member `name`, or passes or holds the name, by which something may set it."""
    for node in ast.walk(file.tree):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and node.name == name:
            return True
        if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Store):
            attribute = node.attr if isinstance(node, ast.Attribute) else node.id
            if attribute == name and (isinstance(node, ast.Attribute) or _is_in_class(file, node)):
                return True
        if isinstance(node, ast.Constant) and node.value == name:
            return True
        is_other = isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] != owner
        if is_other and any(keyword.arg == name for keyword in getattr(node, "keywords", ())):
            return True
    return False


def _is_in_class(file: File, node: ast.AST) -> bool:
    around = file.around(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda))
    return isinstance(around, ast.ClassDef)


def _is_inherited(versions: Versions, files: list[File], change: Alteration, name: str) -> bool:
    """Return True if a base of the class may define `name`."""
    known = {change.new.last}
    queue = [change.new.last]
    while queue:
        more = versions.bases.get(queue.pop(), set()) - known
        known |= more
        queue += more
    return any(
        isinstance(node, ast.ClassDef) and node.name in known and name in _defined(node)
        for file in files
        for node in ast.walk(file.tree)
    )


def _is_class(file: File, value: ast.expr, change: Alteration) -> bool:
    """Return True if `value` is the class itself, which the file defines or imports."""
    text = dotted(value)
    if text.rpartition(".")[2] != change.new.last:
        return False
    if file.path == change.new.path:
        return text == change.new.name
    target = file.imports.get(text.partition(".")[0], "")
    return target.lstrip(".").endswith(f"{change.new.module.rpartition('.')[2]}.{change.new.last}") or (
        "." in text and target.rpartition(".")[2] == change.new.module.rpartition(".")[2]
    )


def _is_instance(file: File, value: ast.expr, owner: str) -> bool:
    """Return True if `value` is named like an instance of `owner`, or is self in it."""
    last = dotted(value).rpartition(".")[2]
    if last in {"self", "cls"}:
        around = file.around(value, (ast.ClassDef,))
        return isinstance(around, ast.ClassDef) and around.name == owner
    return bool(last) and last == re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", owner).lower() and "_" in last


# Ops


def _ops(versions: Versions) -> Iterator[Finding]:
    lost = _registered(versions.changed(before=True)) - _registered(versions.changed(before=False))
    used = {
        match[2].decode()
        for path in versions.own
        if b"torch.ops." in versions.read(path)
        for match in _OP.finditer(versions.read(path))
    }
    lost &= used
    if lost:
        lost -= _registered(versions.all_sources())
    for path in sorted(versions.own) if lost else ():
        if not any(match[2].decode() in lost for match in _OP.finditer(versions.read(path))):
            continue
        file = versions.file(path)
        for node in ast.walk(file.tree) if file is not None else ():
            parts = dotted(node).split(".") if isinstance(node, ast.Attribute) else []
            if file is not None and len(parts) == 4 and parts[:2] == ["torch", "ops"] and parts[3] in lost:
                assert isinstance(node, ast.Attribute)
                text = f"nothing registers {parts[2]}::{parts[3]} any more, which is used here"
                side = (Side("op", file.location(node), f"torch.ops.{parts[2]}.{parts[3]}"),)
                yield finding("SIG707", Level.ERROR, text, file, node, side, "use the op's present name")


def _registered(sources: Iterator[bytes]) -> set[str]:
    return {
        name.decode()
        for source in sources
        for match in _REGISTERED.finditer(source)
        for name in match.groups()
        if name is not None
    }
