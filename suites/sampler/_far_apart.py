"""Calls with a tensor whose elements lie more than 2^31 apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verispec.judge import Inconclusive, Mismatch, OpUnderTest
from verispec.suites.sampler._calls import MadeCall


def check_far_apart(op: OpUnderTest, call: MadeCall, name: str, axis: int, dtypes: Mapping[str, str]) -> None:
    """Check a call with the elements of a tensor more than 2^31 apart.

    Raises:
        Inconclusive: the op is wrong with elements 1,000 apart too: it ignores strides, whatever its offsets are.
    """
    given: dict[str, Any] = {"dtypes": dtypes, "shapes": call.shapes, "compare": call.compare}
    try:
        op.check_wide(call.values, name, axis, span=1000, **given)
    except Mismatch as near:
        reason = f"wrong already with {name} spread over 1,000 elements: this shows nothing about 2^31"
        raise Inconclusive(reason) from near
    op.check_wide(call.values, name, axis, **given)
