"""Constants that exist twice and disagree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from verispec.static.facts import Constant
from verispec.static.finding import Finding, Level, Location, Side, fingerprint
from verispec.static.linking.index import Module
from verispec.static.linking.launches import Links
from verispec.static.rules._model import Rule
from verispec.static.tree import is_test

_SENTINELS = (
    "TEMPERATURE",
    "TOKEN_ID",
    "PAD_ID",
    "SLOT_ID",
    "BLOCK_ID",
    "PLACEHOLDER",
    "SENTINEL",
    "INVALID",
    "EPS",
    "MAX_SPEC",
)


def _disagree(links: Links) -> Iterator[Finding]:
    places: dict[str, list[tuple[Module, Constant]]] = defaultdict(list)
    for module in links.index.modules.values():
        if is_test(module.path):
            continue
        for constant in module.outline.constants:
            # Sizes and versions may well differ from file to file; sentinels and limits of one meaning may not.
            if any(word in constant.name for word in _SENTINELS):
                places[constant.name].append((module, constant))
    for name, found in places.items():
        values = {_value(constant.value) for _, constant in found}
        if len(values) < 2:
            continue
        used = {
            module.name: sum(
                f" {name} ".encode() in b" " + other.outline.words + b" " for other in links.index.modules.values()
            )
            for module, _ in found[:1]
        }
        if max(used.values()) <= len(found):
            continue
        sides = tuple(
            Side(module.name, Location(module.path, c.line), f"{name} = {c.value}") for module, c in found[:6]
        )
        yield Finding(
            "SIG501",
            Level.WARNING,
            f"{name} is defined {len(found)} times with {len(values)} values",
            Location(found[-1][0].path, found[-1][1].line),
            name,
            sides,
            "define it once and import it",
            fingerprint("SIG501", name, *sorted(f"{module.name}={c.value}" for module, c in found)),
        )


def _value(text: str) -> float | str:
    """Return a number; integers modulo 2^32, since -0x80000000 and 0x80000000 are the same 32 bits."""
    try:
        integer = int(text, 0)
        return integer % 2**32 if -(2**31) <= integer < 2**32 else integer
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


RULES = (
    Rule(
        "SIG501",
        "duplicated constants that disagree",
        Level.WARNING,
        "A sentinel or limit that several modules share is defined more than once, with different values. vLLM moved "
        "the temperature that means greedy from -1 to 0 in one of its places only; rows were divided by zero and "
        "requests ended empty, and a plugin with a copy of its own crashed on the next upgrade.",
        _disagree,
    ),
)
