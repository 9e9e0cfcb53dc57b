"""Functions that hand their own arguments on to a launch: ``kernel[grid](*args, **kwargs)``."""

from __future__ import annotations

import ast

from verispec.static.readers.expressions import dotted
from verispec.static.readers.scope import FunctionNode, Nodes


def forwarded(node: FunctionNode, launch: ast.Call) -> tuple[bool, bool] | None:
    """Return True if a launch forwards its function's ``*args`` and ``**kwargs`` unchanged.

    Args:
        node: the function.
        launch: a launch in its body.

    Returns:
        (forwards ``*args`` as the last argument, forwards ``**kwargs``); None if it forwards neither, or if the
        function drops one or uses it elsewhere.
    """
    args = node.args.vararg.arg if node.args.vararg else ""
    kwargs = node.args.kwarg.arg if node.args.kwarg else ""
    starred = [argument for argument in launch.args if isinstance(argument, ast.Starred)]
    doubled = [keyword for keyword in launch.keywords if keyword.arg is None]
    takes_args = len(starred) == 1 and launch.args[-1] is starred[0] and dotted(starred[0].value) == args != ""
    takes_kwargs = len(doubled) == 1 and dotted(doubled[0].value) == kwargs != ""
    if (starred and not takes_args) or (doubled and not takes_kwargs) or not (takes_args or takes_kwargs):
        return None
    # Arguments that the launch does not forward would be lost; if read elsewhere, they may be changed or used up.
    if (args and not takes_args) or (kwargs and not takes_kwargs):
        return None
    uses = [n.id for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id in {args, kwargs}]
    return (takes_args, takes_kwargs) if len(uses) == takes_args + takes_kwargs else None


def parameter(node: FunctionNode, nodes: Nodes, kernel: ast.expr) -> str:
    """Return the parameter that is launched; empty if it is no parameter, or has another value later.

    Args:
        node: the function.
        nodes: nodes of its own.
        kernel: expression that is launched.
    """
    names = {argument.arg for argument in (*node.args.posonlyargs, *node.args.args)}
    return kernel.id if isinstance(kernel, ast.Name) and kernel.id in names - nodes.stored else ""
