"""Checks of an op under test: adversarial calls, exact comparisons, stated bounds.

This package never imports an engine. It raises `Mismatch` with a `Failure` when an engine is wrong.
What needs torch is imported when it is first used: a report reads the budget of statistical tests without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from verispec.judge._compare import Compare, exact
from verispec.judge._copied_requests import copied_request
from verispec.judge._copies import copies_of, is_repeatable, joined, repeated, row_sizes
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
    failed_call,
    lost_device,
    offered,
)

if TYPE_CHECKING:
    from verispec.judge._call import OpCall
    from verispec.judge._explained import explained
    from verispec.judge._memory import LAYOUTS, SHIFTED, GuardedTensor, sparse_zeros
    from verispec.judge._op import OpUnderTest, Replayed
    from verispec.judge._repeated import check_repeated
    from verispec.judge._sampler import SamplerUnderTest, sampler_of

__all__ = [
    "EXPLANATION",
    "LAYOUTS",
    "SHIFTED",
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
    "check_repeated",
    "copied_request",
    "copies_of",
    "exact",
    "explained",
    "failed_call",
    "is_repeatable",
    "joined",
    "lost_device",
    "offered",
    "repeated",
    "row_sizes",
    "sampler_of",
    "sparse_zeros",
]

_WITH_TORCH = {
    "_call": ("OpCall",),
    "_explained": ("explained",),
    "_memory": ("LAYOUTS", "SHIFTED", "GuardedTensor", "sparse_zeros"),
    "_op": ("OpUnderTest", "Replayed"),
    "_repeated": ("check_repeated",),
    "_sampler": ("SamplerUnderTest", "sampler_of"),
}


def __getattr__(name: str) -> Any:
    for module, names in _WITH_TORCH.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
