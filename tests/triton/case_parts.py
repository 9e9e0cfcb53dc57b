"""Shared parts of the makers of cases: a case and its size, the registry of makers, random batches and logits.

A maker is a function of an op's name that makes the op's arguments, NumPy arrays all of them, for a size and
a variant. Everything follows from the random generator that it gets, so a case is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verispec.reference import oracle
from verispec.reference.contracts import load

Array = np.ndarray[Any, Any]

POISON = -77


@dataclass(frozen=True)
class Size:
    """Sizes of the inputs of a case."""

    vocabulary: int
    requests: int = 5
    drafts: int = 3
    draft_vocabulary: int | None = None


@dataclass(frozen=True)
class Case:
    op: str
    name: str
    arguments: dict[str, Any]
    narrow: frozenset[str] = frozenset()
    inplace: dict[str, str] = field(default_factory=dict)
    """Outputs that are the memory of an input."""

    def expected(self) -> dict[str, Array]:
        return oracle.load(self.op)(**self.arguments)

    def outputs(self) -> list[str]:
        return [t.name for t in load(self.op).outputs if self.arguments[t.name] is not None]


Maker = Callable[[np.random.Generator, Size, str], dict[str, Any]]
MAKERS: dict[str, tuple[Maker, tuple[str, ...]]] = {}
"""The maker of each op's arguments, and its variants."""


def maker(*variants: str) -> Callable[[Maker], Maker]:
    """Register the maker of the op of its name."""

    def register(make: Maker) -> Maker:
        MAKERS[make.__name__] = make, variants
        return make

    return register


def draft_counts(rng: np.random.Generator, size: Size) -> Array:
    """Drafts of each request: none, all and in between, the special ones not first."""
    counts = rng.integers(0, size.drafts + 1, size.requests)
    counts[-1] = size.drafts
    counts[size.requests // 2] = 0
    return counts


def random_logits(rng: np.random.Generator, *shape: int) -> Array:
    return (rng.standard_normal(shape, dtype=np.float32) * 3).astype(np.float32)


def softmax(logits: Array) -> Array:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)
