"""Hypothesis inside a case: calls drawn from a contract, with the same examples in every run of a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from verispec.reference.contracts import Contract

LAYOUT_CHOICES = ("dense", "dense", "gapped", "padded", "transposed")
MOST_DRAFTS = 6
"""Maximum number of draft tokens per request."""


@dataclass(frozen=True, slots=True)
class DrawnCall:
    """The part of a call that Hypothesis draws and shrinks; `seed` determines the values."""

    counts: tuple[int, ...]
    vocab: int
    seed: int
    dtypes: dict[str, str]
    layouts: dict[str, str]


def structures(
    contract: Contract,
    *,
    most_requests: int = 5,
    vocab: tuple[int, int] = (2, 40),
    layouts: bool = True,
    some_draft: bool = False,
    same: tuple[tuple[str, ...], ...] = (),
) -> Any:
    """Return a strategy of `DrawnCall`: any dtype that the contract accepts for each tensor, any layout.

    Args:
        contract: contract of the op under test.
        most_requests: maximum number of requests.
        vocab: minimum and maximum vocabulary size.
        layouts: False leaves every tensor contiguous.
        some_draft: True draws at least one draft token per batch.
        same: groups of parameters that share one dtype.
    """
    from hypothesis import strategies as st

    leader = {name: group[0] for group in same for name in group}

    @st.composite
    def draw_structure(draw: Any) -> DrawnCall:
        counts = draw(st.lists(st.integers(0, MOST_DRAFTS), min_size=0, max_size=most_requests))
        if some_draft and not any(counts):
            counts = [*counts[1:], draw(st.integers(1, MOST_DRAFTS))]
        dtypes: dict[str, str] = {}
        for t in contract.tensors:
            first = leader.get(t.name, t.name)
            dtypes[t.name] = dtypes[first] if first in dtypes else draw(st.sampled_from(t.dtypes))
        chosen = {t.name: draw(st.sampled_from(LAYOUT_CHOICES)) for t in contract.tensors} if layouts else {}
        return DrawnCall(tuple(counts), draw(st.integers(*vocab)), draw(st.integers(0, 2**32 - 1)), dtypes, chosen)

    return draw_structure()


def explore(strategy: Any, examples: int, seed: int) -> Callable[[Callable[[Any], None]], None]:
    """Return a decorator that runs a check on draws of a strategy, shrinks a failure, and raises it.

    Args:
        strategy: Hypothesis strategy.
        examples: number of draws.
        seed: seed of the draws.
    """
    import hypothesis

    def run(check: Callable[[Any], None]) -> None:
        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
        )
        @hypothesis.given(strategy)
        def explored(drawn: Any) -> None:
            check(drawn)

        explored()

    return run
