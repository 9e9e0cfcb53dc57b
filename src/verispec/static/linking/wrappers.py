"""Launches through functions that hand their arguments on: each call of such a function is a launch of the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from verispec.static.facts import Call, Forward, Function
from verispec.static.linking.index import Index, Module


class Wrapper(NamedTuple):
    """A function that forwards to a launch."""

    module: Module
    function: Function
    forward: Forward


def wrappers(index: Index) -> dict[str, Wrapper]:
    """Return the wrappers of all modules of `index` by dotted name; only functions that are defined once."""
    found: dict[str, Wrapper] = {}
    for module in index.modules.values():
        for forward in module.facts.forwards:
            functions = module.functions.get(forward.function, [])
            name = f"{module.name}.{forward.function}"
            if len(functions) == 1 and name not in found:
                found[name] = Wrapper(module, functions[0], forward)
    return found


def wrapped_calls(index: Index) -> Iterator[tuple[Module, Call, Module, str]]:
    """Yield each call of a wrapper in `index` as a launch: its module, the launch, and the reference of the kernel.

    The reference is one of the module before it: that of the wrapper, or that of the call where a kernel is passed.
    """
    known = wrappers(index)
    names = {name.rpartition(".")[2] for name in known}
    for module in index.modules.values() if known else ():
        for call in module.facts.calls:
            if call.grid or len(call.targets) != 1 or call.targets[0].rpartition(".")[2].lstrip("$@") not in names:
                continue
            entities = index.resolve(module, call.targets[0])
            wrapper = known.get(entities[0].dotted) if len(entities) == 1 else None
            if wrapper is None:
                continue
            if not wrapper.forward.kernel:
                yield module, _launch(call, wrapper), wrapper.module, wrapper.forward.call.targets[0]
                continue
            places = [param.name for param in wrapper.function.params if param.kind == "p"]
            place = places.index(wrapper.forward.kernel)
            if place < len(call.passed) and call.passed[place]:
                yield module, _launch(call, wrapper), module, call.passed[place]


def _launch(call: Call, wrapper: Wrapper) -> Call:
    """Return the launch that a call of a wrapper leads to."""
    own, params = wrapper.forward.call, wrapper.function.params
    taken = {param.name for param in params if param.kind in "pk"}
    # With *args, positional arguments fill the named parameters first.
    places = sum(param.kind == "p" for param in params)
    return own._replace(
        scope=call.scope,
        line=call.line,
        end_line=call.end_line,
        positional=(*own.positional, *call.positional[places:]),
        keywords=(*own.keywords, *(keyword for keyword in call.keywords if keyword not in taken)),
        open_positional=call.open_positional,
        open_keywords=call.open_keywords,
        constants=(*own.constants, *call.constants),
    )
