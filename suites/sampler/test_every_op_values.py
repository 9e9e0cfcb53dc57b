"""Every op with integers that 32 bits, or a double, do not hold, and with scalars that equal elements of tensors.

Ids, positions and block numbers of 64 bits are compared and copied as they are. One whose low bits look right is not
right, and a copy keeps all bits, in any request of a batch. A padding id that is a token is no mark of padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.engines import Engine
from verispec.judge import OpUnderTest, check_repeated
from verispec.reference import contracts, oracle
from verispec.reference.contracts import Contract, Scalar
from verispec.suites.sampler._boundary_calls import STRUCTURE, fits, made_by_the_harness, shapes_of
from verispec.suites.sampler._callers import from_caller
from verispec.suites.sampler._calls import BatchShape, MadeCall, make
from verispec.suites.sampler._refusals import check_each
from verispec.suites.sampler.test_every_op import (
    FEW,
    MODES,
    OPS,
    check,
    is_slow,
    make_hundred_calls,
    some_requests,
)
from verispec.suites.sampler.test_every_op_large import WHOLE_BATCH

FAR = 2**53
"""Distance of values that are equal in their low 32 bits, and that a double rounds when they are odd."""

MANY = 18_000
"""Requests of a batch whose tokens are enough for every kernel to share them out."""

DERIVED = {"expanded_local_pos", "num_accepted", "num_rejected_tokens_ptr", "num_sampled"}
"""Steps and counts that follow from a batch's rows: a kernel may use them as indices."""

INDEXING = ("compute_slot_mapping", "copy_and_expand_dflash_inputs")
"""Ops in which a position of 64 bits is an index: one past the table is the subject of a clause of their own."""

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


def free_scalars(contract: Contract) -> list[str]:
    """Return the numbers of an op that are written or compared, and bound nothing."""
    return [
        p.name
        for p in contract.params
        if isinstance(p, Scalar) and p.type in (int, float) and p.minimum is None and p.name not in STRUCTURE
        if not (p.axis or p.stride_of or p.tuning or p.optional or p.upper_bound)
    ]


FREE = {op: names for op in OPS if (names := free_scalars(contracts.load(op)))}
"""Such scalars by op: padding ids and slots, and values to replace."""


@case("ANY-6", subjects=sorted(WIDE), check="integers past 2^53", mode=list(MODES))
def test_integers_past_2_to_the_53(op: OpUnderTest, engine: Engine, seed: int, subject: str, mode: str) -> None:
    """Two thirds of one tensor's values, in batches of up to 130 requests and in copies of these; every tensor in turn.

    In the dtypes of production only tensors of 64 bits hold such values, and these are positive there. An engine may
    take no other dtypes, so that these calls come first. In one call all tensors are far away together. After a hundred
    small calls the first batch is right again.
    """
    for requests in () if subject in INDEXING else (5, 130):
        check_far(op, seed, some_requests(seed, requests, 19, mode), {})
    widths = {t.name: "int64" for t in op.contract.tensors if {"int32", "int64"} <= set(t.dtypes)}
    is_many = mode == "plain" and not is_slow(engine)
    for requests in (5, 130, MANY) if is_many and subject in WHOLE_BATCH else (5, 130):
        check_far(op, seed, some_requests(seed, requests, 19, mode), widths)
    if is_many and subject not in WHOLE_BATCH:
        check_far(op, seed, some_requests(seed, 130, 19, mode), widths, MANY // 130)
    if is_many:
        make_hundred_calls(op, make(subject, seed, BatchShape(FEW, 9)))
        check_far(op, seed, some_requests(seed, 5, 19, mode), widths)


def check_far(op: OpUnderTest, seed: int, shape: BatchShape, dtypes: dict[str, str], copies: int = 1) -> None:
    """Compare calls in which values of one tensor of 64 bits are far away, for each such tensor, or one free scalar.

    Args:
        op: the op under test.
        seed: seed of the call.
        shape: shape of the call.
        dtypes: dtype by tensor, instead of the production dtype.
        copies: copies of the call's requests in one batch.

    Raises:
        Mismatch: a call is wrong.
        UnsupportedCall: the engine does not take these dtypes.
    """
    contract = op.contract
    rng = np.random.default_rng(seed)
    call = make(contract.name, seed, shape)
    values, outputs = op.call(call.values, shapes=call.shapes, dtypes=dtypes)
    far = dict[str, list[Any]]()
    for name in WIDE[contract.name]:
        value = values[name]
        if value is not None and value.dtype == np.int64:
            offsets = rng.choice([0, 3 * FAR, -3 * FAR], value.shape)
            far[name] = [value + offsets, value + abs(offsets)] if dtypes else [value + abs(offsets)]
    far |= {name: [values[name] + 3 * FAR] for name in FREE.get(contract.name, ()) if type(values[name]) is int}
    changes = [[{name: candidate} for candidate in candidates] for name, candidates in far.items()]
    # Numbers that are compared are far away together: they differ by less than a float32 or a double rounds.
    shift = 3 * (FAR if dtypes else 2**24)
    together = {
        n: values[n] + np.asarray(shift, dtype=values[n].dtype) for n in WIDE[contract.name] if values[n] is not None
    }
    for candidates in [*changes, [together]]:
        for changed in ({**values, **change} for change in candidates):
            if fits(contract, changed) and has_answer(contract.name, changed, outputs):
                made_here = made_by_the_harness(contract)
                given = {key: held for key, held in changed.items() if held is None or key not in made_here}
                shapes = shapes_of(contract, values)
                if copies > 1:
                    check_repeated(op, given, copies, shapes=shapes, compare=call.compare, dtypes=dtypes)
                else:
                    check(op, MadeCall(given, shapes, call.compare), dtypes=dtypes)
                break


def has_answer(subject: str, values: dict[str, Any], outputs: dict[str, Any]) -> bool:
    """Return False if the oracle defines no such call, or its answer is past the range of an output.

    A value that indexes a tensor that is not as long has no answer.
    """
    wide = {name: values[name].astype(np.int64) for name, held in outputs.items() if held.dtype == np.int32}
    given = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in (values | wide).items()}
    with suppress(IndexError):
        answer = oracle.load(subject)(**given)
        return all(is_in_range(answer[name], held.dtype) for name, held in outputs.items())
    return False


def is_in_range(answer: Any, dtype: Any) -> bool:
    """Return True if `dtype` holds all integers of an answer."""
    if dtype.kind != "i" or not answer.size:
        return True
    limits = np.iinfo(dtype)
    return bool(limits.min <= answer.min() and answer.max() <= limits.max)


def padding_is_a_token(params: Mapping[str, Any]) -> str | None:
    """Return the reach of padding drafts with token 0, as vLLM's proposers do."""
    if params["subject"] != "copy_and_expand_eagle_inputs":
        return None
    return from_caller("a prompt with token 0, which also pads")(params)


@case("ANY-16", subjects=sorted(FREE), mode=["plain", "other"], reach=padding_is_a_token)
def test_scalars_that_equal_elements_of_tensors(op: OpUnderTest, seed: int, subject: str, mode: str) -> None:
    """Each scalar takes values of each tensor of integers in turn, of the first and of a later element."""
    contract = op.contract
    changed = []
    for requests in (4, 70):
        call = make(subject, seed, some_requests(seed, requests, 19, mode))
        values, outputs = op.call(call.values, shapes=call.shapes)
        tensors = [v for v in values.values() if isinstance(v, np.ndarray) and v.dtype.kind == "i" and v.size]
        for name in FREE[subject]:
            kind = type(values[name])
            for number in sorted({kind(tensor.flat[at]) for tensor in tensors for at in (0, tensor.size // 2)}):
                given = {**values, name: number}
                if fits(contract, given) and has_answer(subject, given, outputs):
                    changed.append(replace(call, values={**call.values, name: number}))
    check_each(partial(check, op, call) for call in changed)
