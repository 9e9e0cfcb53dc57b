"""Every op with one tensor at a time in another layout, spread past 2^31 elements, or of another width, others plain.

A kernel that takes the strides of another tensor, or none, is right while all tensors have one layout. A wrapper that
copies one output back where another needs it is right while both have one width.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.engines import Engine
from verispec.judge import SHIFTED, Inconclusive, Mismatch, OpCall, OpUnderTest
from verispec.reference import contracts
from verispec.run.logs import announce
from verispec.run.record import FAULT
from verispec.suites.sampler._calls import BatchShape, make
from verispec.suites.sampler._combinations import combination
from verispec.suites.sampler._far_apart import check_far_apart
from verispec.suites.sampler._refusals import check_each, try_each
from verispec.suites.sampler._request_state import widths
from verispec.suites.sampler.test_every_op import MODES, OPS, STRIDES, check, is_right_when_dense, is_slow, uses_rows

TABLES = {op: names for op in OPS if (names := [t.name for t in contracts.load(op).tensors if len(t.shape) > 1])}
"""Tensors with rows, by op."""
COUNTS = (3, 1, 0, 2, 0, 1, 4, 0, 1, 2)
"""Requests without drafts among others: their bonus tokens do not depend on an acceptance."""
WHOLE_TILES = 2_051
"""A vocabulary with whole tiles of up to 2,048 ids, and a part of one."""


@case(
    "ANY-6",
    subjects=sorted(TABLES),
    check="rows of one tensor",
    layout=["padded", "transposed"],
    mode=["plain", "other", "bare"],
    quick=False,
)
def test_rows_of_one_tensor(op: OpUnderTest, engine: Engine, seed: int, subject: str, layout: str, mode: str) -> None:
    check_alone(op, engine, seed, layout, mode)


@case("ANY-6", subjects=OPS, check="elements of one tensor", layout="gapped", mode=["plain", "other"], quick=False)
def test_elements_of_one_tensor(op: OpUnderTest, engine: Engine, seed: int, subject: str, mode: str) -> None:
    check_alone(op, engine, seed, "gapped", mode)


@case(
    "ANY-6",
    subjects=[op for op in sorted(TABLES) if uses_rows(op)],
    check="rows of one tensor past a tile",
    layout=["transposed", "gapped"],
    quick=False,
)
def test_wide_rows_of_one_tensor(op: OpUnderTest, engine: Engine, seed: int, subject: str, layout: str) -> None:
    """A kernel may take tiles that are whole for contiguous, and read their elements one by one in the last tile."""
    check_alone(op, engine, seed, layout, "plain", WHOLE_TILES)


@case("ANY-6", subjects=OPS, check="address of one tensor", layout=SHIFTED, quick=False)
def test_the_address_of_one_tensor(op: OpUnderTest, engine: Engine, seed: int, subject: str) -> None:
    check_alone(op, engine, seed, SHIFTED, "plain")


INTEGERS = {
    op: names
    for op in OPS
    if len(names := [t.name for t in contracts.load(op).outputs if {"int32", "int64"} <= set(t.dtypes)]) > 1
}
"""Outputs of either width, of ops with several."""


@case("ANY-6", subjects=sorted(INTEGERS), check="widths of outputs")
def test_the_widths_of_one_and_of_two_outputs(op: OpUnderTest, engine: Engine, seed: int, subject: str) -> None:
    """Outputs with the width that their callers do not pass, each alone and two together."""
    call = make(subject, seed, BatchShape(COUNTS, 9))
    laid = op.arguments(OpCall(call.values, {}, {}, call.shapes))
    other = {name: "int64" if laid[name].element_size() == 4 else "int32" for name in INTEGERS[subject]}

    def decides(names: tuple[str, ...]) -> bool:
        dtypes = {name: other[name] for name in names}
        announce(", ".join(f"{name} {dtype}" for name, dtype in dtypes.items()))
        check(op, call, dtypes=dtypes)
        return True

    most = 1 if is_slow(engine) else 2
    answers, refusal = try_each(partial(decides, names) for n in range(1, most + 1) for names in combinations(other, n))
    # A width that the engine refuses says nothing about the others.
    if refusal and not answers:
        raise refusal


def check_alone(op: OpUnderTest, engine: Engine, seed: int, layout: str, mode: str, vocab: int = 9) -> None:
    """Compare calls in which one tensor alone has the layout, plain ones with integers of 64 bits too.

    A kernel that is compiled for each layout, or interpreted, meets production's integers alone.

    Args:
        op: the op under test.
        engine: its engine.
        seed: seed of the calls.
        layout: layout of the one tensor.
        mode: options of the call, one of `MODES`.
        vocab: size of the vocabulary.

    Raises:
        Mismatch: a call is wrong that is right with all tensors contiguous.
        Inconclusive: no call is right even so.
        UnsupportedCall: the first refusal of a layout.
    """
    contract = op.contract
    shape = BatchShape(COUNTS, vocab, **MODES[mode])
    call = make(contract.name, seed, shape)
    laid = op.arguments(OpCall(call.values, {}, {t.name: layout for t in contract.tensors}, call.shapes))
    names = [name for name, view in laid.items() if layout == SHIFTED or not view.is_contiguous()]

    def decides(name: str, dtypes: dict[str, str]) -> bool:
        described = combination(contract, shape, dtypes, {name: layout})
        announce(described)
        try:
            check(op, call, dtypes=dtypes, layouts={name: layout})
        except Mismatch as wrong:
            if not is_right_when_dense(op, call, dtypes):
                return False
            found = wrong.failure
            details = found.details if layout == SHIFTED else {**found.details, FAULT: STRIDES}
            raise Mismatch(replace(found, message=f"{found.message} ({described})", details=details)) from wrong
        return True

    answers, refusal = try_each(partial(decides, name, {}) for name in names)
    if refusal:
        raise refusal
    if mode == "plain" and layout != SHIFTED and not is_slow(engine) and op.device == "cpu":
        # Other cases report an engine without these integers.
        answers += try_each(partial(decides, name, widths(op, "int64")) for name in names)[0]
    if not any(answers):
        raise Inconclusive("calls with contiguous tensors are wrong already, so that a layout shows nothing")


def give_last_state(values: dict[str, Any]) -> None:
    """Exchange the state of the first request, or row, and the last state; without states change nothing.

    The request's drafter is sure of its drafts then, so that most of them are rejected, by its row's values.
    """
    mappings = [name for name in ("idx_mapping", "expanded_idx_mapping") if name in values]
    if not mappings or "temperature" not in values:
        return
    first, last = values[mappings[0]][0], len(values["temperature"]) - 1
    for name in mappings if first >= 0 else ():
        states = values[name]
        values[name] = np.where(states == first, last, np.where(states == last, first, states))
    if first >= 0 and values.get("draft_logits") is not None and "draft_sampled" in values:
        steps = np.arange(int(values["cu_num_logits"][1]) - 1)
        tokens = values["draft_sampled"][1 + steps].clip(0, values["draft_logits"].shape[2] - 1)
        values["draft_logits"][last, steps, tokens] += 8.0


@case("ANY-12", subjects=sorted(TABLES), axis=["first", "others"])
def test_elements_past_2_to_the_31(op: OpUnderTest, seed: int, subject: str, axis: str) -> None:
    """Each tensor with rows in turn: few elements, far apart, so that no other page is touched.

    The first request has the last state, whose elements are the farthest, and samples in the last mode. Integers have
    the width of production, and 64 bits too where the engine takes them: a wrapper may copy others.
    """
    counts = (2, 1, 0, 2)
    shapes = [BatchShape(counts, 5), BatchShape(counts, 5, draft=False, synthetic=True)]
    if any(p.name == "temperature" for p in op.contract.params):
        shapes.append(BatchShape(counts, 5, temperature=0.7))

    def check_mode(dtypes: dict[str, str], shape: BatchShape) -> None:
        call = make(subject, seed, shape)
        give_last_state(call.values)
        inputs, _ = op.call(call.values, shapes=call.shapes, dtypes=dtypes)
        places = [
            (name, at)
            for name in TABLES[subject]
            if (value := inputs.get(name)) is not None
            for at in ((0,) if axis == "first" else range(1, value.ndim))
            if value.shape[at] > 1
        ]
        check_each(partial(check_far_apart, op, call, name, at, dtypes) for name, at in places)

    undecided = try_each(partial(check_mode, {}, shape) for shape in shapes)[1]
    if wide := widths(op, "int64"):
        # Other cases report an engine without these integers.
        try_each(partial(check_mode, wide, shape) for shape in shapes)
    if undecided:
        raise undecided
