"""Binding of the host's callers to the functions, classes and methods of a plugin that replace the host's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from verispec.static import rendering
from verispec.static.finding import Finding, Level, Location, Side, fingerprint
from verispec.static.linking.binding import bind_call
from verispec.static.linking.index import Module
from verispec.static.linking.launches import Links
from verispec.static.linking.reach import is_left_to_others, runs_its_own_way, unreached
from verispec.static.linking.substitutions import PlainCall, Substitution, broken_calls, substitutions
from verispec.static.linking.versions import is_guarded
from verispec.static.rules._model import Rule
from verispec.static.tree import is_test


def _replaced(links: Links) -> Iterator[Finding]:
    for found in links.shared(substitutions):
        if found.kind != "method":
            yield from _broken(links, "SIG205", found)


def _overridden(links: Links) -> Iterator[Finding]:
    for found in links.shared(substitutions):
        if found.kind == "method":
            yield from _broken(links, "SIG206", found)


def _broken(links: Links, rule: str, found: Substitution) -> Iterator[Finding]:
    guards = found.module.facts.guards
    for plain, certain in broken_calls(links, found):
        function = found.functions[-1]
        problems = ", ".join(map(str, bind_call(plain.call, function)))
        fault = f"does not bind to the {_OWN[found.kind]}: {problems}"
        if not problems:
            problems = ", ".join(f"{name} as {place}" for name, place in found.traded(plain.call, function))
            fault = f"trades values in the {_OWN[found.kind]}, which receives {problems}"
        caught = is_guarded(plain.module.facts.guards, plain.call.line, links.index.host)
        optional = any(
            is_guarded(guards, location.line, links.index.host) for location in (found.installed, found.location)
        )
        # The plugin may run code of its own instead of the caller.
        unused = any(plain.scope == name or plain.scope.startswith(f"{name}.") for name in links.shared(unreached))
        unused |= is_left_to_others(links, plain, found)
        level = Level.NOTE if caught or optional or unused else Level.ERROR if certain else Level.WARNING
        latent = found.kind == "method" and level is Level.ERROR
        shown = Level.WARNING if latent else level
        # Nobody reaches the caller with this class, if the plugin calls the override in a way of its own.
        if found.kind == "method" and runs_its_own_way(links, plain, found):
            shown = Level.NOTE
        yield Finding(
            rule,
            shown,
            f"a call that fits the {_ORIGINAL[found.kind]} {fault}",
            plain.location,
            found.name,
            _sides(plain, found),
            f"give {function.name} the parameters of {found.name}",
            fingerprint(rule, found.name, plain.scope, function.name, problems),
            plain.scope,
            f"{found.location} {problems}",
            level_if_new=level,
        )


def _sides(plain: PlainCall, found: Substitution) -> tuple[Side, ...]:
    return (
        Side("call", plain.location, rendering.call(plain.call)),
        Side("original", found.original_location, rendering.signature(found.originals[0])),
        Side(_OWN[found.kind], found.location, rendering.signature(found.functions[-1])),
    )


_ORIGINAL = {"function": "original", "class": "original constructor", "method": "base's method"}
_OWN = {"function": "replacement", "class": "replacement's constructor", "method": "override"}


def _no_such_value(links: Links) -> Iterator[Finding]:
    """Yield overrides whose new value is a name that its module does not have: they raise when they are installed."""
    index = links.index
    for module in index.modules.values():
        if is_test(module.path) or module.core:
            continue
        for override in module.facts.overrides:
            reference = override.value
            if not reference or reference[0] == "@" or index.resolve(module, reference):
                continue
            slot = index.slot(module, reference)
            home, rest = index.split(slot)
            if home is None or home is module or not rest or "." in rest or not home.exact:
                continue
            if rest in home.bindings or "*" in home.bindings or "__getattr__" in home.functions:
                continue
            if f"{home.name}.{rest}" in index.modules or _is_assigned(index.modules.values(), slot):
                continue
            here = Location(module.path, override.line)
            guarded = is_guarded(module.facts.guards, override.line, index.host)
            yield Finding(
                "SIG207",
                Level.NOTE if guarded else Level.ERROR,
                f"{home.name} has no {rest}",
                here,
                f"{module.name}.{override.scope}".rstrip("."),
                (
                    Side("override", here, f"{override.target} = {reference.lstrip('$')}"),
                    Side("module", Location(home.path, 1), f"{home.name} has no {rest}"),
                ),
                f"find what {rest} is called now",
                fingerprint("SIG207", module.name, override.target, slot),
            )


def _is_assigned(modules: Iterable[Module], slot: str) -> bool:
    """Return True if some module sets an attribute of this name: the value may come from there."""
    ending = f".{slot.rpartition('.')[2]}"
    return any(override.target.endswith(ending) for module in modules for override in module.facts.overrides)


RULES = (
    Rule(
        "SIG205",
        "host call does not bind to a replacement",
        Level.ERROR,
        "A plugin replaces a function or class of its host, and a call of the host that reads the replaced name does "
        "not bind to the replacement. vllm-ascend 0.23.0 replaced compute_topk_logprobs of vLLM by a function without "
        "logprob_token_ids_state, which Sampler passes from vLLM 0.23.0 on. A call by position that binds counts too "
        "where the replacement lists two of the original's parameters in each other's places.",
        _replaced,
    ),
    Rule(
        "SIG206",
        "host call does not bind to an override",
        Level.ERROR,
        "A plugin's class overrides a method of a host class with other parameters, and a method that it inherits "
        "calls it on self in a way that only the base's method takes. The call raises TypeError the first time it "
        "runs with the plugin. It is an error if a change brings it (--since, --core-since). Otherwise it is a "
        "warning, since a plugin may never run the inherited method, and a note if the plugin calls the override in a "
        "way of its own. A call on another receiver counts, as a warning, only if just this family of classes has a "
        "method of that name.",
        _overridden,
    ),
    Rule(
        "SIG207",
        "override with a value that does not exist",
        Level.ERROR,
        "An override installs an attribute of a module that does not define it, so that installing it raises "
        "AttributeError at start-up. Fallbacks are renamed in one file while the table that installs them stays.",
        _no_such_value,
    ),
)
