"""Shrink a failing call: the smallest shapes and the simplest values that still fail in the same way.

A generated case comes here after Hypothesis has shrunk what it drew: requests, tokens, vocabulary and seed. What
follows from the seed, the values themselves, is none of its choices, and a written case has no choices at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from verispec.engines import UnsupportedCall
from verispec.judge import Failure, Mismatch, OpCall, OpUnderTest
from verispec.reference import contracts
from verispec.reference.contracts import Contract
from verispec.saved_calls.smaller import size, variants

LONGEST = 30.0
"""Seconds that shrinking may take: most calls are small within one; a case may take 120 s."""


def shrunk(op: OpUnderTest, call: OpCall, failure: Failure) -> tuple[OpCall, Failure]:
    """Return a smaller call of `op` that fails like `failure`, and its failure; the same ones where none is found.

    A failure that does not depend on what surrounds the tensors goes on without that, so that it also shows where
    nothing surrounds them.

    Args:
        op: the op of the engine under test, which has just failed.
        call: the call that failed.
        failure: its failure; kind and output of the smaller one are the same.
    """
    in_guards = op.under_guards_alone

    def failure_of(candidate: OpCall) -> Failure | None:
        try:
            op.check(candidate)
        except Mismatch as mismatch:
            found = mismatch.failure
            alike = (found.kind, found.output) == (failure.kind, failure.output)
            return found if alike and (in_guards or not op.under_guards_alone) else None
        except (UnsupportedCall, ValueError, KeyError, IndexError, OverflowError):  # outside of the contract
            return None
        return None

    deadline = time.monotonic() + LONGEST
    smallest = minimal(op.contract, call, lambda candidate: failure_of(candidate) is not None, deadline)
    return smallest, failure_of(smallest) or failure  # the last call that `op` shows is the smallest


def minimal(contract: Contract, call: OpCall, fails: Callable[[OpCall], bool], deadline: float) -> OpCall:
    """Return the call that no variant improves: each round takes the first smaller variant that fails."""
    found = True
    while found:
        found = False
        for candidate in variants(contract, call):
            if time.monotonic() > deadline:
                return call
            if size(candidate) < size(call) and allowed(contract, candidate) and fails(candidate):
                call, found = candidate, True
                break
    return call


def allowed(contract: Contract, call: OpCall) -> bool:
    """Return True if `call` keeps to the contract: dtypes that belong together, counts, sizes and strides."""

    def function(**arguments: Any) -> None:
        contracts.check(contract, contracts.bind(contract, (), arguments))

    try:
        OpUnderTest(contract, function).call(call.values, dtypes=call.dtypes, layouts=call.layouts, shapes=call.shapes)
    except (Mismatch, ValueError, KeyError, IndexError, OverflowError):
        return False
    return True
