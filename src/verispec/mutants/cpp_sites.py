"""Sites of a C++ file, and the tables of replacements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

COMPARISONS: Final = {
    "<": ("<=", ">=", "=="),
    "<=": ("<", ">", "=="),
    ">": (">=", "<=", "=="),
    ">=": (">", "<", "=="),
    "==": ("!=", "<=", ">="),
    "!=": ("==", "<", ">"),
}
ARITHMETIC: Final = {
    "+": ("-",), "-": ("+",), "*": ("/", "+"), "/": ("*",), "%": ("/",),
    "<<": (">>",), ">>": ("<<",), "&": ("|",), "|": ("&", "^"), "^": ("|",),
}  # fmt: skip
LOGICAL: Final = {"&&": "||", "||": "&&"}
ASSIGNMENTS: Final = {"+=": ("-=", "="), "-=": ("+=",), "|=": ("=",), "*=": ("=",)}
ROWS: Final = {"b", "i", "row", "request", "token", "state", "step", "block"}
"""Parameters of helpers that stand for the index of a loop around the call."""
BLOCKS: Final = 256
"""Blocks of a row of 2^18 ids, more than any model has: a loop over blocks has no 1,024th round."""
BLOCK_SIZE: Final = 1024
"""Tokens of a block, and of a tile: a loop over one has no later round."""
SIZES_OF_HEADS: Final = {
    "head_dim": 768,
    "half": 384,
    "vectors": 4,
    "num_heads": 768,
    "num_kv_heads": 768,
    "num_keys": 16,
}
"""Largest values of names in kernels of models: no model has more heads, or larger ones; keys are those of a block."""
INTEGER_TYPES: Final = {"int64_t", "int32_t", "int", "size_t", "uint32_t"}


ENDS: Final = {"request >= 64": 64, "request >= 65536": 65_536}, {"step >= 2": 2, "element >= 1024": 1024}
"""Triggers on the index of the outermost loop and of the innermost, with the index from which they hold."""


@dataclass(frozen=True, slots=True)
class CppScope:
    """Names that are visible at a node, and its surroundings.

    Attributes:
        integers: visible integers.
        tensors: visible tensors.
        loops: variables of the enclosing loops, outermost first.
        bounds: maximum number of rounds of each of these loops, None where the source does not state it.
        parallel: True inside of a parallel region.
        limits: names of visible integers with their largest value, where a declaration states it.
        is_serial: True if thread 0 runs what the function has outside of parallel regions.
        in_function: True inside of a function.
    """

    integers: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    bounds: tuple[int | None, ...] = ()
    limits: tuple[tuple[str, int], ...] = ()
    parallel: bool = False
    is_serial: bool = False
    in_function: bool = False

    @property
    def never(self) -> tuple[str, ...]:
        """Triggers that cannot hold here: of threads outside of a region, of index 64 in a loop of ten rounds."""
        found = ["thread > 0"] if self.is_serial and not self.parallel else []
        if self.bounds:
            for bound, ends in zip((self.bounds[0], self.bounds[-1]), ENDS, strict=True):
                found += [trigger for trigger, end in ends.items() if bound is not None and bound <= end]
        return tuple(found)


@dataclass(slots=True)
class Alternative:
    """One replacement of a site's text."""

    operator: str
    text: str
    number: int = -1
    loops: int = 0
    """Number of loops around it: without one, a condition on an index never holds."""
    never: tuple[str, ...] = ()
    """Triggers that cannot hold at its place."""


@dataclass(slots=True)
class Site:
    """A place that can be changed.

    Attributes:
        start: first byte of its text.
        end: byte after its text.
        kind: expression, statement, declaration or pragma, which determines the form of its alternatives.
        line: number of the line, from 1.
        column: number of the column, from 1.
        loops: variables of the enclosing loops that are in scope, outermost first.
        alternatives: replacements of the text.
        before: the text.
    """

    start: int
    end: int
    kind: str
    line: int
    column: int
    loops: tuple[str, ...]
    alternatives: list[Alternative] = field(default_factory=list)
    before: str = ""


def descendants(node: Any, kind: str) -> Iterator[Any]:
    """Yield the nodes of a kind below a node, none of them inside another."""
    if node is None:
        return
    for child in node.named_children:
        if child.type == kind:
            yield child
        else:
            yield from descendants(child, kind)
