"""Hooks that a subclass misses or misspells, and variants of a class that follow other protocols."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from verispec.static.finding import Finding, Level, Side, fingerprint
from verispec.static.linking.classes import Hierarchy, Type
from verispec.static.linking.launches import Links
from verispec.static.rules._model import Rule
from verispec.static.tree import is_test


def _hierarchy(links: Links) -> Hierarchy:
    return Hierarchy(links.index)


def _missed(links: Links) -> Iterator[Finding]:
    """Yield overrides that repeat the setup calls of their base's method, all but those of an interface."""
    types = links.shared(_hierarchy)
    hooks: dict[str, Type] = {}
    for entry in types:
        if "Protocol" in entry.outline.bases or any(base.outline.name == "Protocol" for base in types.bases(entry)):
            hooks.update((method.name, entry) for method in entry.outline.methods if _is_hook(method.name))
    for entry in types:
        if is_test(entry.module.path):
            continue
        ancestors = types.ancestors(entry)
        for method in entry.outline.methods if ancestors else ():
            if method.calls_super or method.name.startswith("__"):
                continue
            base = next((a for a in ancestors if a.method(method.name)), None)
            original = base.method(method.name) if base else None
            if base is None or original is None or not original.calls:
                continue
            made = _reach(entry, method.name, ancestors)
            shared = set(original.calls) & made
            for call in original.calls:
                own = base.method(call)
                interface = hooks.get(call)
                if call in made or not shared or (interface is None and own is None):
                    continue
                # A call of the base's own helper counts only when nearly all the rest was repeated.
                if interface is None and len(shared) * 4 < len(original.calls) * 3:
                    continue
                target = (
                    Side("interface", interface.location, f"{interface.outline.name}.{call}") if interface else None
                )
                sides = (
                    Side(
                        "override",
                        entry.at(method),
                        f"{entry.outline.name}.{method.name} calls {', '.join(sorted(shared)[:6])}",
                    ),
                    Side("base", base.at(original), f"{base.outline.name}.{method.name} calls {call}"),
                    *([target] if target else []),
                )
                yield Finding(
                    "SIG502",
                    Level.WARNING if interface else Level.NOTE,
                    f"the override repeats its base's method but never calls {call}",
                    entry.at(method),
                    f"{entry.name}.{method.name}",
                    sides,
                    f"call {call} in {entry.outline.name}.{method.name}, or super().{method.name}()",
                    fingerprint("SIG502", f"{entry.name}.{method.name}", call),
                )


def _is_hook(name: str) -> bool:
    """Return True if a method of an interface is a step that implementations must take, by its one-word name."""
    words = name.strip("_").split("_")
    return len(words) > 2 and words[0] not in {"get", "is", "has", "can", "supports", "should"}


def _reach(entry: Type, name: str, ancestors: tuple[Type, ...]) -> set[str]:
    """Return every name that a method calls on self, directly or through methods of the class and its bases."""
    found: set[str] = set()
    queue = [name]
    own = True
    while queue:
        current = queue.pop()
        method = entry.method(current)
        if method is None and not own:
            method = next((m for a in ancestors if (m := a.method(current)) is not None), None)
        own = False
        for call in method.calls if method else ():
            if call not in found:
                found.add(call)
                queue.append(call)
    return found


def _misspelled(links: Links) -> Iterator[Finding]:
    """Yield methods without callers whose names are one word away from a method of a base that has callers."""
    types = links.shared(_hierarchy)
    suspects: list[tuple[Type, str, Type, str]] = []
    for entry in types:
        ancestors = types.ancestors(entry)
        if not ancestors or is_test(entry.module.path):
            continue
        inherited = {m.name: a for a in reversed(ancestors) for m in a.outline.methods}
        own = {method.name for method in entry.outline.methods}
        called = {call for method in entry.outline.methods for call in method.calls}
        for name in own - inherited.keys() - called:
            if name.startswith("__") or name.count("_") < 1:
                continue
            for other, base in inherited.items():
                if other not in own and name.startswith("_") == other.startswith("_") and _one_word_apart(name, other):
                    suspects.append((entry, name, base, other))
    names = {name.encode() for _, name, _, _ in suspects} | {other.encode() for _, _, _, other in suspects}
    mentioned: dict[bytes, set[str]] = defaultdict(set)
    for module in links.index.modules.values() if names else ():
        for word in names.intersection(module.outline.words.split()):
            mentioned[word].add(module.path)
    for entry, name, base, other in suspects:
        if mentioned[name.encode()] - {entry.module.path}:
            continue
        if not mentioned[other.encode()] - {base.module.path, entry.module.path}:
            continue
        method = entry.method(name)
        original = base.method(other)
        if (
            method is None
            or original is None
            or any(name in m.calls for c in entry.module.outline.classes for m in c.methods)
        ):
            continue
        yield Finding(
            "SIG503",
            Level.WARNING if len(name.split("_")) == len(other.split("_")) else Level.NOTE,
            f"nobody calls {name}; the interface has {other}",
            entry.at(method),
            f"{entry.name}.{name}",
            (
                Side("method", entry.at(method), f"{entry.outline.name}.{name}"),
                Side("interface", base.at(original), f"{base.outline.name}.{other}"),
            ),
            f"rename it to {other} if it is meant to be the hook",
            fingerprint("SIG503", f"{entry.name}.{name}", other),
        )


def _one_word_apart(name: str, other: str) -> bool:
    """Return True if two snake-case names differ by exactly one word: replaced, or added."""
    a, b = name.strip("_").split("_"), other.strip("_").split("_")
    if len(a) == len(b):
        return len(a) > 2 and sum(x != y for x, y in zip(a, b, strict=True)) == 1 and _alike(a, b)
    longer, shorter = (a, b) if len(a) > len(b) else (b, a)
    return (
        len(shorter) > 1
        and len(longer) == len(shorter) + 1
        and any(longer[:i] + longer[i + 1 :] == shorter for i in range(len(longer)))
    )


def _alike(a: list[str], b: list[str]) -> bool:
    """Return True if the words that differ are forms of one word (layer and layers, num and number)."""
    x, y = next((x, y) for x, y in zip(a, b, strict=True) if x != y)
    return x[:3] == y[:3]


def _variants(links: Links) -> Iterator[Finding]:
    """Yield variants of a class in sibling folders of which one follows a protocol that the other does not."""
    types = links.shared(_hierarchy)
    protocols = {entry.outline.name for entry in types if "Protocol" in entry.outline.bases}
    groups: dict[tuple[str, str], list[Type]] = defaultdict(list)
    for entry in types:
        parts = entry.module.path.split("/")
        for depth, part in enumerate(parts[:-1]):
            if part in _PLATFORMS:
                groups["/".join([*parts[:depth], "*", *parts[depth + 1 :]]), entry.outline.name].append(entry)
    for (_, name), variants in groups.items():
        if len(variants) < 2:
            continue
        following = {v.name: {b.rpartition(".")[2] for b in v.outline.bases} & protocols for v in variants}
        everything = set().union(*following.values())
        for variant in variants:
            for protocol in sorted(everything - following[variant.name]):
                # A protocol may also come through a base of the variant.
                if any(base.outline.name == protocol for base in types.ancestors(variant)):
                    continue
                other = next(v for v in variants if protocol in following[v.name])
                yield Finding(
                    "SIG504",
                    Level.WARNING,
                    f"this variant of {name} does not follow {protocol}, the other does",
                    variant.location,
                    variant.name,
                    (
                        Side("variant", variant.location, f"class {name}({', '.join(variant.outline.bases)})"),
                        Side("other", other.location, f"class {name}({', '.join(other.outline.bases)})"),
                    ),
                    f"implement {protocol} here, or refuse the feature on this platform by name",
                    fingerprint("SIG504", variant.name, protocol),
                )


_PLATFORMS = frozenset({"nvidia", "amd", "cuda", "rocm", "cpu", "xpu", "tpu", "hpu", "npu", "gpu", "intel", "ascend"})

RULES = (
    Rule(
        "SIG502",
        "interface hook missed",
        Level.WARNING,
        "A subclass overrides a method without calling its base, repeats the base's setup calls, and leaves one out "
        "that an interface declares. vLLM's CPU runner overrode load_model and loaded the drafter, but never told the "
        "model which layers' hidden states Eagle3 needs, because the GPU runner did that inline; Eagle3 did not start "
        "on CPUs until 0.22.0 moved the call into a hook that both call.",
        _missed,
    ),
    Rule(
        "SIG503",
        "interface hook misspelled",
        Level.WARNING,
        "A method that nobody calls has a name one word away from a method of its interface that others do call, so "
        "the interface's default runs instead and nothing complains. A model that defines set_aux_hidden_state_layer "
        "for set_aux_hidden_state_layers loads, and drafts from the wrong states.",
        _misspelled,
    ),
    Rule(
        "SIG504",
        "platform variants with different protocols",
        Level.WARNING,
        "The same class exists once for each platform, and one of them lacks a protocol of the other. The feature "
        "behind the protocol works on one platform and raises on the other: a vLLM model had SupportsEagle3 in its "
        "nvidia folder and not in its amd folder, and failed on ROCm alone.",
        _variants,
    ),
)
