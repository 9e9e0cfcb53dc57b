"""Reader of a function's header and body: parameters, launches that it returns, conversions."""

from __future__ import annotations

import ast
from typing import Final

from verispec.static.facts import Conversion, LaunchSpec, Param
from verispec.static.readers.expressions import dotted, mapping_of
from verispec.static.readers.scope import FunctionNode, Nodes, Scope, names_inside

_DTYPE_METHODS: Final = frozenset(
    {"float", "double", "half", "bfloat16", "int", "long", "short", "bool", "type", "char"}
)


def params_of(node: FunctionNode, *, drop_first: bool) -> tuple[Param, ...]:
    """Return the parameters of the function `node`; `drop_first` omits ``self`` or ``cls``."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults.extend(arguments.defaults)
    params = [_param(a, "p", d) for a, d in zip(positional, defaults, strict=True)]
    if drop_first:
        del params[0]
    if arguments.vararg:
        params.append(_param(arguments.vararg, "*", None))
    params.extend(_param(a, "k", d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    if arguments.kwarg:
        params.append(_param(arguments.kwarg, "**", None))
    return tuple(params)


def _param(argument: ast.arg, kind: str, default: ast.expr | None) -> Param:
    annotation = argument.annotation
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    text = annotation.value if isinstance(annotation, ast.Constant) else dotted(annotation)
    return Param(
        argument.arg,
        kind,
        "" if default is None else short(default),
        isinstance(text, str) and text.endswith("constexpr"),
    )


def unread(nodes: Nodes, params: tuple[Param, ...]) -> tuple[str, ...]:
    """Return the names in `params` that `nodes` never read, nested functions included."""
    names = {param.name for param in params if param.kind in "pk"} - nodes.loads
    for inner in [*nodes.functions, *nodes.of(ast.Lambda), *nodes.of(ast.ClassDef)] if names else ():
        if names.isdisjoint(names_inside(inner)):
            continue
        names -= {n.id for n in ast.walk(inner) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return tuple(param.name for param in params if param.name in names)


def specs(nodes: Nodes, scope: Scope) -> tuple[LaunchSpec, ...]:
    """Return the launch specifications that `nodes` return, resolved in `scope`."""
    found: list[LaunchSpec] = []
    for node in nodes.of(ast.Return):
        if node.value is None:
            continue
        if not isinstance(node.value, ast.Tuple) or len(node.value.elts) not in (2, 3):
            return ()
        second = node.value.elts[1]
        mapping = mapping_of(second) or scope.ready().mappings.get(dotted(second))
        if mapping is None:
            return ()
        found.append(LaunchSpec(*mapping))
    return tuple(found)


def converts(node: FunctionNode, nodes: Nodes) -> bool:
    """Return True if the function `node`, with its own `nodes`, only returns its first parameter, perhaps converted."""
    if len(node.args.args) < 1:
        return False
    returns = [n.value for n in nodes.of(ast.Return)]
    first = node.args.args[0].arg
    return (
        bool(returns)
        and any(_conversion_of(value, first) for value in returns)
        and all(
            (isinstance(value, ast.Name) and value.id == first) or _conversion_of(value, first) for value in returns
        )
    )


def _conversion_of(value: ast.expr | None, name: str) -> str:
    """Return the method by which `value` is a converted `name`: ".to", ".contiguous", ... or the empty string."""
    if isinstance(value, ast.IfExp):
        parts = [value.body, value.orelse]
        found = [_conversion_of(part, name) for part in parts]
        plain = [isinstance(part, ast.Name) and part.id == name for part in parts]
        return next((f for f in found if f), "") if all(f or p for f, p in zip(found, plain, strict=True)) else ""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return ""
    if not isinstance(value.func.value, ast.Name) or value.func.value.id != name:
        return ""
    method = value.func.attr
    if method == "to":
        # Distinguish a change of dtype from a move between devices.
        arguments = [*value.args, *(k.value for k in value.keywords if k.arg == "dtype")]
        return ".to" if any(dotted(a).startswith("torch.") or "dtype" in dotted(a) for a in arguments) else ""
    return f".{method}" if method in _DTYPE_METHODS or method == "contiguous" else ""


def conversions(function: str, nodes: Nodes, params: set[str], scope: Scope) -> list[Conversion]:
    """Return the converted parameters that reach an op call while nothing brings the result back.

    Args:
        function: name of the function.
        nodes: syntax nodes of the function itself.
        params: names of its parameters.
        scope: scope of the function body.
    """
    ops = [call for call in nodes.of(ast.Call) if dotted(call.func).startswith("torch.ops.")]
    if not ops:
        return []
    converted: dict[str, tuple[str, str]] = {}
    kept: set[str] = set()
    returned: set[str] = set()

    def conversion(value: ast.expr) -> tuple[str, str] | None:
        for name in params:
            method = _conversion_of(value, name)
            if method:
                return name, method
        if not isinstance(value, ast.Call) or len(value.args) != 1 or not isinstance(value.args[0], ast.Name):
            return None
        via = dotted(value.func)
        return (value.args[0].id, scope.one(via)) if value.args[0].id in params and via and "." not in via else None

    for assignment in nodes.of(ast.Assign):
        target, found = assignment.targets[0], conversion(assignment.value)
        if isinstance(target, ast.Name) and found and found[1]:
            converted[target.id] = found
        if isinstance(target, ast.Subscript):
            kept.add(dotted(target.value))
    for target in (target for assignment in nodes.of(ast.Assign) for target in assignment.targets):
        if isinstance(target, ast.Attribute):
            kept.add(_root(target))
    for call in nodes.of(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_"):
            kept.add(_root(call.func.value))
        if call not in ops and conversion(call) is None:
            # A helper that gets the tensor may copy the result back.
            arguments = (*call.args, *(keyword.value for keyword in call.keywords))
            kept.update(_root(argument) for argument in arguments if not _is_read_only(argument))
    for result in nodes.of(ast.Return):
        if result.value is not None:
            returned.update(n.id for n in ast.walk(result.value) if isinstance(n, ast.Name))
    for name, (param, _) in converted.items():
        if name in returned:
            kept.add(param)
    found_all: list[Conversion] = []
    for node in ops:
        named = [(-1, keyword.value, keyword.arg or "") for keyword in node.keywords]
        placed = [(index, argument, "") for index, argument in enumerate(node.args)]
        for index, argument, name in (*placed, *named):
            found = converted.get(argument.id) if isinstance(argument, ast.Name) else conversion(argument)
            if found and found[1] and found[0] not in kept:
                dtype = found[1] not in (".contiguous",)
                found_all.append(
                    Conversion(function, found[0], found[1], dtype, dotted(node.func), index, argument.lineno, name)
                )
    return found_all


def _root(node: ast.expr) -> str:
    """Return the name that attributes, indexes and method calls start from: ``out`` for ``out.data[:n].view(-1)``."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_read_only(argument: ast.expr) -> bool:
    """Return True if `argument` is only derived from a tensor, such as its shape: no call can write into it."""
    return isinstance(argument, ast.Call) or (isinstance(argument, ast.Attribute) and argument.attr != "data")


_TRANSPOSING: Final = (".t", ".transpose", ".permute")


def short(node: ast.expr) -> str:
    """Return the argument or default `node` in a few characters."""
    if isinstance(node, ast.Constant):
        return repr(node.value)[:24]
    if isinstance(node, ast.Call) and dotted(node.func).endswith(_TRANSPOSING):
        return f"{dotted(node.func)}()"
    return dotted(node) or "..."


def mapping(name: str, scope: Scope) -> tuple[tuple[str, ...], bool] | None:
    """Return the keys of the dict `name` and whether it may have others.

    Args:
        name: a plain name.
        scope: scope in which the name is read; enclosing scopes are searched too.

    Returns:
        (keys, True if there may be others); None if the name cannot be followed.
    """
    where: Scope | None = scope
    while where is not None:
        if name in where.ready().mappings:
            return where.mappings[name]
        if name in where.names:
            return None
        where = where.parent
    return None


def length(node: ast.expr, scope: Scope) -> int | None:
    """Return the length of a tuple or list.

    Args:
        node: a tuple or list, or a name that holds one.
        scope: scope in which the name is read; enclosing scopes are searched too.

    Returns:
        Number of elements; None if it cannot be followed.
    """
    if isinstance(node, (ast.Tuple, ast.List)):
        return None if any(isinstance(e, ast.Starred) for e in node.elts) else len(node.elts)
    name = dotted(node)
    where: Scope | None = scope
    while where is not None and name:
        if name in where.ready().sequences:
            return where.sequences[name]
        if name in where.names:
            return None
        where = where.parent
    return None
