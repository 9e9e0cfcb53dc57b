"""Every op with the calls of its own clauses' cases, joined to large batches.

A clause's case has a few requests. A kernel that takes another path from the 64th request on, in a second thread or
after a hundred rows meets the clause's values there too.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.engines import Engine
from verispec.judge import Inconclusive, Mismatch, OpCall, OpUnderTest, check_repeated, row_sizes
from verispec.suites.sampler._calls import BatchShape, MadeCall, make
from verispec.suites.sampler._collected import calls_of, elements, is_repeated_alike, shared_part
from verispec.suites.sampler._refusals import Undecided, try_each
from verispec.suites.sampler._threads import openmp_threads
from verispec.suites.sampler.test_every_op import PROGRAMS, WORK, is_slow
from verispec.suites.sampler.test_every_op_large import ALREADY, REPEATABLE, is_right, together

LARGEST, OTHERS = 3, 1
"""Groups of an op: the largest ones, which hold most calls, and one of the others, by the seed."""
ENOUGH, ROWS = 80_000, 110
"""Rows times vocabulary that every kernel shares out among threads, and rows past a hundred."""
LARGE = 2_000_000
"""Elements of a batch at most."""
Group = tuple[dict[str, str], list[MadeCall]]
"""Dtypes, and calls that make one batch."""


@case("ANY-2", subjects=REPEATABLE, check="calls of its clauses", quick=False)
def test_calls_of_its_clauses_in_large_batches(op: OpUnderTest, engine: Engine, seed: int, subject: str) -> None:
    """Copies of joined calls, in two threads: of the largest group past 65,536 requests.

    Calls that are wrong alone are left out: the cases of their clauses test them.
    """
    groups, refusal = groups_of(op, seed)
    right = 0
    with openmp_threads(2):
        for dtypes, calls in groups[:1] if is_slow(engine) else groups:
            most = PROGRAMS if is_slow(engine) else WORK
            right += check_group(op, dtypes, calls, most if calls is groups[0][1] else 0)
    if refusal:
        raise refusal
    if not right:
        raise Inconclusive(ALREADY)


def groups_of(op: OpUnderTest, seed: int) -> tuple[list[Group], Undecided | None]:
    """Return groups of calls of the op's clauses that can be joined, the largest first.

    The second result is the first refusal.
    """
    compare = make(op.contract.name, seed, BatchShape()).compare
    known = {function.__qualname__ for function in compare.values()}
    calls = [c for c in calls_of(op.contract.name, seed) if known >= {f.__qualname__ for f in c.compare.values()}]
    groups: dict[Any, Group] = {}

    def complete(call: OpCall) -> None:
        with suppress(Mismatch):
            values, _ = op.call(call.values, dtypes=call.dtypes, shapes=call.shapes)
            key = (*sorted(call.dtypes.items()), shared_part(op.contract, values))
            groups.setdefault(key, (dict(call.dtypes), []))[1].append(MadeCall(values, {}, compare))

    refusal = try_each(partial(complete, call) for call in calls)[1]
    ordered = sorted(groups.values(), key=lambda group: len(group[1]), reverse=True)
    others = ordered[LARGEST:]
    drawn = np.random.default_rng(seed).permutation(len(others))[:OTHERS].tolist()
    return [*ordered[:LARGEST], *(others[i] for i in drawn)], refusal


def check_group(op: OpUnderTest, dtypes: dict[str, str], calls: list[MadeCall], requests: int) -> bool:
    """Compare copies of joined calls; return False if no call is right alone.

    Args:
        op: the op under test.
        dtypes: dtype by tensor, instead of the production dtype.
        calls: calls that can be joined.
        requests: requests of the large batch; 0 for enough to share them out among threads.

    Raises:
        Mismatch: a request of the large batch is wrong that is right alone.
    """

    def check_joined(calls: list[MadeCall]) -> None:
        call = together(op, calls)
        rows = max(1, *row_sizes(op.contract, call.values).values())
        work = rows * max((np.shape(value)[-1] for value in call.values.values() if np.ndim(value) > 1), default=1)
        copies = requests // rows if requests else max(ENOUGH // max(work, 1), ROWS // rows)
        copies = min(copies, LARGE // max(elements(call.values), 1))
        check_repeated(op, call.values, copies + 1, shapes=call.shapes, compare=call.compare, dtypes=dtypes)

    calls = [call for call in calls if is_repeated_alike(op.contract, call.values)]
    if not calls:
        return False
    try:
        check_joined(calls)
    except Mismatch:
        right = [call for call in calls if is_right(op, together(op, [call]), dtypes)]
        if len(right) == len(calls):
            raise
        if right:
            check_joined(right)
        return bool(right)
    return True
