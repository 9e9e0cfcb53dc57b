"""Every op with integers that 32 bits, or a double, do not hold.

Ids, positions and block numbers of 64 bits are compared and copied as they are. One whose low bits look right is not
right, and a copy keeps all bits, in any request of a batch.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.judge import OpUnderTest
from verispec.reference import contracts, oracle
from verispec.suites.sampler._boundary_calls import fits, made_by_the_harness, shapes_of
from verispec.suites.sampler._calls import MadeCall, make
from verispec.suites.sampler.test_every_op import MODES, OPS, check, some_requests

FAR = 2**53
"""Distance of values that are equal in their low 32 bits, and that a double rounds when they are odd."""

DERIVED = {"expanded_local_pos", "num_accepted", "num_sampled"}
"""Steps and counts that follow from a batch's rows: a kernel may use them as indices."""

WIDE = {
    op: names
    for op in OPS
    if (
        names := [
            t.name
            for t in contracts.load(op).tensors
            if t.role != "out" and {"int32", "int64"} <= set(t.dtypes) and not (t.cumulative or t.within or t.indexes)
            if t.name not in DERIVED
        ]
    )
}
"""Integers of either width by op, without counts and indices, whose size bounds them."""


@case("ANY-6", subjects=sorted(WIDE), check="integers past 2^53", mode=list(MODES))
def test_integers_past_2_to_the_53(op: OpUnderTest, seed: int, subject: str, mode: str) -> None:
    """Two thirds of one tensor's values, in batches of up to 130 requests; every tensor in turn."""
    rng = np.random.default_rng(seed)
    widths = {t.name: "int64" for t in op.contract.tensors if {"int32", "int64"} <= set(t.dtypes)}
    for requests in (5, 130):
        call = make(subject, seed, some_requests(seed, requests, 19, mode))
        values, _ = op.call(call.values, shapes=call.shapes, dtypes=widths)
        for name in WIDE[subject]:
            value = values[name]
            if value is None:
                continue
            offsets = rng.choice([0, 3 * FAR, -3 * FAR], value.shape)
            for changed in ({**values, name: value + offsets}, {**values, name: value + abs(offsets)}):
                if fits(op.contract, changed) and has_answer(subject, changed):
                    made_here = made_by_the_harness(op.contract)
                    given = {key: held for key, held in changed.items() if held is None or key not in made_here}
                    check(op, MadeCall(given, shapes_of(op.contract, values), call.compare), dtypes=widths)
                    break


def has_answer(subject: str, values: dict[str, Any]) -> bool:
    """Return False if a value indexes a tensor that is not as long: the oracle defines no such call."""
    with suppress(IndexError):
        oracle.load(subject)(**{k: v.copy() if isinstance(v, np.ndarray) else v for k, v in values.items()})
        return True
    return False
