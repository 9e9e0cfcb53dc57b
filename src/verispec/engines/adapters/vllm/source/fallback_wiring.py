"""Read from a tree's source whether its CPU runner or platform puts a fallback where the kernel's callers look."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from verispec.engines import CallShape
from verispec.engines.adapters.vllm.launch import call_shape

PLATFORM = "vllm/platforms/cpu.py"
"""Registers overrides by the kernel's dotted name, 0.31 and later."""

RUNNER = "vllm/v1/worker/cpu_model_runner.py"
"""Assigned fallbacks one by one, 0.19 to 0.30."""

_CALLERS = re.compile(r"vllm/v1/(sample|spec_decode|worker)/[^/]+\.py")


def caller_shape(sources: Mapping[str, str], kernel: str) -> CallShape | None:
    """Return the form of the callers' launches ``kernel[grid](...)``; None if they use a dispatcher.

    Args:
        sources: text by path in the tree.
        kernel: dotted name.
    """
    name = kernel.rpartition(".")[2]
    for path in sorted(filter(_CALLERS.fullmatch, sources)):
        text = sources[path]
        if f"{name}[" in text and (shape := call_shape(text, name)) is not None:
            return shape
    return None


def fault(sources: Mapping[str, str], kernel: str) -> str:
    """Return the reason that callers of a kernel never reach its fallback; empty if they do.

    Args:
        sources: text by path in the tree.
        kernel: dotted name.
    """
    if PLATFORM in sources and f'"{kernel}"' in sources[PLATFORM]:
        return ""
    if RUNNER not in sources:
        return f"nothing installs a fallback for {kernel}"
    module, _, name = kernel.rpartition(".")
    targets = [ast.unparse(target) for target in _assigned(ast.parse(sources[RUNNER]))]
    holders = {name} if caller_shape(sources, kernel) else {f"{d}.kernel" for d in _dispatchers(sources, module, name)}
    if any(target == holder or target.endswith(f".{holder}") for target in targets for holder in holders):
        return ""
    elsewhere = [target for target in targets if target.endswith(f".{name}")]
    if elsewhere:
        return f"the fallback is assigned to {elsewhere[0]}, but callers launch {', '.join(sorted(holders))}"
    return f"nothing installs a fallback for {kernel}"


def _assigned(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from node.targets


def _dispatchers(sources: Mapping[str, str], module: str, kernel: str) -> Iterator[str]:
    """Yield the names of the dispatchers of `kernel`.

    They are functions decorated with ``...(kernel=<kernel>)`` and objects of its class.
    """
    path = f"{module.replace('.', '/')}.py"
    class_name = ""
    if path not in sources:
        module, _, class_name = module.rpartition(".")
        path = f"{module.replace('.', '/')}.py"
    for node in ast.parse(sources.get(path, "")).body:
        if isinstance(node, ast.FunctionDef) and any(_names(d, kernel) for d in node.decorator_list):
            yield node.name
        elif isinstance(node, ast.Assign) and class_name and ast.unparse(node.value).startswith(f"{class_name}("):
            yield from (ast.unparse(target) for target in node.targets)


def _names(decorator: ast.expr, kernel: str) -> bool:
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    return any(k.arg == "kernel" and ast.unparse(k.value) == kernel for k in keywords)
