"""The judge: hostile calls, exact comparisons, stated bounds. It never imports an engine."""

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
from verispec.judge._op import OpUnderTest
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
    "OpUnderTest",
    "Outcome",
    "SamplerUnderTest",
    "assert_same",
    "exact",
    "lost_device",
    "offered",
    "sparse_zeros",
]
