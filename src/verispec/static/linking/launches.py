"""Kernels, everything that launches them, and everything that is put in their place, linked over a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from verispec.static.facts import Binding, Call, Function, LaunchSpec, Override
from verispec.static.finding import Location
from verispec.static.linking.index import Entity, Index, Module
from verispec.static.linking.wrappers import wrapped_calls

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: one name, and every definition of it (a module may choose between several)."""

    name: str
    module: Module
    functions: tuple[Function, ...]

    @property
    def location(self) -> Location:
        """Place of the kernel's first definition."""
        return place(self.module, self.functions[0])


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """A launcher that holds a kernel, and binds its own inputs to kernel arguments by name.

    It adds the keywords of its launch specification. `slots` are the places where the kernel can be replaced.
    """

    name: str
    module: Module
    function: Function
    kernel: Kernel
    slots: tuple[str, ...]
    specs: tuple[LaunchSpec, ...]

    @property
    def location(self) -> Location:
        """Place of the dispatcher's function."""
        return place(self.module, self.function)


@dataclass(frozen=True, slots=True)
class PlacedCall:
    """A call and the module that contains it."""

    module: Module
    call: Call

    @property
    def location(self) -> Location:
        """Place of the call."""
        return Location(self.module.path, self.call.line, end_line=self.call.end_line)

    @property
    def scope(self) -> str:
        """The dotted name of the function that contains the call, or of the module."""
        return f"{self.module.name}.{self.call.scope}".rstrip(".")


@dataclass(frozen=True, slots=True)
class Launch(PlacedCall):
    """``kernel[grid](...)``; `slot` is the place from which the kernel is read at that moment."""

    kernel: Kernel
    slot: str


@dataclass(frozen=True, slots=True)
class DispatcherCall(PlacedCall):
    """A call of a dispatcher from host code."""

    dispatcher: Dispatcher


@dataclass(frozen=True, slots=True)
class Replacement:
    """An override: one of `functions` is called instead of the original, `function` being the last of them.

    `forwarding` is ``direct`` (the launch's own arguments), ``ordered`` (by position in the kernel's order unless
    all names agree) or empty (not understood). `everywhere` says that the registry rebinds every holder, `demands`
    what it raises for if it is not there (see `facts.PythonFacts`).
    """

    module: Module
    override: Override
    slot: str
    kernel: Kernel | None
    function: Function | None
    function_module: Module | None
    forwarding: str
    everywhere: bool
    functions: tuple[Function, ...] = ()
    demands: frozenset[str] = frozenset()

    @property
    def location(self) -> Location:
        """Place of the override."""
        return Location(self.module.path, self.override.line)


@dataclass
class Links:
    """Everything that the rules read. `call_paths` are the files whose plain calls are compared with replacements."""

    index: Index
    kernels: dict[str, Kernel] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    dispatchers: dict[str, Dispatcher] = field(default_factory=dict)
    dispatcher_calls: list[DispatcherCall] = field(default_factory=list)
    replacements: list[Replacement] = field(default_factory=list)
    call_paths: set[str] = field(default_factory=set)

    _shared: dict[Callable[[Links], Any], Any] = field(default_factory=dict)

    def shared(self, make: Callable[[Links], _Made]) -> _Made:
        """Return the result of `make` for these links, computed once for all rules."""
        if make not in self._shared:
            self._shared[make] = make(self)
        made: _Made = self._shared[make]
        return made

    def launches_of(self, kernel: Kernel) -> Iterator[Launch]:
        """Return the launches of `kernel`."""
        return (launch for launch in self.launches if launch.kernel is kernel)

    def dispatchers_of(self, kernel: Kernel) -> Iterator[Dispatcher]:
        """Return the dispatchers of `kernel`."""
        return (dispatcher for dispatcher in self.dispatchers.values() if dispatcher.kernel is kernel)


def place(module: Module, function: Function) -> Location:
    """Return the place of `function` in the file of `module`."""
    return Location(module.path, function.line, end_line=function.end_line)


def link(index: Index) -> Links:
    """Join the launches, dispatchers and overrides of `index` to the kernels that they are about."""
    links = Links(index)
    for module in index.modules.values():
        for name, functions in module.functions.items():
            jit = tuple(_as_bound(module, function) for function in functions if function.jit)
            if jit:
                links.kernels[f"{module.name}.{name}"] = Kernel(f"{module.name}.{name}", module, jit)
    for module in index.modules.values():
        _dispatchers(links, module)
    names = {name.rpartition(".")[2] for name in links.dispatchers}
    names.update(slot.split(".")[-2] for dispatcher in links.dispatchers.values() for slot in dispatcher.slots)
    for module in index.modules.values():
        _calls(links, module, names)
        for override in module.facts.overrides:
            replacement = _replacement(links, module, override)
            if replacement is not None:
                links.replacements.append(replacement)
        # What the rules will follow later must be asked for now, so that it is read.
        wanted = {use.module for use in module.facts.triton_uses} | {c.via for c in module.facts.conversions}
        wanted.update(target for call in module.facts.device_calls for target in call.targets)
        wanted.update(reference for op in module.facts.ops for reference in (op.function, op.fake))
        for reference in wanted:
            index.resolve(module, reference)
    for module, call, home, target in wrapped_calls(index):
        kernel = kernel_of(links, index.resolve(home, target))
        if kernel is not None:
            links.launches.append(Launch(module, call, kernel, index.slot(home, target)))
    return links


def _as_bound(module: Module, function: Function) -> Function:
    """Return a kernel as its module holds it: ``quant = tune(quant)`` may supply arguments that no source lists."""
    rebound = [b for b in module.bindings.get(function.name, ()) if b.kind in {"call", "other"}]
    if not rebound:
        return function
    return function._replace(given=None, opaque=not all(_is_tuner(module, binding) for binding in rebound))


def _is_tuner(module: Module, binding: Binding) -> bool:
    """Return True if a call is ``tune(kernel)`` with ``tune = triton.autotune(...)``: it keeps the parameters."""
    makers = module.bindings.get(binding.value.removeprefix("$"), ())
    return bool(makers) and all(
        maker.kind == "call" and maker.value.endswith(("triton.autotune", "triton.heuristics")) for maker in makers
    )


def kernel_of(links: Links, entities: tuple[Entity, ...]) -> Kernel | None:
    """Return the one kernel of `links` among `entities`.

    A launcher that wraps a kernel and gives it by index counts as the kernel.
    """
    for entity in entities:
        kernel = links.kernels.get(entity.dotted) if entity.kind == "function" else None
        if kernel is not None:
            return kernel
        if entity.kind == "instance" and entity.callee is not None and entity.args:
            inner = kernel_of(links, entity.args)
            # triton.jit(f) and triton.autotune(...)(f) are calls too, but their callee is not in the tree.
            klass = entity.callee.klass
            if inner is not None and klass is not None and klass.item == "attribute":
                return inner
    return None


def _dispatchers(links: Links, module: Module) -> None:
    for function in module.facts.functions:
        if not function.specs:
            continue
        owner = function.name.rpartition(".")[0]
        if owner and owner in module.classes:
            _class_dispatcher(links, module, owner, function)
            continue
        for decorator in function.decorators:
            for keyword, reference in decorator.keywords:
                kernel = kernel_of(links, links.index.resolve(module, reference))
                if kernel is not None:
                    dotted = f"{module.name}.{function.name}"
                    links.dispatchers[dotted] = Dispatcher(
                        dotted, module, function, kernel, (f"{dotted}.{keyword}",), function.specs
                    )


def _class_dispatcher(links: Links, module: Module, owner: str, function: Function) -> None:
    """Add the dispatcher of a class that holds one kernel and has a method that returns launch specifications."""
    if not function.decorators:
        return
    held: dict[str, Kernel] = {}
    for name in (*module.functions, *module.bindings):
        holder, _, attribute = name.rpartition(".")
        if holder == owner:
            kernel = kernel_of(links, links.index.resolve(module, f"@{name}"))
            if kernel is not None:
                held[attribute] = kernel
    if len(held) != 1:
        return
    ((attribute, kernel),) = held.items()
    slots = [f"{module.name}.{owner}.{attribute}"]
    for name, bindings in module.bindings.items():
        if any(binding.kind == "call" and binding.value == f"${owner}" for binding in bindings):
            slots.append(f"{module.name}.{name}.{attribute}")
    dotted = f"{module.name}.{owner}"
    links.dispatchers[dotted] = Dispatcher(dotted, module, function, kernel, tuple(slots), function.specs)


def _calls(links: Links, module: Module, names: set[str]) -> None:
    """Add the launches and the dispatcher calls of a module; `names` are those by which dispatchers are called."""
    index = links.index
    for call in module.facts.calls:
        if call.grid:
            for target in call.targets:
                entities = index.resolve(module, target)
                kernel = kernel_of(links, entities)
                if kernel is None:
                    continue
                # An attribute may hold one of several kernels, and a function may return one of several.
                made = "()" in target or "[]" in target
                several = target[0] == "@" or made
                slot = kernel.name if made else index.slot(module, target)
                held = {k.name: k for e in entities if several and (k := kernel_of(links, (e,))) is not None}
                if len(held) > 1:
                    chosen = call._replace(chosen=True)
                    links.launches += (Launch(module, chosen, kernel, slot) for kernel in held.values())
                else:
                    links.launches.append(Launch(module, call, kernel, slot))
            continue
        if len(call.targets) != 1 or "torch.ops." in call.targets[0]:
            continue
        target = call.targets[0]
        if names.isdisjoint(_names_of(module, target)):
            continue
        for entity in index.resolve(module, target):
            owner = entity.callee if entity.kind == "instance" else entity
            dispatcher = links.dispatchers.get(owner.dotted) if owner is not None else None
            called = entity.kind == "instance" or (owner is not None and owner.kind == "function")
            if dispatcher is None or not called:
                continue
            if dispatcher.function.name.endswith(".__call__") or entity.kind == "function":
                links.dispatcher_calls.append(DispatcherCall(module, call, dispatcher))


def _of_class(index: Index, module: Module, target: str, slot: str) -> str:
    """Return the place of an instance's attribute where its class reads it through self."""
    holder, _, attribute = target.rpartition(".")
    for entity in index.resolve(module, holder):
        if entity.kind == "instance" and entity.callee is not None and entity.callee.kind == "class":
            return f"{entity.callee.dotted}.{attribute}"
    return slot


def _names_of(module: Module, target: str) -> list[str]:
    """Return the last name of a reference, and of everything that this module imports or makes under it."""
    last = target.rpartition(".")[2].lstrip("$")
    return [last, *[binding.value.rpartition(".")[2].lstrip("$") for binding in module.bindings.get(last, ())]]


def _read_package(index: Index, slot: str) -> None:
    """Have the package around the module of `slot` read if it may hold something else of the module's name."""
    home, _ = index.split(slot)
    outer, _, last = home.name.rpartition(".") if home is not None else ("", "", "")
    package = index.modules.get(outer)
    if package is not None and not package.exact and last.encode() in package.outline.words.split():
        index.wanted.add(package.path)


def _replacement(links: Links, module: Module, override: Override) -> Replacement | None:
    index = links.index
    slot = _of_class(index, module, override.target, index.slot(module, override.target))
    if not slot:
        return None
    _read_package(index, slot)
    kernel = kernel_of(links, index.resolve(module, override.target))
    if kernel is None:
        holder, _, _ = slot.rpartition(".")
        kernel = next((d.kernel for d in links.dispatchers.values() if slot in d.slots or d.name == holder), None)
    function, home, forwarding = None, None, ""
    functions: list[Function] = []
    entities = index.resolve(module, override.value)
    for entity in entities:
        if entity.kind == "function":
            function, home = entity.function, entity.module
            functions += [function] if function is not None else []
        elif entity.kind == "instance" and entity.callee is not None and entity.args:
            klass = entity.callee.klass
            inner = entity.args[0]
            if klass is not None and klass.item == "attribute" and inner.kind == "function":
                function, home, forwarding = inner.function, inner.module, "direct"
                functions += [argument.function for argument in entity.args if argument.function is not None]
    if function is not None and function.jit:
        forwarding = "direct"
    everywhere = False
    demands: frozenset[str] = frozenset()
    if override.via:
        for entity in index.resolve(module, override.via):
            if entity.kind == "function":
                registry = entity.module
                everywhere = any(f.scans for f in registry.facts.functions)
                demands = frozenset(registry.facts.demands)
                items = {klass.item for klass in registry.facts.classes} - {""}
                forwarding = (
                    {"ordered": "ordered", "attribute": "direct"}.get(next(iter(items)), "") if len(items) == 1 else ""
                )
    return Replacement(
        module, override, slot, kernel, function, home, forwarding, everywhere, tuple(functions), demands
    )
