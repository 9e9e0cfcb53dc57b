"""Overrides that are installed where no caller looks, and kernels without an override that their platform needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from verispec.static import rendering
from verispec.static.finding import Finding, Level, Side, fingerprint
from verispec.static.linking.index import Module, absolute
from verispec.static.linking.launches import Dispatcher, Launch, Links, Replacement
from verispec.static.linking.versions import is_guarded
from verispec.static.rules._model import Rule
from verispec.static.tree import is_test


def _unseen(links: Links) -> Iterator[Finding]:
    """Yield overrides of a name that no launch reads, while launches of the same kernel read other places."""
    taken = {replacement.slot for replacement in links.replacements}
    for replacement in links.replacements:
        kernel = replacement.kernel
        if kernel is None or replacement.everywhere or replacement.override.via:
            continue
        launches = list(links.launches_of(kernel))
        dispatchers = list(links.dispatchers_of(kernel))
        looked = {launch.slot for launch in launches} | {slot for d in dispatchers for slot in d.slots}
        if replacement.slot in looked:
            continue
        # Whoever captured the kernel while its module was being imported can never see a later assignment.
        captured = [
            d for d in dispatchers if taken.isdisjoint(d.slots) and replacement.slot.startswith(f"{d.module.name}.")
        ]
        copied = [launch for launch in launches if launch.slot not in taken]
        others: list[Dispatcher | Launch] = [*captured, *copied]
        if not others:
            continue
        sides = [
            Side("override", replacement.location, f"{replacement.slot} = {replacement.override.value.lstrip('$')}")
        ]
        sides += [_caller(other) for other in others[:3]]
        message = (
            "the override is not where the caller looks: the kernel was captured when its module was imported"
            if captured
            else "the override is not where the caller looks: the caller's module holds its own copy of the name"
        )
        where = captured[0].slots[0] if captured else copied[0].slot
        yield Finding(
            "SIG201",
            Level.ERROR if captured else Level.WARNING,
            message,
            replacement.location,
            kernel.name,
            tuple(sides),
            f"install it at {where}, or through a registry that rebinds every holder",
            fingerprint("SIG201", kernel.name, replacement.slot, where),
        )


def _caller(other: Dispatcher | Launch) -> Side:
    if isinstance(other, Dispatcher):
        return Side(
            "dispatcher", other.location, f"{rendering.signature(other.function)} launches its own {other.slots[0]}"
        )
    return Side("call", other.location, f"{rendering.call(other.call)} reads {other.slot}")


def _launcher(launch: Launch | Dispatcher) -> Side:
    if isinstance(launch, Dispatcher):
        return Side("dispatcher", launch.location, rendering.signature(launch.function))
    return Side("call", launch.location, rendering.call(launch.call))


def _missing(links: Links) -> Iterator[Finding]:
    """Yield kernels without an override in a module where a platform overrides others, launched beside those."""
    groups: dict[tuple[str, str], list[Replacement]] = defaultdict(list)
    for replacement in links.replacements:
        if replacement.kernel is not None and not is_test(replacement.module.path):
            groups[replacement.module.name, replacement.override.scope].append(replacement)
    for (module_name, _), replacements in groups.items():
        # A platform's table of fallbacks, not a single patch.
        if len(replacements) < 3 or any(r.function is not None and r.function.jit for r in replacements):
            continue
        replaced = {r.kernel.name for r in replacements if r.kernel is not None}
        launched: list[Launch | Dispatcher] = [*links.launches, *links.dispatchers.values()]
        for launch in launched:
            kernel = launch.kernel
            beside = {other.kernel.name for other in _in_module(links, launch.module.name)} & replaced
            if kernel.name in replaced or not beside or is_test(launch.module.path):
                continue
            # A host's table does not know the kernels that a plugin brings.
            if replacements[0].module.core and not kernel.module.core:
                continue
            sides = (
                _launcher(launch),
                Side("kernel", kernel.location, rendering.signature(kernel.functions[0])),
                Side("overrides", replacements[0].location, ", ".join(sorted(n.rpartition(".")[2] for n in replaced))),
            )
            yield Finding(
                "SIG202",
                Level.WARNING,
                f"{module_name} overrides other kernels of this module, but not this one",
                launch.location,
                kernel.name,
                sides,
                f"add a counterpart to the table at {replacements[0].location}, or refuse the feature there by name",
                fingerprint("SIG202", kernel.name, module_name),
            )


def _in_module(links: Links, name: str) -> Iterator[Launch | Dispatcher]:
    yield from (launch for launch in links.launches if launch.module.name == name)
    yield from (dispatcher for dispatcher in links.dispatchers.values() if dispatcher.module.name == name)


def _absent(links: Links) -> Iterator[Finding]:
    """Yield overrides of names that their module does not have, and entries of registries whose module is not there."""
    index = links.index
    for replacement in links.replacements:
        home, rest = index.split(replacement.slot)
        name, dot, _ = rest.partition(".")
        if home is None or home is replacement.module or not name or not home.exact:
            continue
        if name in home.bindings or f"{home.name}.{name}" in index.modules or "*" in home.bindings:
            continue
        if is_test(replacement.module.path) or "__getattr__" in home.functions or _is_asked_for(replacement, name):
            continue
        if _is_extended(links, replacement, home) or _is_state(links, replacement, home, name):
            continue
        # A registry imports what its entry names. What is compiled is not in the tree; its name begins with "_".
        if dot and (not replacement.override.via or not home.package or name.startswith("_")):
            continue
        sides = (
            Side("override", replacement.location, f"{replacement.slot} = {replacement.override.value.lstrip('$')}"),
            Side("module", replacement.location.__class__(home.path, 1), f"{home.name} has no {name}"),
        )
        raises = ("module" if dot else "name") in replacement.demands and not _may_be_made(links, replacement, home)
        what = "registry is given" if raises else "override sets"
        yield Finding(
            "SIG203",
            Level.ERROR if raises else Level.NOTE if _is_elsewhere_too(links, replacement) else Level.WARNING,
            f"the {what} {rest}, which {home.name} does not have{'; it raises when it is called' if raises else ''}",
            replacement.location,
            replacement.slot,
            sides,
            "find where the name has moved to, and install the override there",
            fingerprint("SIG203", replacement.slot, "absent"),
        )


def _may_be_made(links: Links, replacement: Replacement, home: Module) -> bool:
    """Return True if what an entry names may be there at run time after all, or if its error is caught."""
    guards, line = replacement.module.facts.guards, replacement.override.line
    caught = any(guard.kind == "caught" and guard.first <= line <= guard.last for guard in guards)
    if caught or is_guarded(guards, line, links.index.host) or b"globals" in home.outline.words.split():
        return True
    # Another import of it shows that a build makes the module, or that something sets the name.
    wanted = (
        replacement.slot.rpartition(".")[0] if home.name != replacement.slot.rpartition(".")[0] else replacement.slot
    )
    return any(
        (absolute(module, found.target) + ".").startswith(wanted + ".")
        for module in links.index.modules.values()
        for found in module.facts.imports
    )


def _is_asked_for(replacement: Replacement, name: str) -> bool:
    """Return True if the override is made only where its module has the name: ``if hasattr(module, "name")``."""
    return any(
        guard.kind == "hasattr" and guard.test == (name,) and guard.first <= replacement.override.line <= guard.last
        for guard in replacement.module.facts.guards
    )


def _is_elsewhere_too(links: Links, replacement: Replacement) -> bool:
    """Return True if the same value is installed under the same name where that name is, for another host's sake."""
    value, last = replacement.override.value, replacement.slot.rpartition(".")[2]
    for other in links.replacements:
        if other.module is replacement.module and other.override.value == value and other is not replacement:
            home, rest = links.index.split(other.slot)
            if home is not None and rest == last and last in home.bindings:
                return True
    return False


def _is_state(links: Links, replacement: Replacement, home: Module, name: str) -> bool:
    """Return True if a name is not meant to replace one: a mark of the plugin's own, or a name that others read.

    A private name gets a value that is not defined anywhere, or, in one tree, a third file has the name too.
    """
    if name.startswith("_") and not replacement.override.value:
        return True
    word, module = name.encode(), replacement.module
    if home.core != module.core or name.startswith("_") or replacement.override.via:
        return False
    sides = {module.path, home.path, replacement.function_module.path if replacement.function_module else ""}
    return any(word in other.outline.words.split() for other in links.index.modules.values() if other.path not in sides)


def _is_extended(links: Links, replacement: Replacement, home: Module) -> bool:
    """Return True if a name is given to `home` on purpose, or to an object that hides `home`.

    A package extends its own modules, the original is kept under another name, or the package of `home` imports
    something of the same name: ``from .state import state``.
    """
    module, package = replacement.module, links.index.modules.get(home.name.rpartition(".")[0])
    own = module.package and home.name.startswith(f"{module.name}.")
    value, _, old = links.index.slot(module, replacement.override.value).rpartition(".")
    kept = value == home.name and old in home.bindings
    last = home.name.rpartition(".")[2]
    held = package.bindings.get(last, ()) if package is not None else ()
    hidden = package is not None and any(absolute(package, binding.value) != home.name for binding in held)
    return own or kept or hidden


def _signatures(links: Links) -> Iterator[Finding]:
    """Yield patched host functions whose replacement cannot be called as the original can."""
    index = links.index
    for replacement in links.replacements:
        function, override = replacement.function, replacement.override
        if replacement.kernel is not None or function is None or override.via or is_test(replacement.module.path):
            continue
        if function.decorators:
            continue
        for entity in index.resolve(replacement.module, override.target):
            original = entity.function
            if original is None or original is function or original.decorators:
                continue
            # A plain function that becomes a method takes the instance first.
            bound = "." in original.name and "." not in function.name
            params = (
                function.params[1:] if bound and function.params and function.params[0].kind == "p" else function.params
            )
            taken = {p.name for p in params if p.kind in "pk"}
            known = {p.name for p in original.params if p.kind in "pk"}
            kinds = {p.kind for p in params}
            lost = [p.name for p in original.params if p.kind in "pk" and p.name not in taken and "**" not in kinds]
            new = [p.name for p in params if p.required and p.name not in known and p.kind in "pk"]
            if not lost and not new:
                continue
            home = replacement.function_module
            assert home is not None
            words = ([f"does not take {', '.join(lost)}"] if lost else []) + (
                [f"requires {', '.join(new)}"] if new else []
            )
            sides = (
                Side(
                    "original",
                    replacement.location.__class__(entity.module.path, original.line),
                    rendering.signature(original),
                ),
                Side(
                    "replacement",
                    replacement.location.__class__(home.path, function.line),
                    rendering.signature(function),
                ),
            )
            yield Finding(
                "SIG204",
                Level.WARNING,
                f"the replacement {' and '.join(words)}",
                replacement.location,
                replacement.slot,
                sides,
                "give the replacement the parameters of the original",
                fingerprint("SIG204", replacement.slot, *lost, "|", *new),
            )


def _between_trees(links: Links) -> Iterator[Finding]:
    """Return nothing: `verispec.static.tables` compares two trees."""
    yield from ()


RULES = (
    Rule(
        "SIG201",
        "override not where the caller looks",
        Level.ERROR,
        "An override assigns to a name that no launch reads at run time, so the original keeps running, or on a "
        "platform without Triton nothing runs at all. In vLLM 0.30.0 the CPU runner still assigned six of nine "
        "fallbacks to module globals, while the launches had moved into dispatcher objects that captured their "
        "kernels at import; speculative decoding on CPUs launched placeholders.",
        _unseen,
    ),
    Rule(
        "SIG202",
        "counterpart missing on a platform",
        Level.WARNING,
        "A platform replaces the kernels of a module by its own, except for one that the same module launches. The "
        "feature behind it fails there late, at its first launch. vLLM's CPU platform registers fallbacks for the "
        "rejection kernels, but has none for every acceptance rule that the same sampler can launch.",
        _missing,
    ),
    Rule(
        "SIG203",
        "override of a name that is not there",
        Level.WARNING,
        "An override sets a name that its target module does not define, so nobody reads it. Plugins patch functions "
        "by dotted name; when the core moves or renames one, the assignment still succeeds and does nothing, as "
        "happened to plugins of vLLM whenever proposer helpers moved between modules. An entry of a registry whose "
        "module is not in its package counts too. It is an error where the registry imports the module or reads the "
        "name and catches nothing: vLLM's register_kernels raises then, and no worker starts. Nothing is reported "
        "where hasattr or getattr looks for the name first, or for a private name that gets no function or class. It "
        "is a note if the same value is installed where the name is now, too.",
        _absent,
    ),
    Rule(
        "SIG204",
        "replacement with other parameters",
        Level.WARNING,
        "A patched function cannot be called in all the ways in which the original can. The core's callers know only "
        "the original's parameters: a keyword that the core added one release ago raises TypeError in the plugin, "
        "which is how plugins of vLLM break on upgrade.",
        _signatures,
    ),
    Rule(
        "SIG208",
        "kernel no longer replaced",
        Level.ERROR,
        "With --since, a kernel that a platform's table replaced before is launched as before, and nothing replaces it "
        "any more. The platform launches the original, which it cannot run. Entries get lost when a table is sorted, "
        "split or merged. vLLM's CPU platform registers its counterparts in one table of twelve entries.",
        _between_trees,
    ),
)
