"""Calls and signatures as people read them, short enough for one line of a table."""

from __future__ import annotations

from collections.abc import Iterable

from verispec.static.facts import Call, Function, Param, Schema


def signature(function: Function) -> str:
    """Return ``name(a, b=1, *, c)`` for `function`."""
    return f"{function.name.rpartition('.')[2]}({', '.join(_params(function.params))})"


def _params(params: Iterable[Param]) -> Iterable[str]:
    starred = False
    for param in params:
        if param.kind == "k" and not starred:
            starred = True
            yield "*"
        starred = starred or param.kind == "*"
        text = f"{param.kind if '*' in param.kind else ''}{param.name}"
        yield f"{text}={param.default}" if param.default else text


def call(what: Call) -> str:
    """Return ``kernel[grid](a, b, c=...)`` for the call `what`."""
    arguments = [*what.positional, *(["*..."] if what.open_positional else [])]
    arguments += [f"{name}=..." for name in what.keywords] + (["**..."] if what.open_keywords else [])
    target = " or ".join(dict.fromkeys(t.lstrip("$@.") for t in what.targets))
    return f"{target}{'[grid]' if what.grid else ''}({', '.join(arguments)})"


def schema(what: Schema) -> str:
    """Return ``name(Tensor! a, int b) -> ()`` for the schema `what`."""
    args = (f"{arg.type}{'!' if arg.mutable else ''} {arg.name}".lstrip() for arg in what.args)
    return f"{what.name}({', '.join(args)})" + (f" -> {what.returns}" if what.returns else "")
