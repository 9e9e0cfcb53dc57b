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


def _unfixed(links: Links) -> Iterator[Finding]:
    """Yield block sizes of launched kernels that are not compile-time parameters."""
    launched: dict[str, Location] = {}
    doubtful: set[tuple[str, str]] = set()
    for launch in links.launches:
        launched.setdefault(launch.kernel.name, launch.location)
        places = [param.name for param in launch.kernel.functions[0].params if param.kind == "p"]
        # Triton takes 1, and a constant that is wrapped, for known.
        known = {name for name, text in zip(places, launch.call.positional, strict=False) if text in {"1", "..."}}
        doubtful.update((launch.kernel.name, name) for name in known.union(launch.call.constants))
    for name, kernel in links.kernels.items():
        for function in kernel.functions if name in launched and not is_test(kernel.module.path) else ():
            defaults = {param.name for param in function.params if param.default}
            for size in function.sizes:
                if size in defaults or function.opaque:
                    continue
                side = Side("kernel", place(kernel.module, function), rendering.signature(function))
                yield Finding(
                    "SIG107",
                    Level.WARNING if (name, size) in doubtful else Level.ERROR,
                    f"{size} is the size of a block, and no compile-time parameter",
                    side.location,
                    name,
                    (side, Side("call", launched[name], f"launches {function.name}")),
                    f"annotate {size} as tl.constexpr",
                    fingerprint("SIG107", name, size),
                    name,
                    level_if_new=Level.ERROR,
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
    Rule(
        "SIG107",
        "block size that is no compile-time parameter",
        Level.ERROR,
        "A kernel makes a block whose size is a plain parameter. Triton raises ValueError while it compiles: the "
        "bounds of arange and the shapes of blocks must be tl.constexpr. The annotation gets lost when parameters are "
        "moved or merged, and nothing but a launch on a GPU shows it.",
        _unfixed,
    ),
)
