"""Every op with rows over the vocabulary: likely tokens at the edges of blocks, and rows of any magnitude."""

from __future__ import annotations

from functools import partial

from verispec.cases import case
from verispec.cases.axes import told_sizes
from verispec.engines import Engine
from verispec.judge import OpUnderTest, check_repeated
from verispec.reference import contracts
from verispec.suites.sampler._callers import from_caller
from verispec.suites.sampler._calls import BatchShape, make
from verispec.suites.sampler._edges import COLD, COLDEST, edges_of
from verispec.suites.sampler._faint import FAINT, make_faint
from verispec.suites.sampler._refusals import check_each
from verispec.suites.sampler.test_every_op import DRAWN_PER_ID, MODES, OPS, check, check_made, is_slow, uses_rows
from verispec.suites.sampler.test_every_op_large import REPEATABLE

BLOCKS = (128, 1024)
"""Sizes of blocks and of their parts where an engine states none."""
LOGITS = [
    op
    for op in OPS
    if uses_rows(op)
    and {"temperature", "logits"} & {p.name for p in contracts.load(op).params}
    and op not in ("block_verification", "synthetic_rejection")
]
"""Ops with rows of logits. Of two rows with nearly all mass on one token block verification compares what is left."""


@case("ANY-1", subjects=[op for op in OPS if uses_rows(op)], check="edges", mode=["plain", "other", "both"])
def test_likely_tokens_at_the_edges_of_blocks(
    op: OpUnderTest, engine: Engine, seed: int, subject: str, mode: str
) -> None:
    """The likeliest tokens are the first or last ones of a block, or of a part of it; limits keep a few of them.

    The work is enough for several threads, which share out requests, or the rows of one request of many drafts.
    """
    sizes = [n for n in told_sizes(engine, subject) if n <= 16_400] or BLOCKS
    most, is_dear = max(sizes), is_slow(engine) or subject in DRAWN_PER_ID
    many, one = ((2, 0, 1), (1,)) if is_dear else ((2, 1, 0, 3, 1) * 5, (17,))

    def check_edges(counts: tuple[int, ...], vocab: int) -> None:
        check_made(op, subject, seed, BatchShape(counts, vocab, edges=edges_of(sizes, vocab), **MODES[mode]))

    check_each([partial(check_edges, many, 2 * most + 5), partial(check_edges, one, max(2 * most, 4096) + 5)])


@case(
    "ANY-1",
    subjects=[op for op in REPEATABLE if uses_rows(op)],
    check="edges of wide rows",
    mode=["other", "both"],
    quick=False,
)
def test_edges_of_many_blocks_and_of_many_rows(
    op: OpUnderTest, engine: Engine, seed: int, subject: str, mode: str
) -> None:
    """Rows of more than 64 blocks, and copies of a few rows of eight and of two blocks, a hundred rows and more."""
    few = (2, 1, 3, 0)
    groups: list[tuple[tuple[int, ...], int, int]] = [((2, 1) * 3, 65, 1), (few, 8, 12), (few, 2, 100)]
    if is_slow(engine) or subject in DRAWN_PER_ID:
        groups = [((1,), 9, 1), (few, 2, 2)]
    for counts, blocks, copies in groups:
        vocab = blocks * 1024 + 5
        edges = edges_of((1024, 64 * 1024), vocab)
        call = make(subject, seed, BatchShape(counts, vocab, edges=edges, **MODES[mode]))
        check_repeated(op, call.values, copies, shapes=call.shapes, compare=call.compare)


@case(
    "ANY-2",
    subjects=LOGITS,
    check="cold requests",
    mode=list(MODES),
    reach=from_caller("temperatures near 0 beside others"),
)
def test_requests_near_temperature_0_beside_others(op: OpUnderTest, seed: int, subject: str, mode: str) -> None:
    """Logits of one request are a thousand or a million times those of the next: no maximum serves for both."""
    for counts, vocab in (((3, 1, 0, 2) * 4, 33), ((1, 2) * 9, 300)):
        cold = COLD if mode == "plain" else COLDEST
        check_made(op, subject, seed, BatchShape(counts, vocab, cold=cold, **MODES[mode]))


@case(
    "ANY-15",
    subjects=FAINT,
    bits=[24, 40, 100],
    reach=lambda p: from_caller("150,000 ids of such a probability are drafted")(p) if p["bits"] == 24 else None,
)
def test_drafts_of_small_probability(op: OpUnderTest, seed: int, subject: str, bits: int) -> None:
    """Both models give every draft little: a small number that is added to one, or a floor, decides otherwise."""
    for counts, vocab in (((3, 1, 0, 2) * 12, 33), ((1, 2, 5) * 3, 1300)):
        call = make(subject, seed, BatchShape(counts, vocab))
        make_faint(subject, call, bits)
        check(op, call)
