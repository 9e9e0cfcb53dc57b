"""Reader of a kernel's body and decorators, and of the classes that replace one."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Final

from verispec.static.facts import Overflow
from verispec.static.readers.expressions import dotted
from verispec.static.readers.scope import FUNCTIONS, FunctionNode, Nodes

_FIELDS: Final = frozenset({"num_warps", "num_stages", "num_ctas"})
"""Fields of a ``triton.Config`` with a default; others are passed if they are given."""

_SIZED: Final = frozenset({"arange", "zeros"})
_LANGUAGES: Final = frozenset({"language", "tl", "gl"})
"""Last parts of the names by which modules know Triton's language."""

_DIALECTS: Final = {"triton.jit": "triton", "triton.runtime.jit": "triton", "gluon.jit": "gluon"}


def dialect(absolute: str) -> str:
    """Return the kernel dialect of the decorator `absolute`, e.g. ``vllm.triton_utils.triton.jit``, or nothing."""
    return next(
        (name for ending, name in _DIALECTS.items() if absolute == ending or absolute.endswith(f".{ending}")), ""
    )


def given_by(call: ast.Call, module: ast.Module) -> set[str] | None:
    """Return the kernel arguments that an autotune or heuristics decorator supplies.

    Args:
        call: the decorator.
        module: module that holds the kernel.

    Returns:
        Names of arguments; None if they cannot be read.
    """
    if dotted(call.func).endswith("heuristics"):
        values = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "values"), None)
        if not isinstance(values, ast.Dict):
            return None
        keys = [key.value if isinstance(key, ast.Constant) else None for key in values.keys]
        return {key for key in keys if isinstance(key, str)} if all(isinstance(k, str) for k in keys) else None
    configs = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "configs"), None)
    if configs is None:
        return None
    sources: list[ast.AST] = [configs]
    named = dotted(configs.func if isinstance(configs, ast.Call) else configs)
    for node in module.body:
        if isinstance(node, FUNCTIONS) and node.name == named:
            sources.append(node)
        elif isinstance(node, ast.Assign) and any(dotted(target) == named for target in node.targets):
            sources.append(node.value)
    names: set[str] = set()
    found = False
    for source in sources:
        for config in ast.walk(source):
            if not isinstance(config, ast.Call) or not dotted(config.func).endswith("Config"):
                continue
            values = (
                config.args[0] if config.args else next((k.value for k in config.keywords if k.arg == "kwargs"), None)
            )
            if not isinstance(values, ast.Dict):
                return None
            found = True
            for key in values.keys:
                if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                    return None
                names.add(key.value)
            # A Config passes its own fields like any other keyword.
            names.update(_FIELDS)
            names.update(keyword.arg for keyword in config.keywords if keyword.arg)
    return names if found else None


def decorated(
    node: FunctionNode, absolute_of: Callable[[str], str], module: ast.Module
) -> tuple[str, tuple[str, ...] | None, bool]:
    """Return a function's kernel dialect, the arguments of its decorators, and True if one is not understood.

    Args:
        node: the function.
        absolute_of: replaces the first part of a dotted name by its import.
        module: module that holds the function.
    """
    jit, opaque = "", False
    given: set[str] | None = set()
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        absolute = absolute_of(dotted(call.func if call else decorator))
        kind = dialect(absolute)
        if kind:
            jit = kind
        elif absolute.endswith(("triton.autotune", "triton.heuristics", "triton.runtime.autotune")) and call:
            more = given_by(call, module)
            given = None if given is None or more is None else given | more
        elif absolute != "staticmethod":
            # Wrappers of autotune have names of their own; what another decorator passes is not known.
            opaque, given = True, None
    return jit, None if given is None else tuple(sorted(given)), opaque


def tested(nodes: Nodes, params: set[str]) -> tuple[str, ...]:
    """Return the names in `params` whose truth decides a branch among `nodes`."""
    found: set[str] = set()
    tests = [n.test for n in nodes.of(ast.If)] + [n.test for n in nodes.of(ast.IfExp)]
    while tests:
        test = tests.pop()
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            tests.append(test.operand)
        elif isinstance(test, ast.BoolOp):
            tests.extend(test.values)
        elif isinstance(test, ast.Name) and test.id in params:
            found.add(test.id)
    return tuple(sorted(found))


def sizes(node: FunctionNode, nodes: Nodes, absolute_of: Callable[[str], str]) -> tuple[str, ...]:
    """Return the parameters without annotation that are sizes of blocks, which Triton must know while it compiles.

    Args:
        node: the kernel.
        nodes: nodes of its own.
        absolute_of: replaces the first part of a dotted name by its import.
    """
    arguments = node.args
    plain = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if a.annotation is None}
    plain -= {name.id for name in nodes.stores}
    found: dict[str, None] = {}
    for call in nodes.of(ast.Call) if plain else ():
        module, _, name = absolute_of(dotted(call.func)).rpartition(".")
        if name not in _SIZED or module.rpartition(".")[2] not in _LANGUAGES or not call.args:
            continue
        first = call.args[0]
        blocks = first.elts if isinstance(first, (ast.Tuple, ast.List)) else call.args[:2]
        found.update((block.id, None) for block in blocks if isinstance(block, ast.Name) and block.id in plain)
    return tuple(found)


def overflows(node: FunctionNode, nodes: Nodes, name: str) -> tuple[list[Overflow], bool]:
    """Return products of a 32-bit program index and a stride or a width.

    Args:
        node: the kernel.
        nodes: syntax nodes of the function itself.
        name: name of the kernel.

    Returns:
        The products, and True if the kernel promotes any index.
    """
    narrow: set[str] = set()
    promoted: set[str] = set()
    promotes = False
    params = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    wide = {p for p in params if "stride" in p.lower() or "vocab" in p.lower()}
    for assignment in nodes.of(ast.Assign):
        target = assignment.targets[0]
        if not isinstance(target, ast.Name):
            continue
        if isinstance(assignment.value, ast.Call) and dotted(assignment.value.func).endswith(".program_id"):
            narrow.add(target.id)
        else:
            promoted.add(target.id)
    for call in nodes.of(ast.Call):
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "to":
            continue
        index = call.func.value
        is_row = dotted(index) in narrow or (isinstance(index, ast.Call) and dotted(index.func).endswith(".program_id"))
        promotes = promotes or (is_row and any(dotted(argument).endswith("int64") for argument in call.args))
    found: list[Overflow] = []
    seen: set[str] = set()
    for product in nodes.of(ast.BinOp):
        if not isinstance(product.op, ast.Mult):
            continue
        left, right = dotted(product.left), dotted(product.right)
        for row, size in ((left, right), (right, left)):
            text = f"{row} * {size}"
            if row in narrow and row not in promoted and size in wide - promoted and text not in seen:
                seen.add(text)
                found.append(Overflow(name, text, product.lineno))
    return found, promotes


def item_of(node: ast.ClassDef) -> str:
    """Return the result of ``instance[grid]`` for the class `node`; see `facts.Class`."""
    methods = {child.name: child for child in node.body if isinstance(child, FUNCTIONS)}
    getter = methods.get("__getitem__")
    if getter is None:
        return ""
    returns = [n.value for n in Nodes(getter.body).of(ast.Return)]
    if len(returns) != 1:
        return ""
    value = returns[0]
    if isinstance(value, ast.Subscript) or (isinstance(value, ast.Call) and isinstance(value.func, ast.Name)):
        inner = value.value if isinstance(value, ast.Subscript) else value.args[-1] if value.args else None
        return "kernel" if inner is not None and dotted(inner).startswith("self.") else ""
    attribute = dotted(value)
    if not attribute.startswith("self.") or attribute.count(".") != 1:
        return ""
    forward = methods.get(attribute.partition(".")[2])
    if forward is None:
        return "attribute"
    for call in ast.walk(forward):
        if not isinstance(call, ast.Call):
            continue
        for argument in call.args:
            if isinstance(argument, ast.Starred) and isinstance(argument.value, (ast.GeneratorExp, ast.ListComp)):
                return "ordered"
    return ""


def placeholder_attributes(node: ast.ClassDef) -> tuple[str, ...]:
    """Return the attributes of the class `node` if it replaces the triton module (it gives ``jit``), else nothing."""
    names = {child.name for child in node.body if isinstance(child, FUNCTIONS)}
    for child in ast.walk(node):
        if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store) and dotted(child.value) == "self":
            names.add(child.attr)
        elif isinstance(child, ast.Assign):
            names.update(target.id for target in child.targets if isinstance(target, ast.Name))
    return tuple(sorted(names)) if "jit" in names and "Config" in names else ()
