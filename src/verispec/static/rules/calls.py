"""Binding of every launch to each implementation that it may reach: the kernel and its replacements."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial

from verispec.static import rendering
from verispec.static.facts import Call, Function
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
    exchanged,
    misplaced,
)
from verispec.static.linking.launches import Dispatcher, DispatcherCall, Launch, Links, Replacement, place
from verispec.static.linking.versions import is_guarded
from verispec.static.rules._model import Rule


@dataclass(frozen=True, slots=True)
class _Disagreement:
    """A call that does not bind, or binds by position to other parameters than it means."""

    problem: Problem
    symbol: str
    location: Location
    sides: tuple[Side, ...]
    scope: str
    level: Level = Level.ERROR


ORDER = "order differs"
GRID = "grid reads"
_TRANSPOSED = re.compile(r"transpos|permute|[._][tT](?:\(\))?$")


def _disagreements(links: Links) -> list[_Disagreement]:
    return list(_all_disagreements(links))


def _all_disagreements(links: Links) -> Iterator[_Disagreement]:
    for launch in links.launches:
        yield from _launch_and_kernel(links, launch)
    for dispatcher in links.dispatchers.values():
        yield from _dispatcher_and_kernel(dispatcher)
    for called in links.dispatcher_calls:
        function = called.dispatcher.function
        for problem in bind_call(called.call, function):
            sides = (
                Side("call", called.location, rendering.call(called.call)),
                Side("dispatcher", called.dispatcher.location, rendering.signature(function)),
            )
            yield _Disagreement(
                problem, called.dispatcher.name, called.location, sides, called.scope, _level(links, called)
            )
    for replacement in links.replacements:
        if replacement.kernel is not None and replacement.functions and replacement.forwarding:
            yield from _replacement(links, replacement)
    for launch in links.launches:
        yield from _exchanged(links, launch)
        yield from _grid(links, launch)


def _grid(links: Links, launch: Launch) -> Iterator[_Disagreement]:
    """Yield the names that a grid function reads of the launch's arguments, and no definition of the kernel has."""
    functions = launch.kernel.functions
    if not launch.call.meta or any(function.opaque for function in functions):
        return
    if any(param.kind == "**" for function in functions for param in function.params):
        return
    taken = {param.name for function in functions for param in function.params}
    names = tuple(name for name in launch.call.meta if name not in taken and name not in LAUNCH_OPTIONS)
    if names:
        sides = (
            Side("call", launch.location, rendering.call(launch.call)),
            Side("kernel", place(launch.kernel.module, functions[-1]), rendering.signature(functions[-1])),
        )
        problem = Problem(GRID, names)
        yield _Disagreement(problem, launch.kernel.name, launch.location, sides, launch.scope, _level(links, launch))


def _launch_and_kernel(links: Links, launch: Launch) -> Iterator[_Disagreement]:
    results = [(f, _launch_problems(links, launch, f)) for f in launch.kernel.functions]
    if not results or any(not problems for _, problems in results):
        return
    function, problems = min(results, key=lambda result: len(result[1]))
    for problem in problems:
        sides = (
            Side("call", launch.location, rendering.call(launch.call)),
            Side("kernel", place(launch.kernel.module, function), rendering.signature(function)),
        )
        certain = not any(f.opaque for f, _ in results)
        yield _Disagreement(
            problem, launch.kernel.name, launch.location, sides, launch.scope, _level(links, launch, certain)
        )


def _exchanged(links: Links, launch: Launch) -> Iterator[_Disagreement]:
    """Yield two arguments of a launch that are each named like the parameter that receives the other."""
    function = launch.kernel.functions[-1]
    if len(launch.kernel.functions) == 1 and not launch.call.open_positional:
        pairs = list(exchanged(launch.call.positional, function.params))
        if pairs and not _is_transposed(launch.call.positional, pairs):
            sides = (
                Side("call", launch.location, rendering.call(launch.call)),
                Side("kernel", place(launch.kernel.module, function), rendering.signature(function)),
            )
            names = tuple(f"{argument} as {receiver}" for argument, receiver in pairs[:3])
            problem = Problem(ORDER, names)
            yield _Disagreement(
                problem, launch.kernel.name, launch.location, sides, launch.scope, _level(links, launch)
            )


def _is_transposed(passed: Sequence[str], pairs: Sequence[tuple[str, str]]) -> bool:
    """Return True if only sizes named by one letter trade places, and a tensor is named as transposed."""
    sizes = all(len(argument) == 1 for argument, _ in pairs)
    return sizes and any(_TRANSPOSED.search(argument) for argument in passed)


def _open_choices(links: Links) -> set[int]:
    """Return the launches of a dict's values, by identity of the call, that fit a value or one that is not known."""
    kernels: dict[int, list[bool]] = defaultdict(list)
    chosen = [launch for launch in links.launches if launch.call.chosen]
    for launch in chosen:
        kernels[id(launch.call)].append(all(_launch_problems(links, launch, f) for f in launch.kernel.functions))
    return {
        id(launch.call)
        for launch in chosen
        if len(kernels[id(launch.call)]) < len(launch.call.targets) or not all(kernels[id(launch.call)])
    }


def _launch_problems(links: Links, launch: Launch, function: Function) -> list[Problem]:
    found = (
        _without_options(links, p, launch.call, function) for p in bind_call(launch.call, function, LAUNCH_OPTIONS)
    )
    return [problem for problem in found if problem is not None]


def _level(links: Links, launch: Launch | DispatcherCall, certain: bool = True) -> Level:
    """Return the level of a call that does not bind.

    It is a note if its TypeError is caught, a version decides, or it fits another entry of the dict that it uses.
    """
    if is_guarded(launch.module.facts.guards, launch.call.line, links.index.host):
        return Level.NOTE
    if launch.call.chosen and id(launch.call) in links.shared(_open_choices):
        return Level.NOTE
    return Level.ERROR if certain else Level.WARNING


def _without_options(links: Links, problem: Problem, call: Call, function: Function) -> Problem | None:
    """Return `problem` without keywords that may be options of a back end, of which there is no list."""
    if problem.kind != UNEXPECTED:
        return problem
    names = tuple(name for name in problem.names if not _may_be_option(links, name, call, function))
    return Problem(UNEXPECTED, names) if names else None


def _may_be_option(links: Links, name: str, call: Call, function: Function) -> bool:
    """Return True if `name` is used like an option: flags are in capitals, and a near miss is a mistake.

    An option has a literal value or goes to several kernels that do not take it; a name that some kernel takes must
    do both.
    """
    if name.isupper() or get_close_matches(name, [p.name for p in function.params], 1, 0.85):
        return False
    evidence = (name in call.constants, len(links.shared(_foreign_keywords)[name]) > 1)
    return all(evidence) if name in links.shared(_kernel_parameters) else any(evidence)


def _kernel_parameters(links: Links) -> set[str]:
    """Return the parameters of kernels that host code launches: no keyword of a launch reaches their helpers."""
    launched = [*(launch.kernel for launch in links.launches), *(d.kernel for d in links.dispatchers.values())]
    return {p.name for kernel in launched for function in kernel.functions for p in function.params}


def _foreign_keywords(links: Links) -> dict[str, set[str]]:
    """Return the kernels that are launched with a keyword that they do not take, by keyword."""
    users: dict[str, set[str]] = defaultdict(set)
    for launch in links.launches:
        taken = {p.name for function in launch.kernel.functions for p in function.params}
        for keyword in launch.call.keywords:
            if keyword not in taken:
                users[keyword].add(launch.kernel.name)
    return users


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
    function, problems = min(results, key=lambda result: len(result[1]))
    for problem in problems:
        sides = (
            Side("dispatcher", dispatcher.location, _render_dispatcher(dispatcher)),
            Side("kernel", place(dispatcher.kernel.module, function), rendering.signature(function)),
        )
        level = Level.WARNING if any(f.opaque for f, _ in results) else Level.ERROR
        yield _Disagreement(problem, dispatcher.kernel.name, dispatcher.location, sides, dispatcher.name, level)


def _render_dispatcher(dispatcher: Dispatcher) -> str:
    keys = ", ".join(f"{key}=..." for spec in dispatcher.specs[:1] for key in spec.keys)
    return f"{rendering.signature(dispatcher.function)} -> grid, {{{keys}}}"


def _replacement(links: Links, replacement: Replacement) -> Iterator[_Disagreement]:
    kernel, home = replacement.kernel, replacement.function_module
    if kernel is None or home is None:
        return
    for launch in links.launches_of(kernel):
        if replacement.everywhere or launch.slot == replacement.slot:
            function, problems = _fewest(replacement, partial(_forwarded, links, replacement, launch))
            level = _level(links, launch)
            for problem in problems:
                sides = (
                    Side("call", launch.location, rendering.call(launch.call)),
                    _kernel_side(replacement),
                    Side("fallback", place(home, function), rendering.signature(function)),
                )
                yield _Disagreement(problem, kernel.name, launch.location, sides, launch.scope, level)
    for dispatcher in links.dispatchers_of(kernel):
        if replacement.everywhere or replacement.slot in dispatcher.slots:
            function, problems = _fewest(replacement, partial(_dispatched, replacement, dispatcher))
            for problem in problems:
                sides = (
                    Side("dispatcher", dispatcher.location, _render_dispatcher(dispatcher)),
                    _kernel_side(replacement),
                    Side("fallback", place(home, function), rendering.signature(function)),
                )
                yield _Disagreement(problem, kernel.name, dispatcher.location, sides, dispatcher.name)


def _fewest(
    replacement: Replacement, problems_of: Callable[[Function], list[Problem]]
) -> tuple[Function, list[Problem]]:
    """Return the definition that fits best: a module may choose between several."""
    results = [(function, problems_of(function)) for function in replacement.functions]
    return min(results, key=lambda result: len(result[1]))


def _forwarded(links: Links, replacement: Replacement, launch: Launch, function: Function) -> list[Problem]:
    """Return the reason why the arguments of a launch from binding to a replacement."""
    kernel = replacement.kernel
    assert kernel is not None
    found = bind_call(launch.call, function, LAUNCH_OPTIONS if function.jit else frozenset())
    problems = [p for p in found if not function.jit or _without_options(links, p, launch.call, function)]
    if replacement.forwarding == "ordered" and not launch.call.positional:
        problems = []
    passed = [p.name for p in kernel.functions[0].params][: len(launch.call.positional)]
    return problems + _order_problems(passed, function)


def _dispatched(replacement: Replacement, dispatcher: Dispatcher, function: Function) -> list[Problem]:
    """Return the reason why the arguments of a dispatcher from binding to a replacement."""
    kernel = replacement.kernel
    assert kernel is not None
    original = kernel.functions[0]
    if replacement.forwarding == "ordered" and [p.name for p in original.params] != [p.name for p in function.params]:
        return _ordered_problems(dispatcher, original, function)
    return _spec_problems(dispatcher, function, options=bool(function.jit))


def _ordered_problems(dispatcher: Dispatcher, kernel: Function, function: Function) -> list[Problem]:
    """Return the problems of a launch whose arguments are put into the kernel's order and passed by position."""
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
    """Return one problem for all arguments that land on other parameters: one shift misplaces everything after it."""
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
                found.level,
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
    GRID: "the grid of the {caller} reads {names}, which the {target} does not have",
}
_FIXES = {
    UNEXPECTED: "add {names} to the {target} at {place}, with a default, and give it its meaning there",
    MISSING: "pass {names}, or give it a default in the {target} at {place}",
    SURPLUS: "bring the call and the {target} at {place} to the same parameters",
    ORDER: "give the {target} at {place} the kernel's parameter order, or forward by keyword",
    GRID: "read a parameter of the {target} at {place}",
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
    Rule(
        "SIG106",
        "grid reads a name that the kernel does not have",
        Level.ERROR,
        "The function that computes a launch's grid gets the kernel's arguments by name. A name that is no parameter "
        "of the kernel raises KeyError at the first launch. Grids stand apart from their launches and keep the old "
        "name when a block size of the kernel is renamed, or one grid function serves several kernels.",
        _check(GRID, "SIG106"),
    ),
)
