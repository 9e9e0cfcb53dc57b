"""Comparison of op schemas with the C++ functions behind them and with their Python callers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from verispec.static import rendering
from verispec.static.facts import CPP, Conversion, CppFunction, SchemaArg
from verispec.static.finding import Finding, Level, Location, Side, fingerprint
from verispec.static.linking.binding import bind_call
from verispec.static.linking.index import absolute
from verispec.static.linking.launches import Links
from verispec.static.linking.ops import (
    Op,
    Ops,
    TorchOpCall,
    agrees,
    as_function,
    built_elsewhere,
    calls,
    collect,
    implements,
)  # fmt: skip
from verispec.static.rules._model import Rule

_TRACING: Final = frozenset({b"symbolic_trace", b"replace_pattern"})
"""Functions of torch.fx that trace a function with placeholders for its arguments."""


def _ops(links: Links) -> Ops:
    return collect(links.index)


def _render(function: CppFunction) -> str:
    return f"{function.name}({', '.join(f'{kind} {name}'.strip() for kind, name in function.params)})"


def _schema_and_function(links: Links) -> Iterator[Finding]:
    for ops in links.shared(_ops).by_name.values():
        for op in ops:
            if not op.known or not op.functions:
                continue
            declared = any(implements(op.schema, function) for _, function in op.functions)
            # The definition counts even where a declaration agrees: a header cannot be linked.
            judged = [(path, f) for path, f in op.functions if f.has_body] if declared else list(op.functions)
            if not judged or any(implements(op.schema, function) for _, function in judged):
                continue
            path, function = judged[0]
            what = "definition of the C++ function" if declared else "C++ function"
            sides = (
                Side("schema", op.location, rendering.schema(op.schema)),
                Side(what, Location(path, function.line), _render(function)),
            )
            level = Level.ERROR if all(len(f.params) != len(op.schema.args) for _, f in judged) else Level.WARNING
            yield Finding(
                "SIG301",
                # The right definition may be in a part that is not in the tree.
                Level.WARNING if declared else level,
                f"the schema and the {what} that it binds have other parameters",
                op.location,
                op.schema.name,
                sides,
                "bring the schema and the function to the same parameters",
                fingerprint("SIG301", op.schema.name, rendering.schema(op.schema), _render(function)),
                level_if_new=level,
            )


def _schema_and_each_function(links: Links) -> Iterator[Finding]:
    """Yield the functions that are bound to an op beside one that agrees: for another device, or for shapes alone."""
    definitions: dict[str, list[tuple[str, CppFunction]]] = defaultdict(list)
    for path, facts in links.index.cpp.items():
        for function in facts.functions:
            definitions[function.name].append((path, function))
    for path, facts in links.index.cpp.items():
        for impl in facts.impls:
            # An op of the same name in another library may be meant.
            ops = links.shared(_ops).by_name.get(impl.name, [])
            functions = definitions[impl.function]
            pairs = [(op, where, function) for op in ops for where, function in functions]
            if not pairs or any(not op.known or implements(op.schema, function) for op, _, function in pairs):
                continue
            if any(not any(implements(op.schema, function) for _, function in op.functions) for op in ops):
                continue
            if any(_is_left_over(path, op) for op in ops):
                continue
            op, where, function = pairs[0]
            sides = (
                Side("binding", Location(path, impl.line), f'impl("{impl.name}", {impl.function})'),
                Side("schema", op.location, rendering.schema(op.schema)),
                Side("C++ function", Location(where, function.line), _render(function)),
            )
            yield Finding(
                "SIG301",
                Level.ERROR if all(len(f.params) != len(o.schema.args) for o, _, f in pairs) else Level.WARNING,
                f"the schema and {impl.function}, one of the C++ functions bound to it, have other parameters",
                Location(path, impl.line),
                impl.name,
                sides,
                "bring the schema and the function to the same parameters",
                fingerprint("SIG301", impl.name, rendering.schema(op.schema), _render(function)),
            )


def _is_left_over(path: str, op: Op) -> bool:
    """Return True if the C++ file `path` is not built with `op`.

    It defines a function of the op otherwise than the schema, and another file defines that function as the schema has
    it. One library cannot hold both.
    """
    own: dict[str, list[bool]] = defaultdict(list)
    others: dict[str, list[bool]] = defaultdict(list)
    for where, function in op.functions:
        if function.has_body:
            (own if where == path else others)[function.name].append(implements(op.schema, function))
    return any(not any(fits) and any(others[name]) for name, fits in own.items())


def _call_and_schema(links: Links) -> Iterator[Finding]:
    for call in calls(links.index, links.shared(_ops)):
        results = [(op, bind_call(call.call, as_function(op.schema))) for op in call.ops]
        if any(not problems or not op.known for op, problems in results):
            continue
        op, problems = results[0]
        in_cpp = all(op.path.endswith(CPP) for op, _ in results)
        quiet = (in_cpp and built_elsewhere(links.index, call.module, call.call.line)) or _has_stand_in(links, call)
        level = Level.NOTE if quiet else Level.ERROR
        # A plugin that puts an op of its own in the host's place may never run the host's callers.
        latent = level is Level.ERROR and call.module.core and not all(op.core for op in call.ops)
        # Symbolic tracing records a call and binds nothing; a later pass may turn it into another.
        latent |= level is Level.ERROR and _is_recorded(links, call)
        for problem in problems:
            sides = (
                Side("call", call.location, rendering.call(call.call)),
                Side("schema", op.location, rendering.schema(op.schema)),
            )
            yield Finding(
                "SIG302",
                Level.WARNING if latent else level,
                f"the call does not bind to the op's schema: {problem}",
                call.location,
                op.schema.name,
                sides,
                "bring the call and the schema to the same parameters",
                fingerprint("SIG302", op.schema.name, call.scope, str(problem)),
                call.scope,
                f"{op.location} {', '.join(problem.names)}",
                level_if_new=level,
            )


def _is_recorded(links: Links, call: TorchOpCall) -> bool:
    """Return True if a call is in a pattern or its replacement that torch.fx traces symbolically."""
    if call.call.scope.rpartition(".")[2] not in {"pattern", "replacement"}:
        return False
    index = links.index
    targets = (index.split(absolute(call.module, found.target))[0] for found in call.module.facts.imports)
    modules = [call.module, *(target for target in targets if target is not None)]
    return any(not _TRACING.isdisjoint(module.outline.words.split()) for module in modules)


def _has_stand_in(links: Links, call: TorchOpCall) -> bool:
    """Return True if a host's function makes `call`, and the plugin has one of that name that calls the op as it is."""
    if not call.module.core or all(op.core for op in call.ops):
        return False
    return any(
        not other.module.core
        and other.call.scope.rpartition(".")[2] == call.call.scope.rpartition(".")[2]
        and any(not bind_call(other.call, as_function(op.schema)) for op in other.ops if op in call.ops)
        for other in links.shared(_op_calls).get(call.ops[0].schema.name, ())
    )


def _op_calls(links: Links) -> dict[str, list[TorchOpCall]]:
    found: dict[str, list[TorchOpCall]] = defaultdict(list)
    for call in calls(links.index, links.shared(_ops)):
        found[call.ops[0].schema.name].append(call)
    return found


def _unmarked(links: Links) -> Iterator[Finding]:
    for ops in links.shared(_ops).by_name.values():
        for op in ops:
            yield from _unmarked_of(op)


def _unmarked_of(op: Op) -> Iterator[Finding]:
    bodies = [(path, f) for path, f in op.functions if f.has_body and agrees(op.schema, f)]
    for number, argument in enumerate(op.schema.args):
        if argument.mutable or not argument.type.startswith("Tensor"):
            continue
        writers = [(path, f) for path, f in bodies if f.params[number][1] in f.writes]
        if not writers:
            continue
        path, function = writers[0]
        sides = (
            Side("schema", op.location, rendering.schema(op.schema)),
            Side("C++ function", Location(path, function.line), f"writes {function.params[number][1]}"),
        )
        yield Finding(
            "SIG303",
            Level.WARNING,
            f"{argument.name} is written, but the schema does not mark it mutable",
            op.location,
            op.schema.name,
            sides,
            f"write Tensor! {argument.name} in the schema",
            fingerprint("SIG303", op.schema.name, argument.name),
        )


def _argument(op: Op, conversion: Conversion) -> Sequence[SchemaArg]:
    """Return the argument of an op that gets a converted tensor; ``**more`` is none."""
    if conversion.position < 0:
        return [argument for argument in op.schema.args if argument.name == conversion.keyword]
    return op.schema.args[conversion.position : conversion.position + 1]


def _lost_write(links: Links) -> Iterator[Finding]:
    index = links.index
    ops = links.shared(_ops)
    for module in index.modules.values():
        for conversion in module.facts.conversions:
            found = ops.called(conversion.sink)
            args = [argument for op in found for argument in _argument(op, conversion)]
            if not args or not all(argument.mutable for argument in args):
                continue
            via = conversion.via
            if via.startswith("."):
                sure = conversion.dtype
            else:
                functions = [e.function for e in index.resolve(module, via) if e.function is not None]
                if not functions or not all(function.converts for function in functions):
                    continue
                sure = True
            op = found[0]
            here = Location(module.path, conversion.line)
            text = f"{conversion.param}{via}(...)" if via.startswith(".") else f"{via.lstrip('$')}({conversion.param})"
            sides = (
                Side("conversion", here, f"{text} in {conversion.function}"),
                Side("schema", op.location, rendering.schema(op.schema)),
            )
            yield Finding(
                "SIG401",
                Level.ERROR if sure else Level.WARNING,
                f"{op.schema.name} writes into a converted copy of {conversion.param}, which is never copied back",
                here,
                f"{module.name}.{conversion.function}",
                sides,
                f"keep the converted tensor, and {conversion.param}.copy_() it after the call",
                fingerprint("SIG401", f"{module.name}.{conversion.function}", conversion.param, op.schema.name),
            )


RULES = (
    Rule(
        "SIG301",
        "schema and C++ function disagree",
        Level.ERROR,
        "An op's schema lists other parameters than the C++ function that it binds. Libraries that box the call do "
        "not notice at build time; the op fails when it is loaded or first called. Ops that are defined once for a "
        "GPU and once for a CPU, under the same name in different files, drift apart in this way. If a header agrees "
        "and no definition does, the library lacks a symbol when it is loaded; that is an error if a change brings it.",
        lambda links: chain(_schema_and_function(links), _schema_and_each_function(links)),
    ),
    Rule(
        "SIG302",
        "call and schema disagree",
        Level.ERROR,
        "A Python call of torch.ops does not bind to any schema of that op in the tree, so it raises when reached. "
        "Callers in rarely built back ends keep the old list when an op gains a parameter. A host's call of an op that "
        "a plugin registers anew is a warning unless a change brings it, since the plugin may never run the caller.",
        _call_and_schema,
    ),
    Rule(
        "SIG303",
        "tensor written but not marked mutable",
        Level.WARNING,
        "A C++ function writes into a tensor that its schema does not mark with an exclamation mark. Eager mode "
        "works; torch.compile may reorder, drop or functionalize the call and the write is lost. vLLM's bindings "
        "leave the mark out on purpose for scratch workspaces and say so; anything else is an accident.",
        _unmarked,
    ),
    Rule(
        "SIG401",
        "lost write",
        Level.ERROR,
        "An output is converted to another dtype for an op that writes into it, and the result is never copied back: "
        "the caller's buffer keeps whatever was there. vLLM's CPU fallback of expand_kernel converts its output to "
        "int64 in this way from 0.20.0 on, so temperature, top-k and top-p of speculative requests were uninitialised "
        "memory.",
        _lost_write,
    ),
)
