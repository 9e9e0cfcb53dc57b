"""The judge: hostile calls, exact comparisons, stated bounds. It never imports an engine."""

from verispec.judge._compare import Compare, exact
from verispec.judge._failure import (
    EXPLANATION,
    DeviceLost,
    Failure,
    Inconclusive,
    Kind,
    Mismatch,
    Outcome,
    lost_device,
    same,
)
from verispec.judge._memory import LAYOUTS, Guarded, sparse_zeros
from verispec.judge._op import OpUnderTest
from verispec.judge._sampler import SamplerUnderTest

__all__ = [
    "EXPLANATION",
    "LAYOUTS",
    "Compare",
    "DeviceLost",
    "Failure",
    "Guarded",
    "Inconclusive",
    "Kind",
    "Mismatch",
    "OpUnderTest",
    "Outcome",
    "SamplerUnderTest",
    "exact",
    "lost_device",
    "same",
    "sparse_zeros",
]
