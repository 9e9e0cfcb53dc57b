"""Every op with integers that 8 or 16 bits do not hold, in the dtypes of production and with integers of 64 bits.

A vocabulary, a KV cache and a prompt are all larger than 65,536. An id, a block or a position whose low bits are those
of another one, or of a padding token, is neither. The cases of the largest integers do not show that: an engine may
take no integers of 64 bits, and those that all are far away may lie past a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.judge import OpUnderTest
from verispec.suites.sampler._boundary_calls import fits, made_by_the_harness, shapes_of, structure
from verispec.suites.sampler._calls import BatchShape, MadeCall, make
from verispec.suites.sampler._refusals import check_each
from verispec.suites.sampler.test_every_op import check, some_requests, uses_rows
from verispec.suites.sampler.test_every_op_values import FREE, INDEXING, WIDE, has_answer

FAR = (3 << 8, 3 << 16)
"""Distances of integers that are equal in their low 8 bits, or in their low 16."""
LARGE = 2**18
"""Vocabulary of ops without rows, in which an id may lie three times 2^16 past another one, or past -1."""
POINTING = frozenset({
    "candidates", "draft_sampled", "draft_token_ids_ptr", "k", "logits_cache_col", "sampled", "top_k",
})  # fmt: skip
"""Ids that lead to an element of a row, and limits on the elements of one: the vocabulary bounds them."""


def free_integers(op: str) -> list[str]:
    """Return the tensors of integers that neither index nor bound anything."""
    excluded = structure(op) | (POINTING if uses_rows(op) else set())
    return [name for name in WIDE[op] if name not in excluded and not (op in INDEXING and name == "positions_ptr")]


ALTERED = {op: names for op in WIDE if (names := free_integers(op))}
"""Such tensors by op."""


@case(
    "ANY-6", subjects=sorted(ALTERED), check="integers past 2^16", ids=["production", "int64"], mode=["plain", "other"]
)
def test_integers_past_2_to_the_16(op: OpUnderTest, seed: int, subject: str, ids: str, mode: str) -> None:
    """Half of one tensor's values have other high bits alone, in every tensor in turn, or a scalar has, or is negative.

    In few requests, and in 70.
    """
    widths = {t.name: "int64" for t in op.contract.tensors if {"int32", "int64"} <= set(t.dtypes)}
    dtypes = widths if ids == "int64" else {}
    calls = [
        call for requests in (5, 70) for call in altered(op, seed, some_requests(seed, requests, 19, mode), dtypes)
    ]
    check_each(partial(check, op, call, dtypes=dtypes) for call in calls)


def altered(op: OpUnderTest, seed: int, shape: BatchShape, dtypes: dict[str, str]) -> Iterator[MadeCall]:
    """Yield calls that differ in the high bits of one tensor, or in one scalar, and that have an answer.

    Args:
        op: the op under test.
        seed: seed of the call.
        shape: shape of the call; the vocabulary is `LARGE` where no row is as long.
        dtypes: dtype by tensor, instead of the production dtype.
    """
    contract = op.contract
    rng = np.random.default_rng([seed, shape.requests])
    if not uses_rows(contract.name) and any(p.name == "vocab_size" for p in contract.params):
        shape = replace(shape, vocab=LARGE)
    call = make(contract.name, seed, shape)
    values, outputs = op.call(call.values, shapes=call.shapes, dtypes=dtypes)
    given = {name: values[name] for name in ALTERED[contract.name] if values[name] is not None}
    tensors = {name: held for name, held in given.items() if held.dtype.kind == "i"}
    scalars = {name: values[name] for name in FREE.get(contract.name, ()) if type(values[name]) is int}
    made_here = made_by_the_harness(contract)
    for far in FAR:
        offsets = {name: rng.choice(np.array([0, far], held.dtype), held.shape) for name, held in tensors.items()}
        changes: list[dict[str, Any]] = [{name: tensors[name] + offset} for name, offset in offsets.items()]
        changes += [{name: number} for name, held in scalars.items() for number in (held + far, -3 - far)]
        for changed in ({**values, **change} for change in changes):
            if fits(contract, changed) and has_answer(contract.name, changed, outputs):
                kept = {key: held for key, held in changed.items() if held is None or key not in made_here}
                yield MadeCall(kept, shapes_of(contract, values), call.compare)
