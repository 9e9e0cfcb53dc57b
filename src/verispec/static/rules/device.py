"""Binding of the calls between kernels."""

from __future__ import annotations

from collections.abc import Iterator

from verispec.static import rendering
from verispec.static.finding import Finding, Level, Location, Side, fingerprint
from verispec.static.linking.binding import bind_call
from verispec.static.linking.index import Entity
from verispec.static.linking.launches import Kernel, Links, place
from verispec.static.rules._model import Rule
from verispec.static.tree import is_test


def _device(links: Links) -> Iterator[Finding]:
    for module in links.index.modules.values():
        for call in () if is_test(module.path) else module.facts.device_calls:
            kernel = _called(links, [links.index.resolve(module, target) for target in call.targets])
            if kernel is None or any(f.opaque or f.given != () or "." in f.name for f in kernel.functions):
                continue
            results = [(bind_call(call, function), function) for function in kernel.functions]
            problems, function = min(results, key=lambda result: len(result[0]))
            scope = f"{module.name}.{call.scope}".rstrip(".")
            here = Location(module.path, call.line, end_line=call.end_line)
            sides = (
                Side("call", here, rendering.call(call)),
                Side("kernel", place(kernel.module, function), rendering.signature(function)),
            )
            for problem in problems:
                yield Finding(
                    "SIG105",
                    Level.ERROR,
                    f"the call in a kernel does not bind: {problem}",
                    here,
                    kernel.name,
                    sides,
                    "bring the call and the called kernel to the same parameters",
                    fingerprint("SIG105", kernel.name, scope, str(problem)),
                    scope,
                    f"{sides[1].location} {', '.join(problem.names)}",
                )


def _called(links: Links, found: list[tuple[Entity, ...]]) -> Kernel | None:
    """Return the one kernel that a call reaches."""
    names = {entity.dotted for entities in found for entity in entities}
    return links.kernels.get(names.pop()) if len(names) == 1 and all(found) else None


RULES = (
    Rule(
        "SIG105",
        "call in a kernel does not bind",
        Level.ERROR,
        "A kernel calls another jit function with arguments that it does not take, or without one that it requires. "
        "Triton notices while it compiles, on the first launch of that variant, and never on a machine without a GPU. "
        "Helpers are shared by kernels in several files, and gain parameters for one of them.",
        _device,
    ),
)
