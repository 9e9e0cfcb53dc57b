"""Every op in large calls: unusual dtypes and layouts, and operands at a comparison, past sizes where kernels change.

A kernel may take another path for many requests, for wide rows, or in a second thread. So dtypes, strides, equalities
and special values, which small calls test, are tested there again. A small call that fails already shows nothing about
the size.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.boundaries import boundaries
from verispec.engines import Engine
from verispec.judge import Inconclusive, Mismatch, OpUnderTest, check_repeated, is_repeatable, joined
from verispec.reference import contracts, oracle
from verispec.run.logs import announce
from verispec.suites.sampler._boundary_calls import complete, fits, made_by_the_harness, shapes_of, structure
from verispec.suites.sampler._callers import from_caller
from verispec.suites.sampler._calls import BatchShape, MadeCall, make
from verispec.suites.sampler._collected import shared_part
from verispec.suites.sampler._combinations import axes_of, combination, held
from verispec.suites.sampler._refusals import Undecided, check_each, try_each
from verispec.suites.sampler._threads import openmp_threads
from verispec.suites.sampler.test_every_op import (
    DRAWN_PER_ID,
    MODES,
    OPS,
    PROGRAMS,
    SQUARE,
    WORK,
    check,
    is_right_in,
    is_slow,
    some_requests,
    uses_rows,
)

REPEATABLE = [op for op in OPS if is_repeatable(contracts.load(op))]
COMPARING = [op for op in REPEATABLE if op not in ("flatten_sampled", "philox")]
"""Ops whose oracles compare inputs."""
COMPARES_ARGMAX = (
    "block_verification", "probabilistic_rejection", "verify_draft_logits", "verify_greedy", "verify_one_hot",
)  # fmt: skip
"""Ops that compare drafts with the argmax of a row of logits."""
ALREADY = "the small batch is wrong already, so that the large one shows nothing about the size"


SPECIAL = [
    *(op for op in REPEATABLE if op not in ("expand_batch_to_tokens", "philox")),
    "build_draft_tree",
    "compute_slot_mapping",
    "eagle_step_slot_mapping_metadata",
]
WHOLE_BATCH = [op for op in OPS if op not in REPEATABLE]
"""Ops of which a large batch is no copies of a small one: the oracle runs for all of its requests."""


@case("ANY-2", subjects=SPECIAL, check="special values", requests=[23, 69, 66_010], mode=list(MODES))
def test_special_values_in_large_batches(
    op: OpUnderTest, engine: Engine, seed: int, subject: str, requests: int, mode: str
) -> None:
    """Copies of 23 or 115 requests with padding tokens, NaN and minus infinity, over few ids, over more and over many.

    A batch that is wrong when it is small shows nothing about its size: the case of 23 requests tests it.
    """
    most = min(requests, PROGRAMS if is_slow(engine) else requests)
    own = 115 if most > 1000 else 23
    if not is_repeatable(op.contract):
        check(op, make(subject, seed, some_requests(seed, most, 2, mode, special=True)))
        return
    right = []

    def check_rows(vocab: int) -> None:
        small, large = (
            make(subject, seed + vocab, some_requests(seed, n, vocab, mode, drafts=6, special=True)) for n in (23, own)
        )
        if requests == 23:
            check_each(partial(check_in, op, small, dtypes) for dtypes in dtypes_of_rows(op, small))
        elif is_right(op, small):
            check_repeated(op, large.values, most // own, shapes=large.shapes, compare=large.compare)
        else:
            return
        right.append(vocab)

    widths = (3, 20, 1300) if requests == 23 and uses_rows(subject) and not is_slow(engine) else (3, 20)
    check_each(partial(check_rows, vocab) for vocab in widths)
    if not right:
        raise Inconclusive(ALREADY)


def check_in(op: OpUnderTest, call: MadeCall, dtypes: dict[str, str]) -> None:
    """Compare a call whose rows have these dtypes; a failure names others that are right.

    Raises:
        Mismatch: the call is wrong.
    """
    try:
        check(op, held(call, dtypes), dtypes=dtypes)
    except Mismatch as wrong:
        others = [other for other in dtypes_of_rows(op, call) if other != dtypes]
        right = [names_of_dtypes(other) for other in others if is_right(op, held(call, other), other)]
        if not right:
            raise
        message = f"{wrong.failure.message} ({names_of_dtypes(dtypes)}; right with {' or '.join(right)})"
        raise Mismatch(replace(wrong.failure, message=message)) from wrong


def names_of_dtypes(dtypes: Mapping[str, str]) -> str:
    """Return the different dtypes of a call's rows, in words."""
    return " and ".join(dict.fromkeys(dtypes.values()))


ROWS = {"logits", "target_logits", "draft_logits", "target_probs", "draft_probs"}
"""Parameters with rows over the vocabulary, without the ending of pointers."""


@case("ANY-2", subjects=[op for op in REPEATABLE if uses_rows(op)], check="rows without mass", mode=["plain", "both"])
def test_rows_without_mass_past_65_536_requests(
    op: OpUnderTest, engine: Engine, seed: int, subject: str, mode: str
) -> None:
    """Of some rows over the vocabulary no token is possible, in copies of 61 requests."""
    call = make(subject, seed, some_requests(seed, 61, 5, mode))
    take_mass(np.random.default_rng(seed), call)
    if not is_right(op, call):
        raise Inconclusive(ALREADY)
    copies = 1 if is_slow(engine) else WORK // 61 + 1
    check_repeated(op, call.values, copies, shapes=call.shapes, compare=call.compare)


def take_mass(rng: np.random.Generator, call: MadeCall) -> None:
    """Leave no possible token in every fourth row of logits or probabilities."""
    for name, values in call.values.items():
        if values is not None and name.removesuffix("_ptr") in ROWS:
            values[rng.random(values.shape[:-1]) < 0.25] = 0.0 if "probs" in name else -np.inf


OPTIONS = {
    "is_greedy_ptr", "discard_request_mask_ptr", "temperature", "top_k", "top_p", "k", "p",
}  # fmt: skip
"""Parameters that a request chooses."""
CHOOSING = [op for op in OPS if OPTIONS & {t.name for t in contracts.load(op).tensors}]
"""Ops with such parameters."""
AGAIN = 60
"""Calls of many wide rows in each mode, of some milliseconds each."""
MANY_AGAIN = 1000
"""Calls of many short requests, of less than a millisecond each."""
FIRST, LATE = 150, 23
"""Requests with one choice, and requests behind them with others."""


@case(
    "ANY-2",
    subjects=CHOOSING,
    check="late choices",
    mode=["plain", "other", "bare"],
    reach=from_caller("greedy requests come last, or last in a large batch"),
)
def test_late_requests_choose_otherwise(op: OpUnderTest, seed: int, subject: str, mode: str) -> None:
    """The first requests have one temperature, limit or mask: a look at them tells nothing about the batch."""
    for first in (np.min, np.max):
        call = make(subject, seed, some_requests(seed, FIRST + LATE, 19, mode))
        states = call.values.get("idx_mapping", call.values.get("expanded_idx_mapping", np.arange(FIRST + LATE)))
        states = states[: len(states) - LATE]
        for name in OPTIONS & call.values.keys():
            if (chosen := call.values[name]) is not None:
                chosen[states[states >= 0]] = first(chosen)
        check(op, call)


def dtypes_of_rows(op: OpUnderTest, call: MadeCall) -> list[dict[str, str]]:
    """Return every dtype that the tensors with a vocabulary may have, the production dtypes first."""
    wide = [t for t in op.contract.tensors if "V" in t.shape and len(t.dtypes) > 1]
    found = []
    for i in range(max((len(t.dtypes) for t in wide), default=1)):
        dtypes = {t.name: t.dtypes[i % len(t.dtypes)] for t in wide}
        found.append(dtypes | {name: dtypes[group[0]] for group in call.same for name in group if group[0] in dtypes})
    return found


@case(
    "ANY-3",
    subjects=[op for op in SPECIAL if uses_rows(op)],
    check="special values",
    reach=from_caller("a server with another number of cores"),
    on="cpu",
    quick=False,
)
def test_special_values_in_every_thread(op: OpUnderTest, engine: Engine, seed: int, subject: str) -> None:
    """Padding, ids past the vocabulary, NaN and infinity, in work enough for every kernel to share it out.

    Rows are of the production dtype, and of both narrow ones where the engine takes them. The second call has limits,
    and rows with blocks in which no token is possible.
    """
    requests, vocab = (9, 70) if is_slow(engine) else (48, 1200)
    calls = [
        make(subject, seed, some_requests(seed, requests, vocab, mode, special=True, left=left))
        for mode, left in (("plain", ""), ("both", "range"), ("plain", ""))
    ]
    given = [(held(call, dtypes), dtypes) for call, dtypes in zip(calls, dtypes_of_rows(op, calls[0]), strict=False)]
    given += [(calls[1], {})] if len(given) == 1 else []
    with openmp_threads(1):
        answers, refusal = try_each(partial(is_right_with, op, *one) for one in given)
    right = [one for one in answers if one]
    if not right:
        raise refusal or Inconclusive("one thread is wrong already, so that several show nothing about threads")
    with openmp_threads(3):
        for call, dtypes in right:
            check(op, call, dtypes=dtypes)


@case(
    "ANY-3",
    subjects=[op for op in OPS if uses_rows(op) and op not in DRAWN_PER_ID],
    check="wide rows again",
    reach=from_caller("a server with another number of cores"),
    on="cpu",
    quick=False,
)
def test_wide_rows_in_threads_again(
    op: OpUnderTest, engine: Engine, record: dict[str, Any], seed: int, subject: str
) -> None:
    """Calls of many wide rows in three threads, one after the other, until each thread was interrupted in some row.

    Threads that share memory for a row disturb each other in few rows where cores are busy, so that one call may pass.
    """
    shape = BatchShape((3,) * 24, 300 if is_slow(engine) else 24_000)
    calls = [make(subject, seed, replace(shape, draft=draft)) for draft in (True, False)]

    def check_call(call: MadeCall) -> None:
        try:
            with openmp_threads(3):
                op.check_again(call.values, 2 if is_slow(engine) else AGAIN, shapes=call.shapes, compare=call.compare)
        except Mismatch:
            record["reach"] = record["reach"] if is_right_in(1, op, call) else ""
            raise

    check_each(partial(check_call, call) for call in calls)


@case(
    "ANY-3",
    subjects=[op for op in OPS if not uses_rows(op) and op not in SQUARE],
    check="many requests again",
    reach=from_caller("a server with another number of cores"),
    on="cpu",
    quick=False,
)
def test_many_requests_in_threads_again(
    op: OpUnderTest, engine: Engine, record: dict[str, Any], seed: int, subject: str
) -> None:
    """Calls of many short requests in two threads, one after the other: each starts where the threads run at once.

    A variable that threads share for one request is wrong for a few nanoseconds, so that most calls pass.
    """
    call = make(subject, seed, BatchShape((2, 0, 1, 3) * (9 if is_slow(engine) else WORK // 12), 2))
    try:
        with openmp_threads(2):
            op.check_again(call.values, 2 if is_slow(engine) else MANY_AGAIN, shapes=call.shapes, compare=call.compare)
    except Mismatch:
        record["reach"] = record["reach"] if is_right_in(1, op, call) else ""
        raise


def covering(axes: dict[str, list[Any]], rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return combinations that hold every value of every axis once or more, in random order."""
    orders = {name: rng.permutation(len(values)).tolist() for name, values in axes.items()}
    return [
        {name: values[orders[name][i % len(values)]] for name, values in axes.items()}
        for i in range(max(map(len, axes.values())))
    ]


def with_modes(subject: str, seed: int, rows: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Return the combinations with modes in turn, and some again in another mode.

    These have a dtype of an optional tensor that the mode of its turn does not give.
    """
    calls = {mode: make(subject, seed, some_requests(seed, 4, 3, mode)) for mode in MODES}
    given = {mode: {name for name, value in call.values.items() if value is not None} for mode, call in calls.items()}
    fullest = max(MODES, key=lambda mode: len(given[mode]))
    leaders = {name: group[0] for group in calls[fullest].same for name in group}

    def values(row: dict[str, Any], mode: str) -> set[tuple[str, str]]:
        axes = {name: f"dtype {leaders.get(name, name)}" for name in given[mode]}
        return {(name, row[axis]) for name, axis in axes.items() if axis in row}

    planned = list(zip(rows, itertools.cycle(MODES), strict=False))
    met = set().union(*itertools.starmap(values, planned))
    for row in rows:
        if values(row, fullest) - met:
            planned.append((row, fullest))
            met |= values(row, fullest)
    return planned


@case("ANY-6", subjects=OPS, size=["requests", "vocabulary"])
def test_dtypes_and_layouts_in_large_calls(op: OpUnderTest, engine: Engine, seed: int, subject: str, size: str) -> None:
    """Rows of 1,300 tokens in 72 requests with every layout and dtype, or past 65,536 requests with two of each.

    The modes follow each other.

    What fails in few requests with short rows shows nothing about the size.
    """
    if size == "vocabulary" and not uses_rows(subject):
        size = "requests"
    vocab, requests = (1300, 4) if size == "vocabulary" else (3, 61 if is_slow(engine) else 305)
    total = 72 if size == "vocabulary" else WORK
    copies = 2 if is_slow(engine) else total // requests + 1
    made = requests * copies if subject in WHOLE_BATCH else requests
    axes = axes_of(op.contract, make(subject, seed, BatchShape()))
    axes = {k: v for k, v in axes.items() if k.startswith(("dtype ", "layout "))}
    rows = covering(axes, np.random.default_rng(seed))
    right = []

    def check_row(row: dict[str, Any], mode: str) -> None:
        few = some_requests(seed, 4, min(vocab, 130), mode)
        small, large = (make(subject, seed, shape) for shape in (few, some_requests(seed, made, vocab, mode)))
        dtypes = {name.removeprefix("dtype "): v for name, v in row.items() if name.startswith("dtype ")}
        dtypes |= {name: dtypes[group[0]] for group in large.same for name in group if group[0] in dtypes}
        layouts = {name.removeprefix("layout "): v for name, v in row.items() if name.startswith("layout ")}
        shape = BatchShape((0,) * requests * copies, vocab)
        announce(combination(op.contract, shape, dtypes, layouts))
        options: dict[str, Any] = {"dtypes": dtypes, "layouts": layouts}
        try:
            check(op, held(small, dtypes), **options)
        except Mismatch:
            return
        given = held(large, dtypes)
        if subject in WHOLE_BATCH:
            check(op, given, **options)
        else:
            check_repeated(op, given.values, copies, shapes=given.shapes, compare=given.compare, **options)
        right.append(row)

    planned = with_modes(subject, seed, rows)
    check_each(partial(check_row, row, mode) for row, mode in (planned if size == "vocabulary" else planned[:2]))
    if not right:
        raise Inconclusive(ALREADY)


@case("ANY-6", subjects=[op for op in OPS if uses_rows(op) and op not in DRAWN_PER_ID], check="past 65,536 ids")
def test_dtypes_of_rows_past_65_536_ids(op: OpUnderTest, engine: Engine, seed: int, subject: str) -> None:
    """Rows of each dtype in which the first or the last three ids alone are possible, or all of them.

    Without draft probabilities the drafts are among the last three.
    """
    counts, vocab = ((1, 1), 300 if is_slow(engine) else 66_000)
    call = make(subject, seed, BatchShape((3, 3), vocab, draft=False, left="ends"))
    calls = []
    if "draft_token_ids_ptr" in call.values:
        call.values["draft_token_ids_ptr"] = vocab - 1 - np.arange(6) % 3
        calls.append(call)
    calls.append(make(subject, seed, BatchShape(counts * 3, vocab, left="ends", temperature=1.0)))
    call = make(subject, seed, BatchShape(counts, vocab, left="ends"))
    names = {param.name for param in op.contract.params}
    if "top_k" in names:  # more than 16 bits tell apart are kept
        call.values["top_k"] = np.full(len(call.values["temperature"]), vocab - 100)
    mass = next((name for name in ("top_p", "p") if name in names), None)
    if mass:  # by top-p alone too, of tokens that weigh nearly the same
        flat = make(subject, seed, BatchShape(counts, vocab, temperature=1.0, synthetic=True))
        logits = flat.values["target_logits" if "target_logits" in names else "logits"]
        logits[:] = np.random.default_rng(seed).permuted(
            np.broadcast_to(np.arange(vocab) / vocab, logits.shape), axis=1
        )
        states = len(flat.values.get("temperature", logits))
        limits = {"top_k": None, "k": None, mass: np.full(states, 0.9995, np.float32)}
        flat.values.update({name: value for name, value in limits.items() if name in names})
        calls.append(flat)

    def check_dtypes(dtypes: dict[str, str]) -> None:
        announce(", ".join(f"{name} {dtype}" for name, dtype in dtypes.items()))
        check(op, held(call, dtypes), dtypes=dtypes)

    plain = [partial(check, op, one) for one in calls]
    check_each([*plain, *(partial(check_dtypes, dtypes) for dtypes in dtypes_of_rows(op, call))])


@case(
    "ANY-14",
    subjects=[op for op in OPS if uses_rows(op) and op not in DRAWN_PER_ID],
    check="past 262,144 ids",
    mode=["plain", "other"],
    reach=from_caller("grammars mask logits of models of 262,208 ids"),
)
def test_the_largest_vocabulary_of_a_model(op: OpUnderTest, engine: Engine, seed: int, subject: str, mode: str) -> None:
    """Rows longer than 2^18, in which the first or the last three ids alone are possible, or all of them."""
    vocab = 300 if is_slow(engine) else 262_208
    check(op, make(subject, seed, BatchShape((1, 1), vocab, left="ends", **MODES[mode])))


@case("ANY-5", subjects=COMPARING, check="large batches", quick=False)
def test_boundaries_in_large_batches(op: OpUnderTest, engine: Engine, seed: int, subject: str) -> None:
    """Batches of hundreds of requests, each at a comparison of the oracle, and one of them past 65,536 requests."""
    right = 0
    groups, refusal = groups_at_boundaries(op, seed)
    for group in groups[:1] if is_slow(engine) else groups:
        call = together(op, group)
        try:
            check(op, call)
            if not right and not is_slow(engine):
                requests = max(len(v) for v in call.values.values() if isinstance(v, np.ndarray))
                copies = WORK // requests + 1
                check_repeated(op, call.values, copies, shapes=call.shapes, compare=call.compare)
        except Mismatch:
            if not all(is_right(op, together(op, [one])) for one in group):
                continue
            raise
        right += 1
    if refusal:
        raise refusal
    if not right:
        raise Inconclusive(ALREADY)


@case("ANY-5", subjects=COMPARES_ARGMAX, check="ids 65,536 apart")
def test_ids_with_the_same_16_bits(op: OpUnderTest, seed: int, subject: str) -> None:
    """Drafts of greedy requests differ from the argmax of their row in bit 16 alone."""
    shape = BatchShape((1, 2, 0, 1, 1), 2**16 + 5, draft=subject == "verify_draft_logits", temperature=0.0)
    call = make(subject, seed, shape)
    logits, drafts = call.values["target_logits"], call.values["draft_sampled"]
    for row in range(len(logits) - 1):
        token, other = (row % 5, 2**16 + row % 5)[:: 1 - 2 * (row % 2)]
        logits[row, other], drafts[row + 1] = logits[row].max() + 1, token
    check(op, call)


def is_right_with(op: OpUnderTest, call: MadeCall, dtypes: dict[str, str]) -> tuple[MadeCall, dict[str, str]] | None:
    """Return a call with its dtypes if the op passes with it, else None."""
    return (call, dtypes) if is_right(op, call, dtypes) else None


def is_right(op: OpUnderTest, call: MadeCall, dtypes: dict[str, str] | None = None) -> bool:
    """Return True if the op passes with a call of its own."""
    try:
        check(OpUnderTest(op.contract, op.function, op.device), call, dtypes=dtypes)
    except Mismatch:
        return False
    return True


def groups_at_boundaries(op: OpUnderTest, seed: int) -> tuple[list[list[MadeCall]], Undecided | None]:
    """Return calls at the comparisons of an oracle, in groups of equal scalars and tables; the largest group first.

    The second result is the engine's refusal of a mode, whose comparisons are then missing.
    """
    modes = [(5, True, False), (5, False, False), (4, True, True)]
    shapes = [BatchShape((3, 1, 0, 2), vocab, draft, synthetic, exact=True) for vocab, draft, synthetic in modes]
    calls = [make(op.contract.name, seed + i, shape) for i, shape in enumerate(shapes)]
    base, refusal = try_each(partial(complete, op, call) for call in calls)
    compares = {frozenset(values): call.compare for values, call in base}
    groups: dict[Any, list[MadeCall]] = {}
    for found in boundaries(
        oracle.load(op.contract.name), [values for values, _ in base], structure(op.contract.name), most=400, places=6,
        rng=np.random.default_rng(seed), fits=lambda values: fits(op.contract, values),
    ):  # fmt: skip
        call = MadeCall(found.values, {}, compares[frozenset(found.values)])
        groups.setdefault(shared_part(op.contract, found.values), []).append(call)
    return sorted(groups.values(), key=len, reverse=True), refusal


def together(op: OpUnderTest, group: list[MadeCall]) -> MadeCall:
    """Return one call with the requests of a group."""
    large = joined(op.contract, [call.values for call in group])
    made_here = made_by_the_harness(op.contract)
    given = {name: value for name, value in large.items() if value is None or name not in made_here}
    return MadeCall(given, shapes_of(op.contract, large), group[0].compare)
