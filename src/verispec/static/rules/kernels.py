"""Checks of the bodies of kernels and of their stubs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from verispec.static import rendering
from verispec.static.finding import Finding, Level, Location, Side, fingerprint
from verispec.static.linking.binding import plain
from verispec.static.linking.index import Module
from verispec.static.linking.launches import Links, place
from verispec.static.rules._model import Rule
from verispec.static.tree import is_test

_VOCABULARY: Final = re.compile(r"vocab|logit|prob")
_FEW: Final = re.compile(r"head|split|block|chunk|dim|group|expert|col|pid_[nk]")
"""Indexes that count parts of one row, or few things."""


def _unread(links: Links) -> Iterator[Finding]:
    for replacement in links.replacements:
        kernel, function, home = replacement.kernel, replacement.function, replacement.function_module
        if kernel is None or function is None or home is None or function.jit:
            continue
        unread = {plain(name): name for name in function.unread}
        for flag in sorted({flag for original in kernel.functions for flag in original.tested}):
            name = unread.get(plain(flag))
            if name is None:
                continue
            here = place(home, function)
            sides = (
                Side("kernel", kernel.location, f"branches on {flag}"),
                Side("fallback", here, rendering.signature(function)),
            )
            yield Finding(
                "SIG402",
                Level.WARNING,
                f"the fallback accepts {name} and never reads it",
                here,
                kernel.name,
                sides,
                f"give {name} its meaning in {function.name}, or refuse it when it is on",
                fingerprint("SIG402", kernel.name, function.name, flag),
            )


def _narrow_rows(links: Links) -> Iterator[Finding]:
    for module in links.index.modules.values():
        if is_test(module.path):
            continue
        promoting = module.facts.promotes
        grouped: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for overflow in module.facts.overflows:
            grouped[overflow.function].append((overflow.text, overflow.line))
        for function, products in grouped.items():
            siblings = [name for name in promoting if name != function]
            here = Location(module.path, products[0][1])
            texts = ", ".join(text for text, _ in products[:4])
            sides = [Side("kernel", here, texts)]
            if siblings:
                sibling = module.functions[siblings[0]][0]
                sides.append(Side("sibling", place(module, sibling), f"{sibling.name} promotes its index to 64 bits"))
            yield Finding(
                "SIG403",
                Level.WARNING if any(_may_overflow(text) for text, _ in products) else Level.NOTE,
                f"{texts} is computed in 32 bits" + (" although a sibling promotes" if siblings else ""),
                here,
                f"{module.name}.{function}",
                tuple(sides),
                "convert the program index with .to(tl.int64) before the multiplication",
                fingerprint("SIG403", f"{module.name}.{function}", *(text for text, _ in products)),
            )


def _may_overflow(product: str) -> bool:
    """Return True if ``index * size`` can pass 2^31: tokens or requests times a vocabulary can, heads cannot."""
    index, _, size = product.lower().partition(" * ")
    return bool(_VOCABULARY.search(size)) and not _FEW.search(index)


def _needs_triton(links: Links) -> Iterator[Finding]:
    index = links.index
    fallbacks = {r.kernel.name for r in links.replacements if r.kernel and r.function and not r.function.jit}
    reached: dict[tuple[str, str], Location] = {}
    for launch in links.launches:
        if launch.kernel.name in fallbacks:
            reached.setdefault((launch.module.name, launch.call.scope), launch.location)
    for dispatcher in links.dispatchers.values():
        if dispatcher.kernel.name in fallbacks:
            reached.setdefault((dispatcher.module.name, dispatcher.function.name), dispatcher.location)
    for module in index.modules.values():
        if is_test(module.path):
            continue
        for use in module.facts.triton_uses:
            launch_location = reached.get((module.name, use.scope))
            if launch_location is None:
                continue
            missing = _missing_attribute(links, module, use.module, use.attribute)
            if not missing:
                continue
            here = Location(module.path, use.line)
            sides = (
                Side("host code", here, f"triton.{use.attribute} in {use.scope}"),
                Side("placeholder", missing, f"has no {use.attribute}"),
                Side("launch", launch_location, "launches a kernel that has a fallback for where there is no Triton"),
            )
            yield Finding(
                "SIG404",
                Level.ERROR,
                f"triton.{use.attribute} is used on a path that must work without Triton",
                here,
                f"{module.name}.{use.scope}",
                sides,
                f"use a helper of your own for {use.attribute}, or give it to the placeholder",
                fingerprint("SIG404", f"{module.name}.{use.scope}", use.attribute),
            )


def _missing_attribute(links: Links, module: Module, target: str, attribute: str) -> Location | None:
    """Return the place of the triton module's stub, if it lacks `attribute`."""
    for entity in links.index.resolve(module, target):
        owner = entity.callee if entity.kind == "instance" else None
        if owner is None:
            continue
        for name, attributes in owner.module.facts.placeholders:
            if name == owner.name and attribute not in attributes:
                return Location(owner.module.path, owner.module.classes[name].line)
    return None


RULES = (
    Rule(
        "SIG402",
        "flag accepted and never read",
        Level.WARNING,
        "A fallback takes a flag that decides a branch of its kernel, and never reads it: nothing raises, and the "
        "platform silently computes something else. vLLM's CPU fallback of sample_recovered_tokens_kernel accepts "
        "USE_FP64_GUMBEL for the sake of the signature and narrows the noise to float32 all the same.",
        _unread,
    ),
    Rule(
        "SIG403",
        "row times stride in 32 bits",
        Level.WARNING,
        "A kernel multiplies a 32-bit program index by a stride or a vocabulary size. With a vocabulary of 150,000 "
        "the product passes 2^31 at row 14,000 and wraps: late requests read foreign rows. vLLM promoted the "
        "index in most of its rejection kernels and missed two for block verification. An index of tokens or requests "
        "times a vocabulary is a warning; other strides are a note.",
        _narrow_rows,
    ),
    Rule(
        "SIG404",
        "host code that needs Triton where it may be absent",
        Level.ERROR,
        "Host code uses an attribute of the triton module that the tree's own stand-in for an absent Triton lacks, in "
        "a function that launches a kernel with a fallback for that very case. The fallback is never reached: the "
        "line before it raises AttributeError. triton.next_power_of_2 in launch code is the usual one.",
        _needs_triton,
    ),
)
