"""Calls that rely on what a function returned, awaited or took before the change."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from verispec.static.finding import Finding, Level, Side
from verispec.static.readers.expressions import dotted
from verispec.static.readers.scope import FUNCTIONS, FunctionNode
from verispec.static.since.versions import Alteration, File, NamedCode, Versions, finding, reaches

_DEEPEST = 2
_FEW = 3
"""Keywords that a call must share with a definition before its name alone counts as evidence."""


# Lengths of results


def results(versions: Versions) -> Iterator[Finding]:
    """Yield the assignments that unpack as many values as a function returned before the change."""
    for change in _with_those_that_hand_on(versions):
        before = _lengths(change.old, change.old_file)
        now = _lengths(change.new, change.new_file)
        if before is None or now is None or len(before) != 1 or now <= before:
            continue
        # A new parameter may choose what is returned.
        if len(now) > 1 and _names(change.new.node) != _names(change.old.node):
            continue
        uses = [
            (file, call, wanted)
            for file, call in versions.calls(change.new.last)
            if (wanted := _unpacked(file, call)) is not None and reaches(file, call, change.new)
        ]
        # Callers that know of the new length choose with the function.
        if len(now) > 1 and any(wanted in now - before for _, _, wanted in uses):
            continue
        kept: set[int | None] | None = None
        for file, call, wanted in uses:
            if now == {wanted} or wanted not in before | now:
                continue
            if kept is None:
                kept = _lengths_of_others(versions, change)
            if wanted in kept or None in kept:
                continue
            returned = " or ".join(map(str, sorted(now)))
            sides = (
                Side("function", change.new.location, f"{change.new.name} returns {returned} values"),
                Side("before", change.old.location, f"returned {min(before)}"),
            )
            yield finding(
                "SIG701",
                Level.ERROR if len(now) == 1 else Level.WARNING,
                f"{change.new.last} returns {returned} values, and {wanted} are unpacked here",
                file,
                call,
                sides,
                f"unpack {returned} values here, or return {wanted} at {change.new.location}",
            )


def lengths(versions: Versions) -> Iterator[Finding]:
    """Yield the findings of `results`, and overrides that return as many values as their base did before the change."""
    yield from results(versions)
    for change in versions.functions():
        before = _lengths(change.old, change.old_file) if change.new.owner else None
        now = _lengths(change.new, change.new_file) if before is not None and len(before) == 1 else None
        if before is None or now is None or len(now) != 1 or now == before or change.new.last.startswith("__"):
            continue
        # A caller that the change left alone means another function of that name.
        calls = [call for call in versions.calls(change.new.last) if _unpacked(*call) in now]
        calls = [call for call in calls if versions.is_changed(call[0].path)]
        family = versions.descendants(change.new.owner.rpartition(".")[2]) if calls else set()
        # A runner calls the method of whatever it holds.
        for other in versions.named(change.new.last) if calls else ():
            file = versions.file(other.path)
            name = f"{other.owner}.{other.name}"
            own = file.definitions.get(name) if file is not None and other.path in versions.own else None
            if file is None or own is None or name == change.new.name:
                continue
            if other.owner not in family and _names(own.node) != _names(change.new.node):
                continue
            if _lengths(own, file.definitions) == before:
                sides = (
                    Side("base", change.new.location, f"{change.new.name} returns {min(now)} values"),
                    Side("caller", calls[0][0].location(calls[0][1]), f"unpacks {min(now)} values"),
                )
                what = "its base" if other.owner in family else change.new.name
                text = f"{own.name} returns {min(before)} values, and {what} and a caller have {min(now)} now"
                fix = f"return {min(now)} values here too"
                level = Level.ERROR if other.owner in family else Level.WARNING
                yield finding("SIG701", level, text, file, own.node, sides, fix)


def _with_those_that_hand_on(versions: Versions) -> Iterator[Alteration]:
    """Yield the altered functions, and those of their files that return what one of them returns."""
    by_file: dict[str, list[Alteration]] = {}
    for change in versions.functions():
        by_file.setdefault(change.new.path, []).append(change)
        yield change
    for changes in by_file.values():
        altered = {change.new.name for change in changes}
        grown = {
            change.new.last
            for change in changes
            if _lengths(change.old, change.old_file) != _lengths(change.new, change.new_file)
        }
        first = changes[0]
        for name, definition in first.new_file.items() if grown else ():
            if name in altered or name not in first.old_file or not isinstance(definition.node, ast.FunctionDef):
                continue
            handed = (r.value for r in _returns(definition.node.body) if isinstance(r.value, ast.Call))
            if any(dotted(call.func).rpartition(".")[2] in grown for call in handed):
                yield Alteration(first.old_file[name], definition, first.old_file, first.new_file)


def _lengths_of_others(versions: Versions, change: Alteration) -> set[int | None]:
    """Return the lengths that other methods of that name return; None among them for one that is not known."""
    found: set[int | None] = set()
    for other in versions.named(change.new.last) if change.new.owner else ():
        if (other.path, other.node.lineno) != (change.new.path, change.new.node.lineno):
            file = versions.file(other.path)
            found |= (_lengths(other, file.definitions) if file is not None else None) or {None}
    return found


def _names(node: ast.AST) -> list[str]:
    """Return the parameters of a function."""
    if not isinstance(node, FUNCTIONS):
        return []
    return [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions, classes and lambdas inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            yield child
            yield from _own(child)


def _lengths(definition: NamedCode, beside: Mapping[str, NamedCode], depth: int = 0) -> set[int] | None:
    """Return the numbers of values that a function returns; None unless each return lists them.

    Args:
        definition: the function.
        beside: functions of its file; a return may hand on the result of one of them.
        depth: number of functions that led here.
    """
    node = definition.node
    if not isinstance(node, ast.FunctionDef) or any("contextmanager" in ast.unparse(d) for d in node.decorator_list):
        return None
    lengths: set[int] = set()
    for result in _returns(node.body):
        value = result.value
        if isinstance(value, ast.Tuple) and not any(isinstance(e, ast.Starred) for e in value.elts):
            lengths.add(len(value.elts))
            continue
        name = dotted(value.func) if isinstance(value, ast.Call) else ""
        inner = beside.get(name.replace("self.", f"{definition.owner}.", 1) if definition.owner else name)
        handed = _lengths(inner, beside, depth + 1) if inner is not None and depth < _DEEPEST else None
        if handed is None:
            return None
        lengths |= handed
    if not lengths or any(isinstance(inner, (ast.Yield, ast.YieldFrom)) for inner in _own(node)):
        return None
    return lengths


def _returns(statements: Sequence[ast.stmt]) -> Iterator[ast.Return]:
    """Yield the return statements of a function."""
    for statement in statements:
        if isinstance(statement, ast.Return):
            yield statement
        elif not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            for field in ("body", "orelse", "finalbody"):
                yield from _returns(getattr(statement, field, ()))
            for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                yield from _returns(part.body)


def _unpacked(file: File, call: ast.Call) -> int | None:
    """Return the number of names to which the result of `call` is assigned; None if it is not unpacked."""
    parent = file.parents.get(call)
    if not isinstance(parent, ast.Assign) or parent.value is not call or len(parent.targets) != 1:
        return None
    target = parent.targets[0]
    if not isinstance(target, (ast.Tuple, ast.List)) or any(isinstance(e, ast.Starred) for e in target.elts):
        return None
    return len(target.elts)


# Coroutines


def asynchronous(versions: Versions) -> Iterator[Finding]:
    """Yield the calls that use the result of a function that became asynchronous without waiting for it."""
    for change in versions.functions():
        if not (isinstance(change.old.node, ast.FunctionDef) and isinstance(change.new.node, ast.AsyncFunctionDef)):
            continue
        if any(isinstance(inner, (ast.Yield, ast.YieldFrom)) for inner in _own(change.new.node)):
            continue
        plain = change.new.owner and any(
            not isinstance(definition.node, ast.AsyncFunctionDef) for definition in versions.named(change.new.last)
        )
        for file, call in versions.calls(change.new.last):
            level = _unawaited(file, call)
            if level is None or plain or not reaches(file, call, change.new):
                continue
            yield finding(
                "SIG703",
                level,
                f"{change.new.last} is asynchronous now, and nothing awaits it here",
                file,
                call,
                (Side("function", change.new.location, f"async def {change.new.name}"),),
                f"await it here, or keep {change.new.name} synchronous at {change.new.location}",
            )


def _unawaited(file: File, call: ast.Call) -> Level | None:
    """Return the level of a call whose coroutine is used as if it were the result; None if it may be awaited."""
    parent = file.parents.get(call)
    if isinstance(parent, ast.Expr) or (isinstance(parent, (ast.Attribute, ast.Subscript)) and parent.value is call):
        return Level.ERROR
    if isinstance(parent, (ast.Compare, ast.BinOp, ast.UnaryOp, ast.Starred, ast.For, ast.comprehension)):
        return Level.ERROR
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], (ast.Tuple, ast.List)):
        return Level.ERROR
    # The caller may hand the coroutine on to somebody who awaits it.
    around = file.around(call, FUNCTIONS)
    return Level.WARNING if isinstance(parent, ast.Return) and isinstance(around, ast.FunctionDef) else None


# Keywords


def keywords(versions: Versions) -> Iterator[Finding]:
    """Yield the partials and the calls of methods by name that pass a keyword that a function took before."""
    for change in versions.functions():
        lost = _keywords(change.old.node) - _keywords(change.new.node)
        if not lost or _takes_any(change.new.node):
            continue
        yield from _partials(versions, change, lost)
        if change.new.owner and not change.new.last.startswith("__"):
            yield from _duck_typed(versions, change, lost)


def _partials(versions: Versions, change: Alteration, lost: set[str]) -> Iterator[Finding]:
    made = change.new
    if change.new.last == "__init__" and change.new.owner in change.new_file:
        made = change.new_file[change.new.owner]
    for file in versions.mentioning(made.last) if not made.owner else ():
        for call in file.uses["partial"]:
            if not isinstance(call, ast.Call) or not call.args:
                continue
            passed = sorted(lost & {keyword.arg for keyword in call.keywords if keyword.arg})
            if passed and _is_held(file, call, made):
                yield finding(
                    "SIG705",
                    Level.ERROR,
                    f"the partial passes {', '.join(passed)}, which {made.last} no longer takes",
                    file,
                    call,
                    (Side("function", change.new.location, _header(change.new)),),
                    f"pass a parameter of {change.new.name} at {change.new.location}",
                )


def _is_held(file: File, call: ast.Call, definition: NamedCode) -> bool:
    """Return True if the first argument of a partial is the function, or a variable that only it and partials are."""
    first = call.args[0]
    name = dotted(first)
    stand_in = ast.copy_location(ast.Call(first, [], []), call)
    if name.rpartition(".")[2] == definition.last:
        return reaches(file, stand_in, definition)
    around = file.around(call, FUNCTIONS)
    if not isinstance(first, ast.Name) or around is None:
        return False
    block = _block_of(file, call)
    values = [
        node.value
        for node in ast.walk(block if block is not None else around)
        if isinstance(node, ast.Assign) and name in map(dotted, node.targets) and node.lineno < call.lineno
    ]
    return bool(values) and all(
        dotted(value).rpartition(".")[2] == definition.last
        and reaches(file, ast.copy_location(ast.Call(value, [], []), value), definition)
        for value in values
    )


def _block_of(file: File, call: ast.Call) -> ast.AST | None:
    """Return the innermost statement around `call` that also gives its first argument a value before it."""
    name = dotted(call.args[0])
    here = file.parents.get(call)
    while here is not None and not isinstance(here, FUNCTIONS):
        bodies = [getattr(here, field, []) for field in ("body", "orelse")]
        for body in bodies if isinstance(here, (ast.If, ast.For, ast.While, ast.With, ast.Try)) else ():
            inside = [s for s in body if any(node is call for node in ast.walk(s))]
            if inside and any(
                isinstance(s, ast.Assign) and name in map(dotted, s.targets) and s.lineno < inside[0].lineno
                for s in body
            ):
                return ast.Module(body, [])
        here = file.parents.get(here)
    return None


def _duck_typed(versions: Versions, change: Alteration, lost: set[str]) -> Iterator[Finding]:
    named: list[NamedCode] | None = None
    for file, call in versions.calls(change.new.last):
        given = {keyword.arg for keyword in call.keywords if keyword.arg}
        passed = sorted(lost & given)
        # Enough shared keywords show that the call was made for this signature.
        if not passed or not given <= _keywords(change.old.node) or not reaches(file, call, change.new):
            continue
        if not isinstance(call.func, ast.Attribute) or dotted(call.func.value) in {"self", "cls", "super()"}:
            continue
        if named is None:
            named = [d for d in versions.named(change.new.last) if isinstance(d.node, FUNCTIONS)]
        others = [d for d in named if _takes_any(d.node) or given <= _keywords(d.node)]
        # One beside the call is the one that it means.
        if others and (len(given) < _FEW or any(other.path == file.path for other in others)):
            continue
        sides = [Side("method", change.new.location, _header(change.new))]
        sides += [Side("another", other.location, _header(other)) for other in others[:1]]
        what = "which no method of that name takes any more" if not others else f"which {change.new.name} lost"
        yield finding(
            "SIG705",
            Level.WARNING if others else Level.ERROR,
            f"the call of {change.new.last} passes {', '.join(passed)}, {what}",
            file,
            call,
            tuple(sides),
            f"give {change.new.name} at {change.new.location} the parameter back, or rename it in the call too",
        )


def _keywords(node: ast.AST) -> set[str]:
    if not isinstance(node, FUNCTIONS):
        return set()
    return {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)} - {"self", "cls"}


def _takes_any(node: ast.AST) -> bool:
    return isinstance(node, FUNCTIONS) and node.args.kwarg is not None


def _header(definition: NamedCode) -> str:
    node = definition.node
    return f"{definition.name}({ast.unparse(node.args)})" if isinstance(node, FunctionNode) else definition.name
