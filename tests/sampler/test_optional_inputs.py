"""The calls that every op is tested with give each optional input, and leave it out.

Strides, threads and late requests of an input that no call gives are not tested.
"""

from __future__ import annotations

import pytest

from verispec.reference import contracts
from verispec.reference.contracts import Role
from verispec.suites.sampler._calls import MAKERS, BatchShape, make
from verispec.suites.sampler.test_every_op import MODES

ALWAYS = {("rejection_greedy_sample", "is_greedy_ptr"), ("rejection_greedy_sample", "uniform_probs_ptr")}
"""Inputs that every caller gives: cases of the op's own clauses leave them out."""


@pytest.mark.parametrize("op", sorted(MAKERS))
def test_each_optional_input_is_given_and_left_out(op: str) -> None:
    optional = [t.name for t in contracts.load(op).tensors if t.optional and t.role is not Role.OUT]
    shapes = [BatchShape((3, 1, 0, 2), 9, **mode) for mode in MODES.values()]
    calls = [make(op, seed, shape).values for shape in shapes for seed in range(6)]
    for name in optional:
        found = {values.get(name) is not None for values in calls}
        assert found == ({True} if (op, name) in ALWAYS else {True, False}), name
