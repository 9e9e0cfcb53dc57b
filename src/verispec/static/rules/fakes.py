"""Comparison of the parameters of ops with those of their fake implementations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verispec.static import rendering
from verispec.static.facts import Function, Param
from verispec.static.finding import Finding, Level, Side, fingerprint
from verispec.static.linking.binding import bind
from verispec.static.linking.launches import Links, place
from verispec.static.linking.ops import Op, Ops, as_function, collect
from verispec.static.linking.python_ops import Definition, Registered, registered
from verispec.static.rules._model import Rule
from verispec.static.tree import is_test


def _ops(links: Links) -> Ops:
    return collect(links.index)


def _registered(links: Links) -> list[Registered]:
    return [entry for entry in registered(links.index) if not is_test(entry.module.path)]


def _fakes(links: Links) -> Iterator[Finding]:
    for entry in links.shared(_registered):
        if not entry.fakes:
            continue
        if entry.functions:
            originals = [(function, _side("op", (module, function))) for module, function in entry.functions]
        else:
            originals = [
                (as_function(op.schema), Side("schema", op.location, rendering.schema(op.schema)))
                for op in _of_name(links.shared(_ops), entry.op.name)
            ]
        results = [(_problems(original, fake), side, fake) for original, side in originals for _, fake in entry.fakes]
        if not results or any(not problems for problems, *_ in results):
            continue
        problems, side, fake = min(results, key=lambda result: len(result[0]))
        module = entry.fakes[0][0]
        yield Finding(
            "SIG304",
            # A shipped one may never be traced.
            Level.WARNING,
            f"the fake implementation of {entry.name} does not take what the op takes: {problems}",
            place(module, fake),
            entry.name,
            (_side("fake", (module, fake)), side),
            f"give {fake.name} the parameters of {entry.name}",
            fingerprint("SIG304", entry.name, module.name, problems),
            f"{module.name}.{fake.name}",
            level_if_new=Level.ERROR,
        )


def _of_name(ops: Ops, name: str) -> tuple[Op, ...]:
    """Return the ops called ``ns::name``; nothing if one of them could not be read."""
    namespace, _, last = name.partition(".")[0].rpartition("::")
    found = ops.called(f"torch.ops.{namespace}.{last}")
    return found if all(op.known for op in found) else ()


def _problems(original: Function, fake: Function) -> str:
    """Return the reasons why the arguments of an op do not bind to its fake, "" if they do.

    PyTorch passes arguments by position in the schema's order, and keyword-only ones by name.
    """
    places = [p for p in original.params if p.kind == "p"]
    keywords = [p for p in original.params if p.kind == "k"]
    if any("*" in p.kind for p in original.params):
        return ""
    found = bind(fake.params, len(places), [p.name for p in keywords])
    if found:
        return ", ".join(map(str, found))
    order = _order([p.name for p in places], fake.params)
    return f"{order[0]} receives {order[1]}" if order else ""


def _order(places: Sequence[str], params: Sequence[Param]) -> tuple[str, str] | None:
    """Return a parameter of a fake and the argument that it receives, if both list the same names differently."""
    names = [param.name for param in params if param.kind == "p"]
    if sorted(names) != sorted(places):
        return None
    return next(((name, place) for name, place in zip(names, places, strict=True) if name != place), None)


def _side(label: str, definition: Definition) -> Side:
    module, function = definition
    return Side(label, place(module, function), rendering.signature(function))


def _mutated(links: Links) -> Iterator[Finding]:
    """Yield ``mutates_args`` that name no parameter: registering the op raises."""
    for entry in links.shared(_registered):
        for name in entry.op.mutates if entry.functions else ():
            if any(name in {p.name for p in f.params} or f.decorators[1:] for _, f in entry.functions):
                continue
            yield Finding(
                "SIG305",
                # A shipped one shows that this registration does not look.
                Level.WARNING,
                f"mutates_args names {name}, which {entry.name} does not take",
                entry.location,
                entry.name,
                (Side("registration", entry.location, f"mutates_args: {name}"), _side("op", entry.functions[0])),
                f"name a parameter of {entry.functions[0][1].name}",
                fingerprint("SIG305", entry.name, entry.module.name, name),
                level_if_new=Level.ERROR,
            )


RULES = (
    Rule(
        "SIG304",
        "fake implementation does not fit its op",
        Level.ERROR,
        "The fake implementation of an op, by which torch.compile learns its shapes, takes other parameters than the "
        "op. Eager mode never calls it, so that only compiled serving fails, while it traces. Fakes stand beside the "
        "op or in a file of their own, and stay behind when the op gains a parameter. It is an error if a change "
        "brings it. vLLM's fake of moe_wna16_marlin_gemm lacks three arguments, and nobody traces that op.",
        _fakes,
    ),
    Rule(
        "SIG305",
        "mutates_args names no parameter",
        Level.ERROR,
        "An op is registered with mutates_args that name a parameter which its function does not have, as after a "
        "rename. Registration by PyTorch raises ValueError, so the module cannot be imported. It is an error if a "
        "change brings it. flashinfer ships two, since its own decorator ignores the names.",
        _mutated,
    ),
)
