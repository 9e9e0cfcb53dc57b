"""Does every launch bind to every implementation that it may reach: the kernel itself and whatever replaces it?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from verispec.static import rendering
from verispec.static.facts import Function
from verispec.static.finding import Finding, Level, Location, Side, fingerprint
from verispec.static.linking.binding import (
    LAUNCH_OPTIONS,
    MISSING,
    SURPLUS,
    UNEXPECTED,
    Problem,
    bind,
    bind_call,
    dispatched,
    misplaced,
)
from verispec.static.linking.launches import Dispatcher, Launch, Links, Replacement, place
from verispec.static.rules._model import Rule


@dataclass(frozen=True, slots=True)
class _Disagreement:
    """A call that does not bind, or binds by position to other parameters than it means."""

    problem: Problem
    symbol: str
    location: Location
    sides: tuple[Side, ...]
    scope: str
    certain: bool = True


ORDER = "order differs"


def _disagreements(links: Links) -> list[_Disagreement]:
    return list(_all_disagreements(links))


def _all_disagreements(links: Links) -> Iterator[_Disagreement]:
    for launch in links.launches:
        yield from _launch_and_kernel(launch)
    for dispatcher in links.dispatchers.values():
        yield from _dispatcher_and_kernel(dispatcher)
    for called in links.dispatcher_calls:
        function = called.dispatcher.function
        for problem in bind_call(called.call, function):
            sides = (
                Side("call", called.location, rendering.call(called.call)),
                Side("dispatcher", called.dispatcher.location, rendering.signature(function)),
            )
            yield _Disagreement(problem, called.dispatcher.name, called.location, sides, called.scope)
    for replacement in links.replacements:
        if replacement.kernel is not None and replacement.function is not None and replacement.forwarding:
            yield from _replacement(links, replacement)


def _launch_and_kernel(launch: Launch) -> Iterator[_Disagreement]:
    results = [(f, bind_call(launch.call, f, LAUNCH_OPTIONS)) for f in launch.kernel.functions]
    if any(not problems for _, problems in results) or (len(launch.call.targets) > 1 and not results):
        return
    function, problems = results[0]
    for problem in problems:
        sides = (
            Side("call", launch.location, rendering.call(launch.call)),
            Side("kernel", place(launch.kernel.module, function), rendering.signature(function)),
        )
        certain = not function.opaque and len(results) == 1 and len(launch.call.targets) == 1
        # A back end may take options that nobody else knows; they are spelled like options, not like flags.
        certain = certain and (problem.kind != UNEXPECTED or any(name != name.lower() for name in problem.names))
        yield _Disagreement(problem, launch.kernel.name, launch.location, sides, launch.scope, certain)


def _spec_problems(dispatcher: Dispatcher, function: Function, *, options: bool) -> list[Problem]:
    inputs = [p.name for p in dispatcher.function.params]
    problems: list[Problem] = []
    for spec in dispatcher.specs:
        names = [n for n in dispatched(inputs, function.params, spec) if not n.startswith("_")]
        allowed = LAUNCH_OPTIONS if options else ()
        found = bind(function.params, 0, names, open_keywords=spec.open, given=function.given, options=allowed)
        # A framework that binds its inputs in another way would leave most arguments out.
        problems += [p for p in found if p.kind != MISSING or len(p.names) * 2 < len(names)]
    return problems


def _dispatcher_and_kernel(dispatcher: Dispatcher) -> Iterator[_Disagreement]:
    results = [(f, _spec_problems(dispatcher, f, options=True)) for f in dispatcher.kernel.functions]
    if any(not problems for _, problems in results):
        return
    function, problems = results[0]
    for problem in problems:
        sides = (
            Side("dispatcher", dispatcher.location, _render_dispatcher(dispatcher)),
            Side("kernel", place(dispatcher.kernel.module, function), rendering.signature(function)),
        )
        certain = not function.opaque and len(results) == 1
        yield _Disagreement(problem, dispatcher.kernel.name, dispatcher.location, sides, dispatcher.name, certain)


def _render_dispatcher(dispatcher: Dispatcher) -> str:
    keys = ", ".join(f"{key}=..." for spec in dispatcher.specs[:1] for key in spec.keys)
    return f"{rendering.signature(dispatcher.function)} -> grid, {{{keys}}}"


def _replacement(links: Links, replacement: Replacement) -> Iterator[_Disagreement]:
    kernel, function, home = replacement.kernel, replacement.function, replacement.function_module
    if kernel is None or function is None or home is None:
        return
    target = Side("fallback", place(home, function), rendering.signature(function))
    options = LAUNCH_OPTIONS if function.jit else frozenset()
    original = kernel.functions[0]
    for launch in links.launches_of(kernel):
        if not replacement.everywhere and launch.slot != replacement.slot:
            continue
        sides = (Side("call", launch.location, rendering.call(launch.call)), _kernel_side(replacement), target)
        problems = bind_call(launch.call, function, options)
        if problems and replacement.forwarding == "ordered" and not launch.call.positional:
            problems = []
        for problem in problems:
            yield _Disagreement(
                problem, kernel.name, launch.location, sides, launch.scope, len(launch.call.targets) == 1
            )
        passed = [p.name for p in original.params][: len(launch.call.positional)]
        for problem in _order_problems(passed, function):
            yield _Disagreement(problem, kernel.name, launch.location, sides, launch.scope)
    for dispatcher in links.dispatchers_of(kernel):
        if not replacement.everywhere and replacement.slot not in dispatcher.slots:
            continue
        sides = (
            Side("dispatcher", dispatcher.location, _render_dispatcher(dispatcher)),
            _kernel_side(replacement),
            target,
        )
        if replacement.forwarding == "ordered" and [p.name for p in original.params] != [
            p.name for p in function.params
        ]:
            problems = _ordered_problems(dispatcher, original, function)
        else:
            problems = _spec_problems(dispatcher, function, options=bool(function.jit))
        for problem in problems:
            yield _Disagreement(problem, kernel.name, dispatcher.location, sides, dispatcher.name)


def _ordered_problems(dispatcher: Dispatcher, kernel: Function, function: Function) -> list[Problem]:
    """The launch's arguments are put into the kernel's order and passed by position."""
    inputs = [p.name for p in dispatcher.function.params]
    problems: list[Problem] = []
    for spec in dispatcher.specs:
        names = [p.name for p in kernel.params]
        passed = [n for n in dispatched(inputs, kernel.params, spec) if n in names]
        extra = [k for k in spec.keys if k not in names and not k.startswith("_") and k != "kernel"]
        if extra:
            problems.append(Problem(UNEXPECTED, tuple(extra)))
        if not spec.open:
            problems += bind(function.params, len(passed), ())
            problems += _order_problems(passed, function)
    return problems


def _order_problems(passed: list[str], function: Function) -> list[Problem]:
    """One problem for all arguments that land on other parameters: one shift misplaces everything after it."""
    pairs = list(misplaced(passed, function.params))
    return [Problem(ORDER, tuple(f"{argument} as {receiver}" for argument, receiver in pairs[:3]))] if pairs else []


def _kernel_side(replacement: Replacement) -> Side:
    kernel = replacement.kernel
    assert kernel is not None
    return Side("kernel", kernel.location, rendering.signature(kernel.functions[0]))


def _check(kind: str, rule: str) -> Callable[[Links], Iterator[Finding]]:
    def check(links: Links) -> Iterator[Finding]:
        for found in links.shared(_disagreements):
            if found.problem.kind != kind:
                continue
            target = found.sides[-1]
            names = ", ".join(found.problem.names)
            yield Finding(
                rule,
                Level.ERROR if found.certain else Level.WARNING,
                _MESSAGES[kind].format(caller=found.sides[0].label, names=names, target=target.label),
                found.location,
                found.symbol,
                found.sides,
                _FIXES[kind].format(names=names, target=target.label, place=target.location),
                fingerprint(rule, found.symbol, found.scope, target.label, target.text.partition("(")[0], kind, names),
                found.scope,
                f"{target.location} {names}",
            )

    return check


_MESSAGES = {
    UNEXPECTED: "the {caller} passes {names}, which the {target} does not take",
    MISSING: "the {caller} does not pass {names}, which the {target} requires",
    SURPLUS: "the {caller} passes more positional arguments than the {target} takes ({names})",
    ORDER: "the {caller} passes by position, and the {target} receives {names}",
}
_FIXES = {
    UNEXPECTED: "add {names} to the {target} at {place}, with a default, and give it its meaning there",
    MISSING: "pass {names}, or give it a default in the {target} at {place}",
    SURPLUS: "bring the call and the {target} at {place} to the same parameters",
    ORDER: "give the {target} at {place} the kernel's parameter order, or forward by keyword",
}

RULES = (
    Rule(
        "SIG101",
        "unexpected keyword",
        Level.ERROR,
        "A launch passes a keyword that an implementation it can reach does not take, so the call raises TypeError "
        "the first time it runs there. In vLLM 0.20.0 the rejection kernels and their callers gained uniform_probs, "
        "synthetic_conditional_rates and SYNTHETIC_MODE; the CPU fallbacks did not, and every speculative request on "
        "a CPU died until 0.21.0. USE_FP64_GUMBEL repeated it in 0.23.0.",
        _check(UNEXPECTED, "SIG101"),
    ),
    Rule(
        "SIG102",
        "missing required argument",
        Level.ERROR,
        "A launch leaves out an argument that an implementation requires. Kernels lose and gain parameters in the "
        "same change as their callers, but fallbacks, plugins and tests in other files keep the old list and fail "
        "when they are reached, as the vLLM plugins do after every release that touches a shared kernel.",
        _check(MISSING, "SIG102"),
    ),
    Rule(
        "SIG103",
        "too many positional arguments",
        Level.ERROR,
        "A launch passes more positional arguments than an implementation has places for. A fallback that lacks the "
        "newest trailing parameter of its kernel (stride or block size) fails in this way where the launch passes all "
        "by position, as vLLM's eagle kernels are launched.",
        _check(SURPLUS, "SIG103"),
    ),
    Rule(
        "SIG104",
        "order differs where forwarding is positional",
        Level.ERROR,
        "Arguments are forwarded by position, and an implementation lists the same parameters in another order: "
        "binding succeeds and the values trade places. vLLM's kernel registry forwards by keyword only when all "
        "parameter names agree, otherwise in the kernel's order. In 0.32.0 the slot-mapping kernel had lost block_size "
        "and its CPU fallback had not, so the fallback took the slot mapping for the block size.",
        _check(ORDER, "SIG104"),
    ),
)
