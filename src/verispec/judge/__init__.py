"""Checks of an op under test: adversarial calls, exact comparisons, stated bounds.

This package never imports an engine. It raises `Mismatch` with a `Failure` when an engine is wrong.
"""

from verispec.judge._compare import Compare, exact
from verispec.judge._failure import (
    EXPLANATION,
    DeviceLost,
    Failure,
    Inconclusive,
    Kind,
    Mismatch,
    NotOffered,
    Outcome,
    assert_same,
    lost_device,
    offered,
)
from verispec.judge._memory import LAYOUTS, GuardedTensor, sparse_zeros
from verispec.judge._op import OpCall, OpUnderTest, Replayed
from verispec.judge._sampler import SamplerUnderTest

__all__ = [
    "EXPLANATION",
    "LAYOUTS",
    "Compare",
    "DeviceLost",
    "Failure",
    "GuardedTensor",
    "Inconclusive",
    "Kind",
    "Mismatch",
    "NotOffered",
    "OpCall",
    "OpUnderTest",
    "Outcome",
    "Replayed",
    "SamplerUnderTest",
    "assert_same",
    "exact",
    "lost_device",
    "offered",
    "sparse_zeros",
]
