"""Uses of a class's members that rely on what they were before the change."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from verispec.static.finding import Finding, Level, Side
from verispec.static.readers.expressions import dotted
from verispec.static.readers.scope import FUNCTIONS, FunctionNode
from verispec.static.since.versions import File, NamedCode, Versions, finding

# Properties and methods


def kinds(versions: Versions) -> Iterator[Finding]:
    """Yield the uses of a property that became a method, and of a method that became a property."""
    for change in versions.functions():
        if not change.new.owner or _is_property(change.old) == _is_property(change.new):
            continue
        if len(change.old.decorators) - _is_property(change.old) or len(change.new.decorators) > 1:
            continue
        name = change.new.last
        read, called = _uses(versions, name)
        if _is_property(change.new):
            if read or any(not _is_property(other) for other in versions.named(name) if other.owner):
                continue
            uses, text = called, f"{name} is a property now, and it is called here"
        else:
            # One call shows that somebody knows the method.
            if called:
                continue
            uses, text = read, f"{name} of {change.new.owner} is a method now, and it is not called here"
        for file, node in uses:
            sides = (
                Side("now", change.new.location, f"def {change.new.name}"),
                Side("before", change.old.location, " ".join(f"@{d}" for d in change.old.decorators) or "a method"),
            )
            fix = f"change the uses of {name} too, or restore it at {change.new.location}"
            yield finding("SIG702", Level.ERROR, text, file, node, sides, fix)


def _is_property(definition: NamedCode) -> bool:
    return any(d.rpartition(".")[2] in {"property", "cached_property"} for d in definition.decorators)


def _uses(versions: Versions, name: str) -> tuple[list[tuple[File, ast.expr]], list[tuple[File, ast.expr]]]:
    """Return the places that read the attribute `name`, and those that call it."""
    read: list[tuple[File, ast.expr]] = []
    called: list[tuple[File, ast.expr]] = []
    for file in versions.mentioning(name):
        for node in file.uses[name]:
            if isinstance(node, ast.Attribute):
                parent = file.parents.get(node)
                is_call = isinstance(parent, ast.Call) and parent.func is node
                (called if is_call else read).append((file, node))
    return read, called


# Overrides


def overrides(versions: Versions) -> Iterator[Finding]:
    """Yield overrides whose base's method got another name, and overrides that got one that has no caller."""
    for gone in (d for d in versions.vanished if d.owner and isinstance(d.node, FUNCTIONS)):
        twins = [
            added
            for added in versions.added
            if added.path == gone.path and added.owner == gone.owner and _same_body(added.node, gone.node)
        ]
        if len(twins) != 1:
            continue
        yield from _left_behind(versions, gone, twins[0])
        yield from _moved_away(versions, gone, twins[0])


def _same_body(one: ast.AST, other: ast.AST) -> bool:
    if not isinstance(one, FunctionNode) or not isinstance(other, FunctionNode):
        return False
    return ast.dump(one.args) == ast.dump(other.args) and list(map(ast.dump, one.body)) == list(
        map(ast.dump, other.body)
    )


def _left_behind(versions: Versions, gone: NamedCode, twin: NamedCode) -> Iterator[Finding]:
    """Yield the methods of subclasses that still have the old name of a renamed method."""
    family = versions.descendants(gone.owner.rpartition(".")[2])
    left = [
        d for d in versions.named(gone.last) if d.owner in family and d.owner != gone.owner and d.path in versions.own
    ]
    if not left:
        return
    read, called = _uses(versions, gone.last)
    if any(not _is_super(node) for _, node in (*read, *called)):
        return
    for definition in left:
        file = versions.file(definition.path)
        own = {d.last for d in file.definitions.values() if d.owner.endswith(definition.owner)} if file else set()
        if file is None or twin.last in own:
            continue
        sides = (
            Side("base", twin.location, f"{twin.name} was {gone.last}"),
            Side("before", gone.location, gone.name),
        )
        yield finding(
            "SIG704",
            Level.ERROR,
            f"{definition.owner}.{gone.last} overrides nothing any more: its base calls {twin.last} now",
            file,
            _header_of(definition),
            sides,
            f"rename it to {twin.last}",
        )


def _moved_away(versions: Versions, gone: NamedCode, twin: NamedCode) -> Iterator[Finding]:
    """Yield a method that was an override and has a name now that has no caller."""
    file = versions.file(twin.path)
    if file is None or twin.path not in versions.own:
        return
    ancestors = _ancestors(versions, twin.owner.rpartition(".")[2])
    bases = [d for d in versions.named(gone.last) if d.owner in ancestors and d.owner != twin.owner]
    if not bases or any(d.owner != twin.owner for d in versions.named(twin.last)):
        return
    uses = _uses(versions, twin.last)
    if uses[0] or uses[1] or any(twin.last.encode() in words for words in _strings(versions, twin.last)):
        return
    sides = (Side("base", bases[0].location, f"{bases[0].owner}.{gone.last}"), Side("before", gone.location, gone.name))
    yield finding(
        "SIG704",
        Level.ERROR,
        f"{twin.name} has no caller; it was {gone.last}, which overrides {bases[0].owner}.{gone.last}",
        file,
        _header_of(twin),
        sides,
        f"name it {gone.last}, or call it",
    )


def _strings(versions: Versions, name: str) -> Iterator[bytes]:
    """Yield the strings that hold `name`, by which a method may be called too."""
    for file in versions.mentioning(name):
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and name in node.value:
                yield node.value.encode()


def _header_of(definition: NamedCode) -> ast.stmt:
    """Return a function without its body, for the text of a finding."""
    node = definition.node
    if not isinstance(node, FunctionNode):
        return node
    made = ast.FunctionDef(node.name, node.args, [ast.Expr(ast.Constant(...))], [], None)
    return ast.fix_missing_locations(ast.copy_location(made, node))


def _is_super(node: ast.expr) -> bool:
    inner = node.value if isinstance(node, ast.Attribute) else None
    return isinstance(inner, ast.Call) and dotted(inner.func) == "super"


def _ancestors(versions: Versions, name: str) -> set[str]:
    headers = versions.bases
    known: set[str] = set()
    queue = [name]
    while queue:
        for base in headers.get(queue.pop(), ()):
            if base not in known:
                known.add(base)
                queue.append(base)
    return known


# Attributes


def order(versions: Versions) -> Iterator[Finding]:
    """Yield attributes that a constructor reads before it sets them, and set first before the change."""
    for change in versions.functions():
        if change.new.last != "__init__" or not change.new.owner:
            continue
        before, now = _first_uses(change.old.node), _first_uses(change.new.node)
        for name, (read, stored) in now.items():
            if read is None or stored is None or not _is_before(read, stored):
                continue
            old_read, old_stored = before.get(name, (None, None))
            if old_stored is None or (old_read is not None and _is_before(old_read, old_stored)):
                continue
            file = versions.file(change.new.path)
            if file is None or _is_given_elsewhere(versions, file, change.new, name):
                continue
            yield finding(
                "SIG706",
                Level.ERROR,
                f"{change.new.owner}.__init__ reads self.{name} before it sets it",
                file,
                read,
                (Side("assignment", change.new.location.__class__(file.path, stored.lineno), f"self.{name} = ..."),),
                f"set self.{name} before line {read.lineno}",
            )


def _first_uses(node: ast.AST) -> dict[str, tuple[ast.Attribute | None, ast.Attribute | None]]:
    """Return the first read and the first assignment of every attribute of the instance, in order of execution."""
    found: dict[str, tuple[ast.Attribute | None, ast.Attribute | None]] = {}
    if not isinstance(node, FUNCTIONS) or not node.args.args:
        return found
    instance = node.args.args[0].arg

    def visit(part: ast.AST) -> None:
        if isinstance(part, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            return
        if isinstance(part, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and part.value is not None:
            visit(part.value)
        for child in ast.iter_child_nodes(part):
            if child is not getattr(part, "value", None) or not isinstance(
                part, (ast.Assign, ast.AnnAssign, ast.AugAssign)
            ):
                visit(child)
        if isinstance(part, ast.Attribute) and dotted(part.value) == instance:
            read, stored = found.get(part.attr, (None, None))
            if isinstance(part.ctx, ast.Load):
                found[part.attr] = (read or part, stored)
            else:
                found[part.attr] = (read, stored or part)

    for statement in node.body:
        visit(statement)
    return found


def _is_before(read: ast.Attribute, stored: ast.Attribute) -> bool:
    return (read.lineno, read.col_offset) < (stored.lineno, stored.col_offset) and read.lineno != stored.lineno


def _is_given_elsewhere(versions: Versions, file: File, init: NamedCode, name: str) -> bool:
    """Return True if the class, one of its bases or another method may give the attribute a value."""
    family = {init.owner.rpartition(".")[2], *_ancestors(versions, init.owner.rpartition(".")[2])}
    for place in (*versions.mentioning(name), *versions.mentioning(name, host=True)):
        for node in ast.walk(place.tree):
            if not isinstance(node, ast.ClassDef) or node.name not in family:
                continue
            for inner in ast.walk(node):
                if inner is init.node or place.around(inner, FUNCTIONS) is init.node:
                    continue
                named = isinstance(inner, (*FUNCTIONS, ast.ClassDef)) and inner.name == name
                stored = isinstance(inner, (ast.Attribute, ast.Name)) and isinstance(inner.ctx, ast.Store)
                target = (
                    (inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", "")) if stored else ""
                )
                if named or target == name:
                    return True
    return False
