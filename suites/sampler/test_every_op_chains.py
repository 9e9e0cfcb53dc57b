"""Every op with long chains of drafts that pass, so that all steps are reached."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from verispec.cases import case
from verispec.engines import Engine
from verispec.judge import OpUnderTest
from verispec.reference import contracts
from verispec.suites.sampler._calls import BatchShape, make
from verispec.suites.sampler._refusals import check_each
from verispec.suites.sampler.test_every_op import MODES, OPS, check, check_made, is_slow

CHAINS = [op for op in OPS if op != "sample_recovered_tokens"]
"""All ops but the one that recovers tokens: certain drafts leave nothing to recover."""


def names_of(op: str) -> set[str]:
    """Return the names of the op's parameters."""
    return {p.name for p in contracts.load(op).params}


LENGTHS = (3, 9, 17, 40, 130)
"""Drafts of the long requests of a chain, with rows of 5 and of 17 tokens."""
LONGEST = 1100
"""Drafts past any block or recursion; one width of rows per mode, as they are five sixths of all rows."""


def chains(engine: Engine, mode: str) -> list[tuple[int, int]]:
    """Return the lengths of chains and the widths of their rows."""
    if is_slow(engine):
        return [(9, 5)]
    longest = (LONGEST, (5, 17)[list(MODES).index(mode) % 2])
    return [*((length, vocab) for length in LENGTHS for vocab in (5, 17)), longest]


def chain(length: int, vocab: int, mode: str) -> BatchShape:
    """Return three requests of `length` drafts that pass but for the last one, and short ones behind them."""
    return BatchShape((length, 1, length, 3, length, 3, 0), vocab, **MODES[mode], sure=True)


@case("ANY-1", subjects=CHAINS, check="chains", mode=list(MODES), quick=False)
def test_long_chains_of_drafts(op: OpUnderTest, engine: Engine, seed: int, subject: str, mode: str) -> None:
    """Every draft passes, but for the last one of every second request: all steps of all lengths are reached.

    Behind long requests come one of one draft, which is wrong, and some whose first draft passes: a kernel that goes on
    into either is seen.
    """

    def check_chain(length: int, vocab: int) -> None:
        shape = chain(length, vocab, mode)
        greedy = replace(shape, temperature=0.0)
        shapes = [shape, greedy] if "temperature" in names_of(subject) else [shape]
        # Of requests 1, 3, 5, ... the last draft is wrong: here of the long ones.
        shapes.append(replace(greedy, counts=shape.counts[1:]))
        check_each(partial(check_made, op, subject, seed + vocab, one) for one in shapes)

    check_each(partial(check_chain, length, vocab) for length, vocab in chains(engine, mode))


@case(
    "ANY-1",
    subjects=[op for op in CHAINS if names_of(op) & {"draft_sampled", "draft_token_ids_ptr"}],
    check="chains with padding",
    mode=list(MODES),
    quick=False,
)
def test_long_chains_with_padding(op: OpUnderTest, engine: Engine, seed: int, subject: str, mode: str) -> None:
    """One draft of each request is padding or no id.

    An engine that takes it for a draft still has an answer for chains without.
    """
    for length, vocab in chains(engine, mode):
        check(op, make(subject, seed + vocab, replace(chain(length, vocab, mode), special=True)))
