"""Requirements of every op: sizes, threads, repeated calls, boundaries and combinations (contract ANY).

The calls come from `_calls`, the axes from `verispec.cases`, the boundaries from the comparisons of each op's oracle:
an op that is added there has all these cases.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.axes import BATCHES, SERIES, all_pairs, around, told_sizes
from verispec.cases.boundaries import Boundary, boundaries
from verispec.engines import Engine, Unsupported, UnsupportedCall
from verispec.judge import (
    LAYOUTS,
    Failure,
    Inconclusive,
    Kind,
    Mismatch,
    OpCall,
    OpUnderTest,
    check_repeated,
    is_repeatable,
)
from verispec.judge.resources import in_use
from verispec.reference import contracts, oracle
from verispec.run.logs import announce
from verispec.run.record import FAULT
from verispec.suites.sampler._boundary_calls import complete, fits, made_by_the_harness, shapes_of, structure
from verispec.suites.sampler._callers import from_caller, updated_in_place
from verispec.suites.sampler._calls import MAKERS, BatchShape, MadeCall, make
from verispec.suites.sampler._combinations import axes_of, combination, held
from verispec.suites.sampler._few_tokens import LEFT
from verispec.suites.sampler._rare import RARE, rare_calls
from verispec.suites.sampler._refusals import check_each, try_each
from verispec.suites.sampler._threads import openmp_threads

OPS = sorted(MAKERS)
WORK = 66_000
"""Tokens of a call: past 65,536, the largest threshold from which kernels are known to use threads."""
MODES: dict[str, dict[str, Any]] = {
    "plain": {"draft": True, "synthetic": False},
    "other": {"draft": False, "synthetic": True},
    "bare": {"draft": False, "synthetic": False},
    "both": {"draft": True, "synthetic": True},
}
"""Options of a call's shape."""
PROGRAMS = 300
"""Requests at most where each takes milliseconds, as in Triton's interpreter."""


def check(op: OpUnderTest, call: MadeCall, **options: Any) -> None:
    """Compare one call with the oracle."""
    op.check_outputs(call.values, shapes=call.shapes, compare=call.compare, **options)


def check_made(op: OpUnderTest, subject: str, seed: int, shape: BatchShape) -> None:
    """Make a call of that shape, and compare it with the oracle."""
    check(op, make(subject, seed, shape))


def uses_rows(op: str) -> bool:
    """Return True if the op's work grows with the vocabulary."""
    return "V" in contracts.load(op).axes


DRAWN_PER_ID = ("gumbel_sample", "residual_resample")
"""Ops whose oracles draw one number per id of the vocabulary, one at a time."""
SQUARE = ("build_draft_tree",)
"""Ops with an output that grows with the square of a request's drafts."""


@case("ANY-1", subjects=OPS, size=["tokens", "vocabulary"], quick=False)
def test_sizes_around_the_implementation_s_own(
    op: OpUnderTest, engine: Engine, seed: int, subject: str, size: str
) -> None:
    """Take sizes around the reported tiles, else around a series: a vocabulary of that size, or one long request.

    The long request is the last one, or lies between others.
    """
    told = told_sizes(engine, subject)
    most = 2100 if is_slow(engine) else 16_400
    sizes = around(SERIES, most)
    rng = np.random.default_rng(seed)
    chosen = {*sizes[:4], *rng.choice(sizes[4:], 14, replace=False).tolist()}
    if size == "vocabulary":
        # Told sizes once each: several tiles and a part of one, and one tile by one less or more.
        chosen |= {n for tile in told for n in (3 * tile + 1, tile + int(rng.integers(-1, 2))) if 0 < n <= 16_400}
    shapes = []
    counts: tuple[int, ...]
    for n in sorted(chosen):
        if size == "vocabulary":
            counts = (3, 1, 0, 2) if n <= 512 else (2, 0, 1) if subject in DRAWN_PER_ID else (3, 4, 0, 2, 5, 1, 1)
            shapes.append(BatchShape(counts, n, exact=bool(n % 2)))
            if 1000 < n <= 5000 and not is_slow(engine):
                shapes.append(BatchShape(counts[:3], n, draft=bool(n // 2 % 2), synthetic=True))
        elif n <= (300 if subject in SQUARE else 1100) or (not uses_rows(subject) and subject not in SQUARE):
            # The output of a request of n drafts has n + 1 columns for each request.
            counts = (1, n, 0) if n % 2 else (0, n)
            shapes.append(BatchShape(counts, 5, draft=bool(n % 3), synthetic=bool(n // 2 % 2)))
    check_each(partial(check_made, op, subject, seed, shape) for shape in shapes)


@case(
    "ANY-2",
    subjects=OPS,
    requests=list(BATCHES),
    mode=["plain", "other"],
    reach=from_caller("as many requests as a server has at a time"),
)
def test_any_number_of_requests(op: OpUnderTest, seed: int, subject: str, requests: int, mode: str) -> None:
    """Every request has its own number of drafts, none among them; `mode` other is the op's second mode.

    The first one has a draft: not every engine calls its ops in a step without any.
    """
    counts = (1 + seed % 3, *((7 * b + seed) % 4 for b in range(1, requests)))
    check(op, make(subject, seed, BatchShape(counts, 19, draft=mode == "plain", synthetic=mode == "other")))


@case("ANY-2", subjects=OPS, check="no drafts", mode=["plain", "other"])
def test_batches_without_any_draft(op: OpUnderTest, seed: int, subject: str, mode: str) -> None:
    """One column of tokens, and no rows of drafts at all."""
    for requests in (1, 2, 65):
        check(
            op, make(subject, seed, BatchShape((0,) * requests, 19, draft=mode == "plain", synthetic=mode == "other"))
        )


@case("ANY-2", subjects=OPS, check="past 65,536", mode=list(MODES))
def test_very_many_rows(op: OpUnderTest, engine: Engine, seed: int, subject: str, mode: str) -> None:
    """Past every threshold and every 16-bit index; copies of a batch of 61 requests where the op has rows alone."""
    if is_repeatable(op.contract):
        call = make(subject, seed, some_requests(seed, 61, 2, mode))
        copies = PROGRAMS // 61 if is_slow(engine) else WORK // 61 + 1
        check_repeated(op, call.values, copies, shapes=call.shapes, compare=call.compare)
        return
    counts = (1,) * PROGRAMS if is_slow(engine) else (1, 0, 2, 1) * 16_500
    check(op, make(subject, seed, BatchShape(counts, 2, **MODES[mode])))


def some_requests(seed: int, requests: int, vocab: int, mode: str, drafts: int = 3, **options: Any) -> BatchShape:
    """Return requests with 0 to `drafts` drafts each, in one of `MODES`."""
    counts = tuple((11 * b + seed) % (drafts + 1) for b in range(requests))
    return BatchShape(counts, vocab, **MODES[mode], **options)


def is_slow(engine: Engine) -> bool:
    """Return True if an engine runs in an interpreter."""
    return any("interpreter" in str(text) for text in engine.describe().details.values())


@case(
    "ANY-3",
    subjects=OPS,
    threads=["2", "3", "8", "1"],
    work=["rows", "tokens"],
    reach=from_caller("a server with another number of cores"),
    on="cpu",
    quick=False,
)
def test_any_number_of_threads(
    op: OpUnderTest, engine: Engine, record: dict[str, Any], seed: int, subject: str, threads: str, work: str
) -> None:
    """Work enough for every kernel to share it out: many requests, or fewer with wide rows, in the other mode too.

    What is wrong in one thread and in two has another reason, and production need not meet it.
    """
    shape = BatchShape((2, 0, 1, 3) * (WORK // 6), 2) if work == "tokens" else BatchShape((2, 1, 0, 3) * 24, 1200)
    if is_slow(engine) or (work == "tokens" and contracts.load(subject).family != "flat"):
        # Their oracles draw by counter, one number at a time; their kernels share out rows times vocabulary.
        shape = BatchShape((2, 0, 1, 3) * 9, 70)
    shapes = [shape]
    if work == "rows" and not is_slow(engine):
        shapes.append(BatchShape((2, 1, 0, 1) * 18, 1200, draft=threads != "3", synthetic=True))
        if threads == "8" and uses_rows(subject) and subject not in DRAWN_PER_ID:
            # Fewer requests than threads: a kernel may share out each row, one request after the other.
            shapes.append(BatchShape((3, 2, 0, 4, 1), 12_000))
    for each in shapes:
        call = make(subject, seed, each)
        try:
            with openmp_threads(int(threads)):
                check(op, call)
        except Mismatch:
            if threads == "1":
                record["reach"] = record["reach"] if is_right_in(2, op, call) else ""
            elif not is_right_in(1, op, call):
                reason = "one thread is wrong already, so that several show nothing about threads"
                raise Inconclusive(reason) from None
            raise


def is_right_in(threads: int, op: OpUnderTest, call: MadeCall) -> bool:
    """Return True if a call is right in so many threads."""
    try:
        with openmp_threads(threads):
            check(op, call)
    except Mismatch:
        return False
    return True


@case("ANY-4", subjects=OPS)
def test_calls_do_not_see_earlier_ones(op: OpUnderTest, seed: int, subject: str) -> None:
    """Large, small, large again, another mode, then the first once more: each is the oracle's."""
    rng = np.random.default_rng(seed)
    shapes = [
        BatchShape((3, 1, 5, 3), 23),
        BatchShape((1,), 7),
        BatchShape((0, 2), 23, draft=False),
        BatchShape((5, 4, 0, 3, 1, 2), 40, synthetic=True),
        BatchShape((3, 1, 5, 3), 23),
    ]
    calls = [make(subject, seed + (0 if i == 4 else i), shape) for i, shape in enumerate(shapes)]
    order = [*range(len(calls)), *rng.integers(0, len(calls), size=4).tolist()]
    check_each(partial(check, op, calls[i]) for i in order)


@case("ANY-4", subjects=[op for op in OPS if op not in SQUARE], check="other values in the same memory")
def test_other_values_in_the_same_memory(op: OpUnderTest, engine: Engine, seed: int, subject: str) -> None:
    """Buffers that are filled anew before each step: what a kernel keeps by their address is stale."""
    shape = BatchShape((3, 1, 2), 9)
    most = 3 if is_slow(engine) else 20
    calls = (make(subject, seed + i, shape) for i in range(160))
    first = shapes_in(op, make(subject, seed, shape))
    alike = list(itertools.islice((call for call in calls if shapes_in(op, call) == first), most))
    for dtypes in ({}, {t.name: "int64" for t in op.contract.tensors if {"int32", "int64"} == set(t.dtypes)}):
        op.check_in_place([OpCall(call.values, dtypes, {}, call.shapes, call.compare) for call in alike])


def shapes_in(op: OpUnderTest, call: MadeCall) -> dict[str, Sequence[int]]:
    """Return the shapes of all tensors of a call."""
    guarded, _ = op.materialise(OpCall(call.values, {}, {}, call.shapes, call.compare))
    return {name: g.view.shape for name, g in guarded.items()}


@case("ANY-4", subjects=OPS, check="hundred calls")
def test_the_hundredth_call_is_as_the_first(op: OpUnderTest, engine: Engine, seed: int, subject: str) -> None:
    """Small calls, and behind them one of 290 requests."""
    shapes = [BatchShape((2, 1, 3), 9, draft=i % 2 == 0, synthetic=i % 3 == 0) for i in range(100)]
    shapes += [BatchShape((2, 0, 1, 0, 1) * (2 if is_slow(engine) else 58), 5)]
    check_each(partial(check_made, op, subject, seed + i, shape) for i, shape in enumerate(shapes))


FEW = (2, 1, 3, 0, 1, 2, 1, 3, 2, 0)
"""Requests of a small call, enough for every branch of a kernel that random values choose."""


@case("ANY-4", subjects=OPS, check="hundred calls of each dtype")
def test_the_hundredth_call_of_each_dtype(op: OpUnderTest, seed: int, subject: str) -> None:
    """Calls with integers of each width that are right at first are right after a hundred calls."""

    def check_width(i: int) -> None:
        call = make(subject, seed, BatchShape(FEW, 9, draft=i == 0, synthetic=i == 1))
        widths = {t.name: t.dtypes[i] for t in op.contract.tensors if set(t.dtypes) == {"int32", "int64"}}
        check(op, call, dtypes=widths)

    check_after_hundred_calls(op, make(subject, seed, BatchShape(FEW, 9)), (0, 1), check_width)


@case("ANY-4", subjects=OPS, check="hundred calls of each layout")
def test_the_hundredth_call_of_each_layout(op: OpUnderTest, engine: Engine, seed: int, subject: str) -> None:
    """Calls with strides of each kind, in all tensors or in one, that are right at first are right afterwards too.

    So are calls with the same strides and other values, and the first values after these: an engine that keeps a copy
    of a tensor, by its layout, has to make it anew. Without an optional input others decide more: drafts alone say what
    is left of a row.
    """
    shapes = [BatchShape(FEW, 9, synthetic=synthetic) for synthetic in (False, True)]
    shapes.append(BatchShape(FEW, 9, draft=False))
    *calls, absent = (make(subject, seed, shape) for shape in shapes)
    others = {id(call): make(subject, seed + 1, shape) for call, shape in zip((*calls, absent), shapes, strict=True)}
    names = [t.name for t in op.contract.tensors]
    groups = [names, *([name] for name in names if not is_slow(engine))]

    def check_layouts(kind: tuple[MadeCall, dict[str, str]]) -> None:
        check(op, kind[0], layouts=kind[1])

    def check_again(kind: tuple[MadeCall, dict[str, str]]) -> None:
        for call in (others[id(kind[0])], kind[0]):
            check(op, call, layouts=kind[1])

    # In turn, so that first calls are fewer than a hundred.
    kinds = [
        (calls[(i + j) % 2], dict.fromkeys(group, layout))
        for i, layout in enumerate(LAYOUTS[1:])
        for j, group in enumerate(groups)
    ]
    if any(value is None and calls[0].values[name] is not None for name, value in absent.values.items()):
        kinds += [(absent, dict.fromkeys(group, LAYOUTS[1])) for group in groups]
    check_after_hundred_calls(op, calls[0], kinds, check_layouts, check_again)


def check_after_hundred_calls(
    op: OpUnderTest,
    call: MadeCall,
    kinds: Sequence[Any],
    check_kind: Callable[[Any], None],
    check_again: Callable[[Any], None] | None = None,
) -> None:
    """Check each kind of call that is right at first again, after a hundred plain calls."""
    right = []
    for kind in kinds:
        with suppress(Mismatch, UnsupportedCall):
            check_kind(kind)
            right.append(kind)
    if not right:
        raise Inconclusive("every first call fails already, so that the hundredth shows nothing about earlier calls")
    make_hundred_calls(op, call)
    for kind in right:
        (check_again or check_kind)(kind)


def make_hundred_calls(op: OpUnderTest, call: MadeCall) -> None:
    """Make a call a hundred times, without a look at its outputs."""
    for _ in range(100):
        op.call(call.values, shapes=call.shapes)


@case("ANY-5", subjects=OPS, quick=False)
def test_boundaries_of_the_oracle_s_comparisons(op: OpUnderTest, seed: int, subject: str) -> None:
    """Each comparison of the oracle at equality and beside it at several steps, with draft probabilities or not."""
    base = [
        make(subject, seed + i, BatchShape((3, 1, 0, 2), vocab, draft, synthetic, exact=True))
        for i, (vocab, draft, synthetic) in enumerate(
            [(5, True, False), (5, False, False), (4, True, True), (7, True, False), (7, False, True)]
        )
    ]
    made, refusal = try_each(partial(complete, op, call) for call in base)

    def check_at(found: Boundary) -> None:
        call = next(call for values, call in made if values.keys() == found.values.keys())
        made_here = made_by_the_harness(op.contract)
        given = {name: value for name, value in found.values.items() if value is None or name not in made_here}
        try:
            check(op, MadeCall(given, shapes_of(op.contract, found.values), call.compare))
        except Mismatch as mismatch:
            mismatch.failure.details["comparison"] = f"{found.text} ({found.relation})"
            raise

    every = boundaries(
        oracle.load(subject), [values for values, _ in made], structure(subject), most=600, places=6,
        rng=np.random.default_rng(seed), fits=lambda values: fits(op.contract, values),
    )  # fmt: skip
    if every:
        check_each((partial(check_at, found) for found in every), refusal)
    else:  # the oracle compares no inputs
        check_each((partial(check, op, call) for call in base), refusal)


PAIR_PARTS = 6
"""Cases of one op's pairs: a kernel that is compiled for each combination has then time for all of them."""


@case("ANY-6", subjects=OPS, part=[*range(1, PAIR_PARTS + 1)])
def test_all_pairs_of_axes(op: OpUnderTest, seed: int, subject: str, part: int) -> None:
    """Every two values of two axes meet: dtypes and layouts of the tensors, batch, vocabulary, modes."""
    rows = all_pairs(axes_of(op.contract, make(subject, seed, BatchShape())), seed=1)
    check_each(partial(check_combination, op, seed, row) for row in rows[part - 1 :: PAIR_PARTS])


def check_combination(op: OpUnderTest, seed: int, row: dict[str, Any]) -> None:
    """Compare a call that has the dtypes, layouts, batch and modes of `row`; say whether strides are ignored."""
    shape = BatchShape(row["counts"], row["vocab"], row["draft"], row["synthetic"])
    call = make(op.contract.name, seed, shape)
    dtypes = {name.removeprefix("dtype "): v for name, v in row.items() if name.startswith("dtype ")}
    leaders = {name: group[0] for group in call.same for name in group}
    dtypes |= {name: dtypes[leader] for name, leader in leaders.items() if leader in dtypes}
    layouts = {name.removeprefix("layout "): v for name, v in row.items() if name.startswith("layout ")}
    described = combination(op.contract, shape, dtypes, layouts)
    announce(described)
    try:
        check(op, held(call, dtypes), dtypes=dtypes, layouts=layouts)
    except Mismatch as wrong:
        found = replace(wrong.failure, message=f"{wrong.failure.message} ({described})")
        if is_right_when_dense(op, held(call, dtypes), dtypes):
            found = replace(found, details={**found.details, FAULT: STRIDES})
        raise Mismatch(found) from wrong


STRIDES = "strides ignored"
"""The fault that the clauses of ops on layouts forbid."""


def is_right_when_dense(op: OpUnderTest, call: MadeCall, dtypes: dict[str, str]) -> bool:
    """Return True if the op passes with all tensors of the call dense."""
    try:
        check(OpUnderTest(op.contract, op.function, op.device), call, dtypes=dtypes)
    except Mismatch:
        return False
    return True


ALIASED = {
    op: [(t.name, t.may_alias) for t in contracts.load(op).outputs if t.may_alias]
    for op in OPS
    if any(t.may_alias for t in contracts.load(op).outputs)
}


@case("ANY-7", subjects=sorted(ALIASED), vocab=[7, 33, 1300], reach=updated_in_place)
def test_an_output_in_the_memory_of_its_input(op: OpUnderTest, seed: int, subject: str, vocab: int) -> None:
    for requests in (1, 5, 66):
        call = make(subject, seed, BatchShape((2,) * requests, vocab))
        for output, source in ALIASED[subject]:
            op.check_aliased(call.values, output, source, call.compare)


@case("ANY-9", subjects=OPS, mode=["plain", "other"])
def test_inputs_may_be_read_only(op: OpUnderTest, seed: int, subject: str, mode: str) -> None:
    """A kernel that changes an input and puts it back changes it for concurrent readers."""
    for counts in ((3, 1, 0, 2), (1,) * 66):
        call = make(subject, seed, BatchShape(counts, 19, draft=mode == "plain", synthetic=mode == "other"))
        op.check_read_only(call.values, shapes=call.shapes)


@case("ANY-13", subjects=RARE, number=["small", "large"])
def test_numbers_at_the_ends_of_their_range(
    op: OpUnderTest, engine: Engine, seed: int, subject: str, number: str
) -> None:
    """A word near 0 or 2^32 decides a draw or an acceptance; 24 of its bits, or a floor below it, decide otherwise.

    So does a sum of masses that is rounded down, below the number of an inverse CDF. After a hundred other calls all
    is as at first.
    """
    calls = rare_calls(subject, np.random.default_rng(seed), number)
    for call in calls:
        check(op, call)
    if not is_slow(engine):
        make_hundred_calls(op, make(subject, seed, BatchShape(FEW, 9)))
        for call in calls:
            check(op, call)


@case(
    "ANY-14",
    subjects=[op for op in OPS if uses_rows(op)],
    left=list(LEFT),
    mode=["plain", "other"],
    reach=from_caller("grammars mask logits"),
)
def test_rows_of_few_possible_tokens(
    op: OpUnderTest, engine: Engine, seed: int, subject: str, left: str, mode: str
) -> None:
    """Whole tiles of a row are impossible: at the start, in the middle, at the end, and all but one."""
    counts = (2, 1, 0) if subject in DRAWN_PER_ID else (3, 1, 0, 2)
    told = max((n for n in told_sizes(engine, subject) if n <= 16_400), default=4096)
    for vocab in (7, 2 * told + 1):
        shape = BatchShape(counts, vocab, draft=mode == "plain", synthetic=mode == "other", left=left)
        check(op, make(subject, seed, shape))


LEAK = 32 << 20
"""Bytes that pass through the calls of ANY-10: if a quarter of them stays, it is more than an allocator's reserve."""


@case("ANY-10", subjects=OPS, quick=False, reach=from_caller("millions of steps"))
def test_calls_keep_nothing(op: OpUnderTest, engine: Engine, seed: int, subject: str) -> None:
    """The memory and the threads of this process, after warm calls and after many more."""
    # No more requests than servers have: an op that takes time by their square is slow, and not wrong.
    call = make(subject, seed, BatchShape((2, 1, 3) * (3 if is_slow(engine) else 300), 30))
    size = sum(v.nbytes for v in call.values.values() if isinstance(v, np.ndarray))
    calls = 5 if is_slow(engine) else max(20, min(LEAK // size, 1600))

    def repeat(times: int) -> tuple[int, int]:
        for _ in range(times):
            op.call(call.values, shapes=call.shapes)
        return in_use()

    memory, threads = repeat(max(calls // 4, 5))
    memory_after, threads_after = repeat(calls)
    if threads_after > threads:
        message = f"{calls} calls left {threads_after - threads} more threads"
        raise Mismatch(Failure(Kind.RESOURCE, message))
    if memory_after - memory > max(size * calls // 4, LEAK // 4):
        message = f"{calls} calls with {size:,} bytes of arguments left {memory_after - memory:,} more bytes in use"
        raise Mismatch(Failure(Kind.RESOURCE, message))


@case("ANY-11", subjects=OPS, quick=False)
def test_another_process_agrees(op: OpUnderTest, another_process: Engine, seed: int, subject: str) -> None:
    """The oracle's answer in this process and in one with another number and other hashes."""
    function = another_process.op(subject)
    if isinstance(function, Unsupported):
        raise UnsupportedCall(function.reason)
    elsewhere = OpUnderTest(op.contract, function, op.device)
    shapes = (BatchShape(), BatchShape((2, 0, 1), 33, draft=False), BatchShape((1,) * 66, 7, synthetic=True))
    calls = [make(subject, seed + i, shape) for i, shape in enumerate(shapes)]
    check_each(partial(check, under_test, call) for call in calls for under_test in (op, elsewhere))
